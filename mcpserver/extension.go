package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
)

// The methods of the Skills extension, SEP-2640.
const (
	methodListSkills    = "skills/list"
	methodGetSkill      = "skills/get"
	methodReadDirectory = "resources/directory/read"
)

// metaUnlisted is the key of a skills/get result's _meta that says why skills/list has no such
// entry.
const metaUnlisted = "skillsd/unlisted"

// maxPageBytes is where a page of entries ends early: an entry is never split, and one alone may
// hold 64 KiB of frontmatter and hundreds of files.
const maxPageBytes = 1 << 20

// extensions declares the Skills extension, in both eras alike. A client need not declare it.
func extensions() map[string]any {
	return map[string]any{"io.modelcontextprotocol/skills": map[string]any{"directoryRead": true}}
}

// pageParams are the params of the lists.
type pageParams struct {
	URI    string         `json:"uri"`
	Cursor string         `json:"cursor"`
	Meta   map[string]any `json:"_meta"`
}

// parsePage reads the params of a list and the URI or name its page starts after.
func parsePage(r *wire.Request) (params pageParams, after string, err error) {
	if err := unmarshalParams(r.Params, &params); err != nil {
		return params, "", err
	}
	after, err = decodeCursor(params.Cursor)
	return params, after, err
}

func encodeCursor(last string) mcp.Cursor {
	if last == "" {
		return ""
	}
	return mcp.Cursor(base64.RawURLEncoding.EncodeToString([]byte(last)))
}

// permit asks the policy about a call that reads the catalogue.
func (s *Server) permit(ctx context.Context, method string, meta map[string]any, about session.PermitRequest) error {
	call, err := s.callOf(ctx, method, meta)
	if err != nil {
		return err
	}
	about.Call = call
	ses, err := s.cfg.Sessions.Open(ctx, call)
	if err != nil {
		return err
	}
	return ses.Permit(ctx, about)
}

// listSkillsResult is the result of skills/list.
type listSkillsResult struct {
	mcp.PaginatedResult
	Skills []json.RawMessage `json:"skills"`
}

var _ wire.Appender = listSkillsResult{}

// AppendResult appends the result with its entries as they were marshalled.
func (r listSkillsResult) AppendResult(dst []byte) ([]byte, error) {
	rest, err := json.Marshal(r.PaginatedResult)
	if err != nil {
		return nil, err
	}
	size := len(rest) + len(`{"skills":[],}`)
	for _, made := range r.Skills {
		size += len(made) + len(",")
	}
	dst = append(slices.Grow(dst, size), `{"skills":[`...)
	for i, made := range r.Skills {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, made...)
	}
	dst = append(dst, ']')
	if len(rest) > len("{}") {
		dst = append(dst, ',')
	}
	return append(dst, rest[1:]...), nil
}

// listSkills is skills/list: the entry of every skill that the extension allows and that does not
// hide itself from models, in byte order of URI and paged by URI, so that a walk during a reload
// neither loses nor repeats a skill that stays. Hosts show models what this list holds, and not all
// of them know disable-model-invocation.
func (s *Server) listSkills(ctx context.Context, r *wire.Request) (any, error) {
	params, after, err := parsePage(r)
	if err != nil {
		return nil, err
	}
	if err := s.scanned(ctx); err != nil {
		return nil, err
	}
	if err := s.permit(ctx, r.Method, params.Meta, session.PermitRequest{}); err != nil {
		return nil, s.methodError(ctx, err, mcp.INVALID_PARAMS)
	}
	sc, err := s.scoped(ctx, params.Meta)
	if err != nil {
		return nil, s.methodError(ctx, err, mcp.INVALID_PARAMS)
	}
	page, next, err := s.skillPage(ctx, s.shelf(sc), after)
	if err != nil {
		return nil, s.methodError(ctx, err, mcp.INVALID_PARAMS)
	}
	result := listSkillsResult{Skills: page}
	result.NextCursor = encodeCursor(next)
	return result, nil
}

// skillPage returns the listed entries whose URI follows after, at most one page, and the URI to
// continue after when there may be more.
func (s *Server) skillPage(ctx context.Context, sh *shelf, after string) (page []json.RawMessage, next string, err error) {
	books := sh.books()
	at, found := slices.BinarySearchFunc(books, after, func(b book, uri string) int { return strings.Compare(b.uri, uri) })
	if found {
		at++
	}
	page = []json.RawMessage{}
	for size, last := 0, after; ; {
		batch := make([]*book, 0, pageSize-len(page))
		for ; at < len(books) && len(batch) < cap(batch); at++ {
			if unlisted(books[at].skill) == "" {
				batch = append(batch, &books[at])
			}
		}
		if len(batch) == 0 {
			return page, "", nil
		}
		entries, err := s.entries(ctx, batch)
		if err != nil {
			return nil, "", err
		}
		for i, made := range entries {
			if made != nil && made.unlisted == "" {
				if size += len(made.json); size > maxPageBytes && len(page) > 0 {
					return page, last, nil
				}
				page = append(page, made.json)
			}
			last = batch[i].uri
		}
		if len(page) == pageSize && at < len(books) {
			return page, last, nil
		}
	}
}

// entries returns the entries of some skills, made in parallel. A skill that is too large for the list
// is not read and has none; one whose files cannot be read has none and costs the others nothing.
//
// Errors: those of ctx.
func (s *Server) entries(ctx context.Context, books []*book) ([]*entry, error) {
	entries := make([]*entry, len(books))
	var missing errgroup.Group
	missing.SetLimit(runtime.GOMAXPROCS(0))
	for i, b := range books {
		if entries[i] = b.made.Load(); entries[i] != nil {
			continue
		}
		missing.Go(func() error {
			if big, err := b.skill.Oversized(ctx); err == nil && big {
				return nil
			}
			made, err := s.entry(ctx, b)
			if err != nil && ctx.Err() == nil {
				s.cfg.Logger.WarnContext(ctx, "skill not listed", slog.String("skill", b.skill.Path), tint.Err(err))
			}
			entries[i] = made
			return ctx.Err()
		})
	}
	return entries, missing.Wait()
}

// getSkillResult is the result of skills/get.
type getSkillResult struct {
	mcp.CacheableResult
	Skill json.RawMessage `json:"skill"`
}

// getSkill is skills/get: the entry of any skill that is served, listed or not. For one that is not
// the _meta of the result says why.
func (s *Server) getSkill(ctx context.Context, r *wire.Request) (any, error) {
	var params pageParams
	if err := unmarshalParams(r.Params, &params); err != nil {
		return nil, err
	}
	if err := s.scanned(ctx); err != nil {
		return nil, err
	}
	sc, err := s.scoped(ctx, params.Meta)
	if err != nil {
		return nil, s.methodError(ctx, err, mcp.INVALID_PARAMS)
	}
	b := s.shelf(sc).book(params.URI)
	about := session.PermitRequest{}
	if b != nil {
		about.Skill, about.Path = b.skill, b.skill.File
	}
	if err := s.permit(ctx, r.Method, params.Meta, about); err != nil {
		return nil, s.methodError(ctx, err, mcp.INVALID_PARAMS)
	}
	if b == nil {
		return nil, s.methodError(ctx, &session.Error{Code: session.CodeSkillNotFound, Message: fmt.Sprintf("no skill is served at %q", clip(params.URI)),
			Remedy: "send the URI of a skill's SKILL.md; skills/list has them"}, mcp.INVALID_PARAMS)
	}
	made, err := s.entry(ctx, b)
	if err != nil {
		return nil, s.methodError(ctx, unreadable(b.skill, err), mcp.INVALID_PARAMS)
	}
	result := getSkillResult{Skill: made.json}
	if made.unlisted != "" {
		result.EnsureResultMeta().SetMetaField(metaUnlisted, made.unlisted)
	}
	return result, nil
}

// unreadable is the error of a skill whose files cannot be listed: it is served no longer.
func unreadable(sk *skills.Skill, err error) error {
	return &session.Error{Code: session.CodeResourceNotFound, Message: fmt.Sprintf("the files of %q cannot be read", clip(sk.Path)),
		Remedy: "list the skills again", Err: err}
}
