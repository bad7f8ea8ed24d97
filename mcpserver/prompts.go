package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

const (
	methodListPrompts = "prompts/list"
	methodGetPrompt   = "prompts/get"
)

// argumentRequest is the only argument of every prompt.
const argumentRequest = "request"

// prompt opens a skill for the user.
type prompt struct {
	name  string
	skill *skills.Skill
}

func promptName(p prompt) string { return p.name }

// prompt returns the prompt with a name, or nil.
func (v *visible) prompt(name string) *prompt {
	at, found := position(v.prompts(), name, promptName)
	if !found {
		return nil
	}
	return &v.prompts()[at]
}

// promptsOf returns a prompt for every skill that users may invoke, in byte order of name. Names are unique:
// the skill's name if no other skill has it as a name or a path, else the path with ":" for "/", or the
// unchanged path if a directory's name contains ":" and makes that ambiguous.
func promptsOf(all []*skills.Skill) []prompt {
	names, paths, joined := map[string]int{}, map[string]bool{}, map[string]int{}
	for _, sk := range all {
		names[sk.Name()]++
		paths[sk.Path] = true
		joined[strings.ReplaceAll(sk.Path, "/", ":")]++
	}
	var prompts []prompt
	for _, sk := range all {
		if !sk.Frontmatter.UserInvocable {
			continue
		}
		name := sk.Name()
		if names[name] > 1 || paths[name] && name != sk.Path || strings.ContainsFunc(name, breaksCommand) {
			name = strings.ReplaceAll(sk.Path, "/", ":")
			if joined[name] > 1 {
				name = sk.Path
			}
		}
		prompts = append(prompts, prompt{name, sk})
	}
	slices.SortFunc(prompts, func(a, b prompt) int { return strings.Compare(a.name, b.name) })
	return prompts
}

// breaksCommand reports whether a character would split a skill's name on a command line, or make it look
// like a path.
func breaksCommand(r rune) bool {
	return r == ':' || r == '/' || unicode.IsSpace(r) || !unicode.IsGraphic(r)
}

// listPrompts is prompts/list, paged by name.
func (s *Server) listPrompts(_ context.Context, r *request) (any, error) {
	all := following(s.visible(r.scope).prompts(), r.after, promptName)
	result := &mcp.ListPromptsResult{Prompts: make([]mcp.Prompt, min(len(all), pageSize))}
	for i := range result.Prompts {
		result.Prompts[i] = mcp.Prompt{
			Name:        all[i].name,
			Description: shorten(all[i].skill.Description()),
			Arguments: []mcp.PromptArgument{
				{Name: argumentRequest, Description: argumentHint(all[i].skill)},
			},
		}
	}
	if len(all) > pageSize {
		result.NextCursor = encodeCursor(all[pageSize-1].name)
	}
	return result, nil
}

// argumentHint returns the description of a prompt's argument: the author's, if there is one.
func argumentHint(sk *skills.Skill) string {
	hint := sk.Frontmatter.ArgumentHint()
	return cmp.Or(shorten(hint), "What to do with the skill")
}

// getPrompt is prompts/get: the user opens a skill. It is loaded as by load_skill, even if it is hidden from
// models, and stays loaded for the session. The user's request, if any, is a separate message.
func (s *Server) getPrompt(ctx context.Context, r *request) (any, error) {
	var arguments map[string]string
	if err := wire.Decode(r.Arguments, &arguments); err != nil {
		return nil, err
	}
	ses, call, err := s.open(ctx, r.Method, r.Meta, "")
	if err != nil {
		return nil, err
	}
	p := s.visible(scope{call.Principal, call.Profile}).prompt(r.Name)
	if p == nil {
		// A caller without the right to read gets the same answer for every name.
		if err := ses.Permit(ctx, session.PermitRequest{Call: call}); err != nil {
			return nil, err
		}
		return nil, &session.Error{
			Code: fault.CodeSkillNotFound, Message: fmt.Sprintf("no prompt %q", policy.Clip(r.Name)),
			Remedy: "prompts/list has the names",
		}
	}
	tracePrompt(ctx, p.name)
	loaded, err := ses.Activate(ctx, session.ActivateRequest{
		Call: call, Skill: p.skill.Path, Force: true, Source: cfharness.SourceUser,
	})
	if err != nil {
		return nil, err
	}
	s.loaded(loaded)
	result := &mcp.GetPromptResult{Description: shorten(loaded.Skill.Description())}
	say := func(text string) {
		message := mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(text))
		result.Messages = append(result.Messages, message)
	}
	say(renderLoad(ctx, ses, call, loaded))
	// In a message of its own, the request cannot be confused with the text of a skill.
	if request := arguments[argumentRequest]; request != "" {
		say(s.cfg.Sessions.Secrets().Text(request))
	}
	result.Meta = &mcp.Meta{AdditionalFields: map[string]any{metaOutput: loaded.Output}}
	if front := loaded.Skill.Frontmatter; front.AllowedToolsDeclared {
		result.Meta.SetMetaField(metaAllowedTools, append([]string{}, front.AllowedTools...))
	}
	return result, nil
}
