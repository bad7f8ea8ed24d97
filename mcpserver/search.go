package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
	"github.com/skillsd/skillsd/skills/search"
)

// maxHit is how much of a skill's description a hit shows, in characters.
const maxHit = 250

// handleSearch is tools/call search_skills. It finds what the catalogue shows to models, nothing
// else. Whoever may not read skills may not search them; a search is no reading of one.
func (s *Server) handleSearch(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args SearchArgs
	if err := decodeArguments(request.Params.RawArguments, &args, false); err != nil {
		return s.toolError(ctx, err)
	}
	if err := required("query", args.Query); err != nil {
		return s.toolError(ctx, err)
	}
	if err := s.scanned(ctx); err != nil {
		return nil, err
	}
	sc, err := s.scoped(ctx, fieldsOf(request.Params.Meta))
	if err != nil {
		return s.toolError(ctx, err)
	}
	view := s.shelf(sc).view()
	if !view.searchable {
		// A tool that is not listed is not there; the library knows only that it may be.
		wire.SetError(ctx, &wire.Error{Code: mcp.INVALID_PARAMS, Message: "tool '" + ToolSearch + "' not found: tool not found"})
		return nil, errNotOffered
	}
	ses, call, err := s.open(ctx, request, "")
	if err == nil {
		err = ses.Permit(ctx, session.PermitRequest{Call: call})
	}
	if err != nil {
		return s.toolError(ctx, err)
	}
	found, err := view.search().Search(args.Query, search.Page{Cursor: args.Cursor})
	switch {
	case errors.Is(err, search.ErrQuery), errors.Is(err, search.ErrCursor):
		return s.toolError(ctx, invalidArguments(err.Error(), "send a short query, and a cursor only with the query it was given for"))
	case err != nil:
		return s.toolError(ctx, err)
	}
	return textResult(view.renderFound(args.Query, &found), nil), nil
}

var errNotOffered = errors.New("the tool is not offered")

// renderFound is the text of a page of hits: one line each, best first, and how to go on.
func (v *view) renderFound(query string, found *search.Result) string {
	var b strings.Builder
	suggestion := ""
	if found.Suggestion != "" {
		suggestion = fmt.Sprintf("Did you mean %q?", clip(found.Suggestion))
	}
	if found.Total == 0 {
		return strings.TrimSpace(fmt.Sprintf("No skill matches %q. %s", clip(query), suggestion))
	}
	if suggestion != "" {
		b.WriteString(suggestion + "\n")
	}
	fmt.Fprintf(&b, "%d of %d skills that match, best first:\n", len(found.Hits), found.Total)
	for _, hit := range found.Hits {
		options := catalog.Options{Budget: 2*len(hit.Skill.Path) + maxHit, NameOnly: v.nameOnly}
		b.WriteString(catalog.Render([]*skills.Skill{hit.Skill}, options) + "\n")
	}
	if found.Next != "" {
		fmt.Fprintf(&b, "More: call search_skills with the same query and cursor %q.\n", found.Next)
	}
	b.WriteString("Load one with load_skill and the path before the colon.")
	return b.String()
}
