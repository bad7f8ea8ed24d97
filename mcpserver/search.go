package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/search"
)

// maxHit is the maximum number of characters of a description in a hit.
const maxHit = 250

// search is search_skills. It finds only skills that the catalogue shows to models. It needs the right to
// read skills; a search is not recorded as a read of a skill.
func (s *Server) search(ctx context.Context, request mcp.CallToolRequest) (answer, error) {
	var args searchArgs
	if err := decodeArguments(request.Params.RawArguments, &args, "query"); err != nil {
		return answer{}, err
	}
	if c := s.earlierCatalogue(ctx, request.Params.Meta.AdditionalFields); c != nil {
		return c.find(args)
	}
	ses, call, err := s.open(ctx, request.Params.Name, request.Params.Meta.AdditionalFields, "")
	if err != nil {
		return answer{}, err
	}
	c := s.visible(scope{call.Principal, call.Profile}).catalogue()
	if s.cfg.NoCatalog {
		// The tool does not exist. In other modes it may have been listed before the number of skills was
		// known.
		return answer{}, unknownTool(ToolSearch)
	}
	if err := ses.Permit(ctx, session.PermitRequest{Call: call}); err != nil {
		return answer{}, err
	}
	return c.find(args)
}

// earlierCatalogue returns the catalogue of an earlier process, if the first scan is not done and the request
// may search it; else nil.
func (s *Server) earlierCatalogue(ctx context.Context, meta map[string]any) *catalogue {
	if s.awaitScan(ctx) {
		return nil
	}
	profile, err := s.profileOf(meta)
	if err != nil {
		return nil
	}
	principal, _ := principalOf(ctx)
	v := s.listed(scope{principal, profile})
	if v == nil || !v.offers.searches || !v.catalogue().searchable {
		return nil
	}
	return v.catalogue()
}

// find answers a search.
func (c *catalogue) find(args searchArgs) (answer, error) {
	found, err := c.search().Search(args.Query, search.Page{Cursor: args.Cursor})
	switch {
	case errors.Is(err, search.ErrQuery), errors.Is(err, search.ErrCursor):
		return answer{}, invalidArguments(err.Error(),
			"send a short query, and a cursor only with the query it was given for")
	case err != nil:
		return answer{}, err
	}
	return answer{text: c.renderFound(args.Query, &found)}, nil
}

// renderFound returns the text of a page of hits: one line each, best first, and how to continue.
func (c *catalogue) renderFound(query string, found *search.Result) string {
	var b strings.Builder
	suggestion := ""
	if found.Suggestion != "" {
		suggestion = fmt.Sprintf("Did you mean %q?", policy.Clip(found.Suggestion))
	}
	if found.Total == 0 {
		return strings.TrimSpace(fmt.Sprintf("No skill matches %q. %s", policy.Clip(query), suggestion))
	}
	if suggestion != "" {
		b.WriteString(suggestion + "\n")
	}
	fmt.Fprintf(&b, "%d of %d skills that match, best first:\n", len(found.Hits), found.Total)
	for _, hit := range found.Hits {
		options := catalog.Options{Budget: 2*len(hit.Skill.Path) + maxHit, NameOnly: c.options.NameOnly}
		b.WriteString(catalog.Render([]*skills.Skill{hit.Skill}, options) + "\n")
	}
	if found.Next != "" {
		fmt.Fprintf(&b, "More: call search_skills with the same query and cursor %q.\n", found.Next)
	}
	b.WriteString("Load one with load_skill and the path before the colon.")
	return b.String()
}
