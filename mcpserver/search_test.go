package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// newTestServer serves some files as skills, without a transport.
func newTestServer(t *testing.T, files map[string]string, opts *skills.ScanOptions, cfg Config) *Server {
	t.Helper()
	s := unloadedServer(t, files, opts, cfg)
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// unloadedServer is that before it has read the skills.
func unloadedServer(t *testing.T, files map[string]string, opts *skills.ScanOptions, cfg Config) *Server {
	t.Helper()
	tree := fstest.MapFS{}
	for name, content := range files {
		tree[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
	dir := t.TempDir()
	trees, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Registry = skills.NewRegistry([]skills.Root{{Dir: "test", FS: tree}}, opts)
	rules := policy.Config{Tools: ReadMethods()}
	if strict := cfg.Roots == "strict"; strict {
		rules.Mode = policy.EnforceStrict
	}
	cfg.Logger, cfg.Version = slog.New(slog.DiscardHandler), "test"
	cfg.Sessions = session.New(session.Config{Registry: cfg.Registry, Policy: policy.New(rules), Trees: trees, Records: newRecords(t), Version: "test", Logger: cfg.Logger})
	return New(cfg)
}

// invented are n skills with descriptions of about 100 characters.
func invented(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("skill-%04d", i)
		files[name+"/SKILL.md"] = fmt.Sprintf("---\nname: %s\ndescription: Handles case number%d of the invented work, with care for what is asked and for what is not.\n---\nBody.\n", name, i)
	}
	return files
}

func toolNames(s *Server) []string {
	var names []string
	for _, tool := range s.visible(scope{principal: localPrincipal}).tools(client{}) {
		names = append(names, tool.Name)
	}
	return names
}

func TestSearchIsOfferedBeyondTheBudget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		skills int
		cfg    Config
		want   bool
	}{
		"few":                  {10, Config{}, false},
		"few, always":          {10, Config{AlwaysSearch: true}, true},
		"all fit":              {150, Config{}, false},
		"descriptions are cut": {60, Config{CatalogBudget: 4_096}, true},
		"names are left out":   {600, Config{CatalogBudget: 4_096}, true},
		"no catalogue":         {600, Config{NoCatalog: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t, invented(test.skills), nil, test.cfg)
			if got := slices.Contains(toolNames(s), ToolSearch); got != test.want {
				t.Errorf("tools are %v, search offered: want %v", toolNames(s), test.want)
			}
			description := s.visible(scope{principal: localPrincipal}).tools(client{})[0].Description
			before, list, _ := strings.Cut(description, catalogTitle)
			if len([]rune(list)) > cmp.Or(test.cfg.CatalogBudget, catalog.DefaultBudget) {
				t.Errorf("the catalogue has %d characters", len([]rune(list)))
			}
			if named := strings.Contains(before, ToolSearch); named != (test.want && name != "few, always") {
				t.Errorf("the first line is %q", before)
			}
			if left := strings.Contains(description, "more: use search_skills"); left != (name == "names are left out") {
				t.Errorf("the description ends %q", description[max(0, len(description)-80):])
			}
		})
	}
}

func callSearch(t *testing.T, s *Server, arguments map[string]any) (text string, isError bool) {
	t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.RawArguments = ToolSearch, raw
	result, err := s.tool(s.search)(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return result.Content[0].(mcp.TextContent).Text, result.IsError
}

func TestSearchTool(t *testing.T) {
	t.Parallel()
	files := invented(45)
	files["secret/SKILL.md"] = "---\nname: secret\ndescription: invented for users only\ndisable-model-invocation: true\n---\nB\n"
	files["lost/SKILL.md"] = "---\nname: lost\ndescription: invented and switched off\n---\nB\n"
	s := newTestServer(t, files, &skills.ScanOptions{Disabled: []string{"lost"}}, Config{AlwaysSearch: true})

	text, isError := callSearch(t, s, map[string]any{"query": "number17"})
	if isError || !strings.HasPrefix(text, "20 of 45 skills that match, best first:\nskill-0017: Handles case number17 of") {
		t.Errorf("the best match is not first: %q", text)
	}
	next, seen := "", map[string]bool{}
	cursor := regexp.MustCompile(`cursor "([^"]+)"`)
	for page := 0; ; page++ {
		arguments := map[string]any{"query": "invented"}
		if next != "" {
			arguments["cursor"] = next
		}
		text, isError := callSearch(t, s, arguments)
		if isError || page > 3 {
			t.Fatalf("page %d = %q", page, text)
		}
		for line := range strings.Lines(text) {
			if path, _, ok := strings.Cut(line, ": Handles"); ok {
				if seen[path] {
					t.Errorf("%s is found twice", path)
				}
				seen[path] = true
			}
		}
		match := cursor.FindStringSubmatch(text)
		if match == nil {
			break
		}
		next = match[1]
	}
	if len(seen) != 45 {
		t.Errorf("the pages hold %d skills, want 45", len(seen))
	}
	for _, hidden := range []string{"secret", "lost"} {
		if text, _ := callSearch(t, s, map[string]any{"query": hidden}); strings.Contains(text, hidden+":") {
			t.Errorf("a skill no model may see is found: %q", text)
		}
	}
	if text, isError := callSearch(t, s, map[string]any{"query": "inventid"}); isError || !strings.Contains(text, `Did you mean "invented"?`) {
		t.Errorf("a mistyped word = %q", text)
	}
	for name, arguments := range map[string]map[string]any{
		"no query": {}, "blank": {"query": "  "}, "long": {"query": strings.Repeat("a ", 2000)},
		"type": {"query": 7}, "foreign cursor": {"query": "invented", "cursor": "AAAA"}, "cursor of another query": {"query": "case", "cursor": next},
	} {
		if text, isError := callSearch(t, s, arguments); !isError || !strings.Contains(text, `"invalid_arguments"`) {
			t.Errorf("%s = %q, error %v", name, text, isError)
		}
	}
}

func TestCatalogueFollowsTheOperator(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, invented(300), &skills.ScanOptions{Pinned: []string{"skill-0299"}, NameOnly: []string{"skill-0298"}, Disabled: []string{"skill-0001"}}, Config{})
	description := s.visible(scope{principal: localPrincipal}).tools(client{})[0].Description
	_, list, _ := strings.Cut(description, catalogTitle)
	if !strings.HasPrefix(list, "skill-0299: Handles case number299") {
		t.Errorf("the pinned skill is not first: %q", list[:60])
	}
	if strings.Contains(list, "skill-0001") {
		t.Error("a disabled skill is in the catalogue")
	}
	s = newTestServer(t, invented(3), &skills.ScanOptions{NameOnly: []string{"skill-0001"}}, Config{AlwaysSearch: true})
	if text, _ := callSearch(t, s, map[string]any{"query": "number1"}); !strings.Contains(text, "\nskill-0001\n") {
		t.Errorf("a name-only skill is found as %q", text)
	}
	if _, list, _ := strings.Cut(s.visible(scope{principal: localPrincipal}).tools(client{})[0].Description, catalogTitle); !strings.Contains(list, "skill-0001\n") {
		t.Errorf("a name-only skill is shown as %q", list)
	}
}

// Who may not read skills may not search them.
func TestSearchAsksThePolicy(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, invented(3), nil, Config{AlwaysSearch: true, Roots: "strict"})
	if text, isError := callSearch(t, s, map[string]any{"query": "invented"}); !isError || !strings.Contains(text, "direct_command_required") {
		t.Errorf("search without evidence = %q", text)
	}
}
