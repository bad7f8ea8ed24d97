package mcpserver

import (
	"context"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
)

const (
	methodListTemplates = "resources/templates/list"
	methodComplete      = "completion/complete"
)

// The template of skills' files, and its variable: the part of a file's URI after skill://.
const (
	templateURI      = "skill://{+path}"
	templateVariable = "path"
)

// The template of a session's own artifacts, and its variable: the name of a file of the session.
const (
	artifactTemplateURI = session.ArtifactBase + "{+name}"
	artifactVariable    = "name"
)

// listTemplates is resources/templates/list.
func (s *Server) listTemplates(_ context.Context, r *request) (any, error) {
	if !s.offersOf(r.scope).reads {
		return &mcp.ListResourceTemplatesResult{ResourceTemplates: []mcp.ResourceTemplate{}}, nil
	}
	template := mcp.NewResourceTemplate(templateURI, "Skill file", mcp.WithTemplateDescription(
		"A file of a skill: the skill's path, then the file's path in the skill, "+
			"each segment percent-encoded."))
	// Artifacts are in no list: a list must not change because of calls, and each session has its own
	// artifacts.
	artifacts := mcp.NewResourceTemplate(artifactTemplateURI, "Session artifact", mcp.WithTemplateDescription(
		"A file of this session's record, such as skill-activations.json or "+
			"events.jsonl, or a released output of a script. "+
			"Over HTTP add ?activation=HANDLE, the handle that load_skill returned. "+
			"Long ones come in parts: _meta[\""+metaNext+"\"] is the URI of the part that follows."))
	all := []mcp.ResourceTemplate{template, artifacts}
	return &mcp.ListResourceTemplatesResult{ResourceTemplates: all}, nil
}

// maxValues is the maximum number of values of a completion in the protocol.
const maxValues = 100

// complete is completion/complete for the variables of the templates and for the request of the prompts.
func (s *Server) complete(ctx context.Context, r *request) (any, error) {
	unknown := func(what string) error {
		return &wire.Error{Code: mcp.INVALID_PARAMS, Message: what}
	}
	var values []string
	switch r.Ref.Type {
	case "ref/resource":
		if !s.offersOf(r.scope).reads {
			return nil, unknown("there is nothing to complete there")
		}
		switch [2]string{r.Ref.URI, r.Argument.Name} {
		case [2]string{templateURI, templateVariable}:
			values = s.completePath(ctx, r)
		case [2]string{artifactTemplateURI, artifactVariable}:
			if call, err := s.callOf(ctx, r.Method, r.Meta); err == nil {
				for _, name := range s.cfg.Sessions.ArtifactNames(ctx, call) {
					if strings.HasPrefix(name, r.Argument.Value) {
						values = append(values, name)
					}
				}
			}
		default:
			return nil, unknown("there is nothing to complete there; " +
				"resources/templates/list has the templates")
		}
	case "ref/prompt":
		p := s.visible(r.scope).prompt(r.Ref.Name)
		if p == nil || r.Argument.Name != argumentRequest {
			return nil, unknown("there is no such prompt or argument; prompts/list has them")
		}
		values = s.completeRequest(ctx, r, p.skill)
	default:
		return nil, unknown(`ref must have the type "ref/prompt" or "ref/resource"`)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// A completed value repeats what the caller typed, perhaps a secret.
	secrets := s.cfg.Sessions.Secrets()
	for i := range values {
		values[i] = secrets.Text(values[i])
	}
	result := new(mcp.CompleteResult)
	result.Completion.Total = len(values)
	result.Completion.HasMore = len(values) > maxValues
	result.Completion.Values = append([]string{}, values[:min(len(values), maxValues)]...)
	return result, nil
}

// hides returns a function that reports whether the session of a completion hides a skill, or a file of it.
func (s *Server) hides(ctx context.Context, r *request) func(sk *skills.Skill, path string) bool {
	var ses *session.Session
	return func(sk *skills.Skill, path string) bool {
		if len(s.cfg.Registry.Snapshot().HiddenBy(sk, path)) == 0 {
			return false
		}
		// A completion that does not need the session must not open it.
		if ses == nil {
			ses, _, _ = s.open(ctx, r.Method, r.Meta, "")
		}
		return ses == nil || ses.Hides(sk, path)
	}
}

// completePath returns the values of the template's variable that start with the argument, percent-encoded as
// in a URI: the files of the skill whose path it contains, then the SKILL.md of each skill whose path starts
// with it, then of each whose name does.
func (s *Server) completePath(ctx context.Context, r *request) []string {
	v, value, hides := s.visible(r.scope), r.Argument.Value, s.hides(ctx, r)
	scheme := strings.TrimSuffix(templateURI, "{+path}")
	var paths, named []string
	if sk, _ := locate(v.snapshot, scheme+value[:strings.LastIndexByte(value, '/')+1]); sk != nil {
		sk, index, err := s.cfg.Registry.Index(ctx, sk)
		if err != nil {
			return nil
		}
		for _, file := range index.Files {
			if !hides(sk, file.Path) {
				paths = append(paths, strings.TrimPrefix(sk.URI(file.Path), scheme))
			}
		}
	}
	for _, listed := range v.entries() {
		path := strings.TrimPrefix(listed.uri, scheme)
		switch begins := strings.HasPrefix(path, value); {
		case !begins && !strings.HasPrefix(listed.skill.Name(), value), hides(listed.skill, ""):
		case begins:
			paths = append(paths, path)
		default:
			named = append(named, path)
		}
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return !strings.HasPrefix(path, value) })
	slices.Sort(paths)
	return append(slices.Compact(paths), named...)
}

// completeRequest completes the last word of a user's request if it is a prefix of a path in the skill.
func (s *Server) completeRequest(ctx context.Context, r *request, sk *skills.Skill) (values []string) {
	value, hides := r.Argument.Value, s.hides(ctx, r)
	word := value[strings.LastIndexAny(value, " \t\n")+1:]
	if word == "" {
		return nil
	}
	sk, index, err := s.cfg.Registry.Index(ctx, sk)
	if err != nil {
		return nil
	}
	for _, file := range index.Files {
		if strings.HasPrefix(file.Path, word) && !hides(sk, file.Path) {
			values = append(values, strings.TrimSuffix(value, word)+file.Path)
		}
	}
	return values
}
