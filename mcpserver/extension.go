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

// metaUnlisted is the key of a skills/get result's _meta that says why skills/list has no such entry.
const metaUnlisted = "skillsd/unlisted"

// maxPageBytes is where a page of entries ends early: an entry is never split, and one alone may
// hold 64 KiB of frontmatter and hundreds of files.
const maxPageBytes = 1 << 20

// permit asks the policy about a call that reads the catalogue: all of it if sk is nil, else one skill, or a
// path of it. What the session hides counts as nothing, as if there were no such skill; hidden says so.
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
	Skills [][]byte // made by encoding/json
}

// MarshalJSON returns the result with its entries as they were marshalled.
func (r *listSkillsResult) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil) }

// AppendJSON implements [wire.Appender].
func (r *listSkillsResult) AppendJSON(line []byte) ([]byte, error) {
	rest, err := json.Marshal(r.PaginatedResult)
	if err != nil {
		return nil, err
	}
	return appendBefore(line, rest, `"skills":[`, r.Skills, "]"), nil
}

// appendBefore appends the JSON object rest with another member before its own, which is made of parts with
// commas between them.
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

// listSkills is skills/list: the entry of every skill that the extension allows and that does not
// hide itself from models, in byte order of URI and paged by URI, so that a walk during a reload
// neither loses nor repeats a skill that stays. Hosts show models what this list holds, and not all
// of them know disable-model-invocation.
func (s *Server) listSkills(ctx context.Context, r *request) (any, error) {
	if _, _, err := s.permit(ctx, r, nil, ""); err != nil {
		return nil, err
	}
	var batch []*listedSkill
	rest, next := following(s.visible(r.scope).entries(), r.after, uriOf), ""
	for i := range rest {
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
		// Only making an entry shows whether its files let it be listed, so a page may be short.
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

// entries returns the entries of some skills, made in parallel. A skill that is too large for the list
// is not read and has none; one whose files cannot be read has none and costs the others nothing.
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
			// Indexing it would read more than one page may cost.
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
	Skill []byte // made by encoding/json
}

// MarshalJSON returns the result with the entry as it was marshalled.
func (r *getSkillResult) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil) }

// AppendJSON implements [wire.Appender].
func (r *getSkillResult) AppendJSON(line []byte) ([]byte, error) {
	rest, err := json.Marshal(r.CacheableResult)
	if err != nil {
		return nil, err
	}
	return appendBefore(line, rest, `"skill":`, [][]byte{r.Skill}, ""), nil
}

// getSkill is skills/get: the entry of any skill that is served, listed or not. If it is not, the _meta of
// the result says why. A skill that hides itself from models has an entry where it was loaded.
func (s *Server) getSkill(ctx context.Context, r *request) (any, error) {
	asked := s.visible(r.scope).at(r.URI)
	var sk *skills.Skill
	path := ""
	if asked != nil {
		sk, path = asked.skill, asked.skill.File
	}
	// Policy comes first: a caller that may not read must not learn which skills exist.
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
	if ses.Hides(made.skill, path) { // since an edit
		return nil, unknown
	}
	result := &getSkillResult{Skill: made.json}
	if made.unlisted != "" {
		result.EnsureResultMeta().SetMetaField(metaUnlisted, made.unlisted)
	}
	return result, nil
}

// unreadable is the error of a skill whose files cannot be listed: it is served no longer.
func unreadable(sk *skills.Skill, err error) error {
	return &session.Error{
		Code: fault.CodeResourceNotFound, Message: fmt.Sprintf("the files of %q cannot be read",
			policy.Clip(sk.Path)),
		Remedy: "list the skills again", Err: err,
	}
}
