package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// The methods of the Skills extension, SEP-2640.
const (
	methodListSkills    = "skills/list"
	methodGetSkill      = "skills/get"
	methodReadDirectory = "resources/directory/read"
)

// metaUnlisted is the key, in the _meta of a skills/get result, of the reason why skills/list omits the
// entry.
const metaUnlisted = "skillsd/unlisted"

// maxPageBytes is the size at which a page of entries ends early: an entry is never split, and one entry may
// have 64 KiB of frontmatter and hundreds of files.
const maxPageBytes = 1 << 20

// permit asks the policy about a call that reads the catalogue: all of it if sk is nil, else one skill, or a
// path of it. A skill hidden from the session is treated as absent; hidden reports that case.
func (s *Server) permit(
	ctx context.Context, r *request, sk *skills.Skill, path string,
) (ses *session.Session, hidden bool, err error) {
	ses, call, err := s.open(ctx, r.Method, r.Meta, "")
	if err != nil {
		return nil, false, err
	}
	hidden = sk != nil && ses.Hides(sk, path)
	if hidden {
		sk, path = nil, ""
	}
	return ses, hidden, ses.Permit(ctx, session.PermitRequest{Call: call, Skill: sk, Path: path})
}

// listSkillsResult is the result of skills/list.
type listSkillsResult struct {
	mcp.PaginatedResult
	Skills [][]byte // marshalled entries
}

// MarshalJSON returns the result with the entries unchanged.
func (r *listSkillsResult) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil) }

// AppendJSON implements [wire.Appender].
func (r *listSkillsResult) AppendJSON(line []byte) ([]byte, error) {
	rest, err := json.Marshal(r.PaginatedResult)
	if err != nil {
		return nil, err
	}
	return appendBefore(line, rest, `"skills":[`, r.Skills, "]"), nil
}

// appendBefore appends the JSON object rest with one more member in front of its own: begin, the parts
// separated by commas, and end.
func appendBefore(line, rest []byte, begin string, parts [][]byte, end string) []byte {
	size := len(begin) + len(end) + len(rest) + len(parts) + 1
	for _, part := range parts {
		size += len(part)
	}
	line = append(append(slices.Grow(line, size+wire.AfterResult), '{'), begin...)
	for i, part := range parts {
		if i > 0 {
			line = append(line, ',')
		}
		line = append(line, part...)
	}
	line = append(line, end...)
	if len(rest) > len("{}") {
		line = append(line, ',')
	}
	return append(line, rest[1:]...)
}

// listSkills is skills/list: the entries of all skills that the extension allows and that are not hidden from
// models, in byte order of URI and paged by URI.
func (s *Server) listSkills(ctx context.Context, r *request) (any, error) {
	if _, _, err := s.permit(ctx, r, nil, ""); err != nil {
		return nil, err
	}
	var batch []*listedSkill
	// In this order, a walk during a reload neither loses nor repeats a skill that stays.
	rest, next := following(s.visible(r.scope).entries(), r.after, uriOf), ""
	for i := range rest {
		// Hosts show this list to models, and not all of them support disable-model-invocation.
		if unlisted(rest[i].skill) != "" {
			continue
		}
		if len(batch) == pageSize {
			next = batch[pageSize-1].uri
			break
		}
		batch = append(batch, &rest[i])
	}
	entries, err := s.entries(ctx, batch)
	if err != nil {
		return nil, err
	}
	result := &listSkillsResult{Skills: [][]byte{}}
	size := 0
	for i, made := range entries {
		// A page may be short: the files of an entry decide whether it is listed, and they are read only now.
		if made == nil || made.unlisted != "" {
			continue
		}
		size += len(made.json)
		if size > maxPageBytes && len(result.Skills) > 0 {
			next = batch[i-1].uri
			break
		}
		result.Skills = append(result.Skills, made.json)
	}
	result.NextCursor = encodeCursor(next)
	return result, nil
}

// entries returns the entries of some skills, read in parallel. A skill that is too large for the list is not
// read and gets nil. One with unreadable files gets nil too and does not fail the others.
//
// Errors: ctx.
func (s *Server) entries(ctx context.Context, listed []*listedSkill) ([]*entry, error) {
	entries := make([]*entry, len(listed))
	var missing errgroup.Group
	missing.SetLimit(runtime.GOMAXPROCS(0))
	for i, b := range listed {
		entries[i] = b.made.Load()
		if entries[i] != nil {
			continue
		}
		missing.Go(func() error {
			// Indexing it would exceed the cost of a page.
			if big, err := b.skill.Oversized(ctx); err == nil && big {
				return nil
			}
			var err error
			entries[i], err = s.entry(ctx, b)
			if err != nil && ctx.Err() == nil {
				path := slog.String("skill", b.skill.Path)
				s.cfg.Logger.WarnContext(ctx, "skill not listed", path, tint.Err(err))
			}
			return ctx.Err()
		})
	}
	return entries, missing.Wait()
}

// getSkillResult is the result of skills/get.
type getSkillResult struct {
	mcp.CacheableResult
	Skill []byte // marshalled entry
}

// MarshalJSON returns the result with the entry unchanged.
func (r *getSkillResult) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil) }

// AppendJSON implements [wire.Appender].
func (r *getSkillResult) AppendJSON(line []byte) ([]byte, error) {
	rest, err := json.Marshal(r.CacheableResult)
	if err != nil {
		return nil, err
	}
	return appendBefore(line, rest, `"skill":`, [][]byte{r.Skill}, ""), nil
}

// getSkill is skills/get: the entry of any served skill, listed or not. For an unlisted one, the _meta of the
// result has the reason. A skill hidden from models is returned only if the session has loaded it.
func (s *Server) getSkill(ctx context.Context, r *request) (any, error) {
	asked := s.visible(r.scope).at(r.URI)
	var sk *skills.Skill
	path := ""
	if asked != nil {
		sk, path = asked.skill, asked.skill.File
	}
	// Policy is checked first: a caller without the right to read must not learn which skills exist.
	ses, hidden, err := s.permit(ctx, r, sk, path)
	if err != nil {
		return nil, err
	}
	unknown := &session.Error{
		Code: fault.CodeSkillNotFound, Message: fmt.Sprintf("no skill is served at %q", policy.Clip(r.URI)),
		Remedy: "send the URI of a skill's SKILL.md; skills/list has them",
	}
	if asked == nil || hidden {
		return nil, unknown
	}
	made, err := s.entry(ctx, asked)
	if err != nil {
		return nil, unreadable(asked.skill, err)
	}
	// An edit may have hidden the skill since the item was made.
	if ses.Hides(made.skill, path) {
		return nil, unknown
	}
	result := &getSkillResult{Skill: made.json}
	if made.unlisted != "" {
		result.EnsureResultMeta().SetMetaField(metaUnlisted, made.unlisted)
	}
	return result, nil
}

// unreadable is the error for a skill whose files cannot be listed any more.
func unreadable(sk *skills.Skill, err error) error {
	return &session.Error{
		Code: fault.CodeResourceNotFound, Message: fmt.Sprintf("the files of %q cannot be read",
			policy.Clip(sk.Path)),
		Remedy: "list the skills again", Err: err,
	}
}

// entry is one skill in the Skills extension.
type entry struct {
	skill    *skills.Skill
	json     json.RawMessage
	unlisted string // why skills/list omits it; empty if it does not
}

// skillEntry is the extension's Skill.
type skillEntry struct {
	URI         string          `json:"uri"`
	Frontmatter json.RawMessage `json:"frontmatter"`
	Resources   []skillResource `json:"resources"`
}

// skillResource is the extension's SkillResource.
type skillResource struct {
	URI    string        `json:"uri"`
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"`
}

// entry returns the skill's entry, which is made once. Making it reads the skill's files.
//
// Errors: the errors of [skills.Registry.Index].
func (s *Server) entry(ctx context.Context, b *listedSkill) (*entry, error) {
	if made := b.made.Load(); made != nil {
		return made, nil
	}
	sk, index, err := s.cfg.Registry.Index(ctx, b.skill)
	if err != nil {
		return nil, err
	}
	shown := skillEntry{URI: b.uri, Frontmatter: sk.Frontmatter.JSON, Resources: []skillResource{}}
	snapshot := s.cfg.Registry.Snapshot()
	nested := func(by *skills.Skill) bool { return by.Path != sk.Path }
	for _, file := range index.Files {
		// Leave out the files of a nested skill that is hidden from models: not every session may read them.
		if !slices.ContainsFunc(snapshot.HiddenBy(sk, file.Path), nested) {
			shown.Resources = append(shown.Resources,
				skillResource{URI: sk.URI(file.Path), Digest: file.Digest, Size: file.Size})
		}
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		return nil, fmt.Errorf("marshal the entry of %s: %w", b.skill.Path, err)
	}
	made := &entry{skill: sk, json: raw, unlisted: unlisted(sk)}
	if made.unlisted == "" && !index.Publishable {
		made.unlisted = reason(index.Diagnostics)
	}
	b.made.Store(made)
	return made, nil
}

// unlisted returns why skills/list omits a skill because of its SKILL.md; empty if it does not.
func unlisted(sk *skills.Skill) string {
	switch {
	case sk.Hidden():
		return "disable-model-invocation is set"
	case sk.File != skillFile:
		return "its file is not named " + skillFile
	case !sk.Form.Publishable:
		return reason(sk.Diagnostics)
	}
	return ""
}

func reason(diagnostics []skills.Diagnostic) string {
	for _, d := range diagnostics {
		if d.Code == skills.CodeNotPublishable {
			return d.Detail
		}
	}
	return "the Skills extension does not allow it"
}
