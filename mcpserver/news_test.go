package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

// Each listener hears of what changed since its list, once, and of each skill what became of it.
func TestNews(t *testing.T) {
	now := snapshotOf()
	current := func() *skills.Snapshot { return now }
	n := new(news)
	heard := func(listener string) (all []string) {
		changes, cut := n.since(listener, current)
		if cut {
			all = append(all, "cut")
		}
		for _, c := range changes {
			all = append(all, fmt.Sprintf("%s %v %v", c.path, c.was != nil, c.is != nil))
		}
		return all
	}
	check := func(listener string, want ...string) {
		t.Helper()
		if got := heard(listener); !slices.Equal(got, want) {
			t.Errorf("%s hears of %q, want %q", listener, got, want)
		}
	}
	now = snapshotOf("a", "1", "b", "1")
	n.listed("lists once", true, current)
	n.listed("lists again", false, current)
	now = snapshotOf("a", "2", "c", "1")
	check("never listed")
	check("lists once", "a true true", "c false true", "b true false")
	check("lists once")
	n.listed("lists again", false, current)
	check("lists again")
	now = snapshotOf("a", "2", "c", "1", "d", "1")
	n.listed("lists once", true, current) // it keeps what it has
	n.listed("lists again", false, current)
	check("lists again")
	check("lists once", "d false true")
	now = snapshotOf("a", "2", "c", "1")
	check("never listed") // it came and went
	now = snapshotOf("a", "2", "c", "1", "d", "1")
	check("lists once") // it went and came back
	for i := range maxChanges {
		now = snapshotOf("e", fmt.Sprint(i))
		n.listed("another", false, current)
	}
	if got := heard("lists again"); !slices.Contains(got, "cut") {
		t.Errorf("after very many changes it hears of %q", got)
	}
	for i := range 2 * maxListeners {
		n.listed(fmt.Sprint(i), false, current)
	}
	if len(n.heard) > maxListeners || len(n.log) > maxChanges {
		t.Errorf("%d listeners and %d changes are remembered", len(n.heard), len(n.log))
	}
}

// A call that began with an earlier snapshot does not take back what a concurrent call has reported.
func TestNewsInOrder(t *testing.T) {
	var now atomic.Pointer[skills.Snapshot]
	now.Store(snapshotOf("a", "1"))
	n := new(news)
	n.listed("client", true, now.Load)
	var first, second []change
	done := make(chan struct{})
	first, _ = n.since("client", func() *skills.Snapshot {
		earlier := now.Swap(snapshotOf("a", "1", "b", "1"))
		go func() {
			defer close(done)
			second, _ = n.since("client", now.Load)
		}()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // it waits for this call
		}
		return earlier
	})
	<-done
	if len(first) != 0 || len(second) != 1 || second[0].path != "b" || second[0].is == nil {
		t.Errorf("the calls report %v and %v, want nothing and the added b", first, second)
	}
}

// snapshotOf returns a snapshot of skills with contents.
func snapshotOf(pairs ...string) *skills.Snapshot {
	var files []skills.Outline
	for i := 0; i < len(pairs); i += 2 {
		files = append(files, skills.Outline{Path: pairs[i], Digest: digest.FromString(pairs[i+1]), Description: "Is of the number " + pairs[i+1] + strings.Repeat(" and more", 20)})
	}
	return skills.Outlined([]skills.Root{{}}, files, nil)
}

// Until the first scan is done, a client is shown and searches what an earlier process found, or, if that is not
// known, has all tools; its next result has what the scan found. No file is read of what was found earlier.
func TestEarlierCatalogue(t *testing.T) {
	for _, known := range []bool{true, false} {
		cfg := Config{}
		if known {
			cfg.Last = func() *skills.Snapshot { return snapshotOf(manyPairs(400)...) }
		}
		s := unloadedServer(t, map[string]string{"a/SKILL.md": "---\nname: a\ndescription: Is a.\n---\nText.\n"}, nil, cfg)
		s.waits = s.waits.Add(-scanPatience)
		list := func() map[string]string {
			r := &request{}
			r.scope = scope{principal: localPrincipal}
			result, err := s.listTools(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			described := map[string]string{}
			for _, tool := range result.(*mcp.ListToolsResult).Tools {
				described[tool.Name] = tool.Description
			}
			return described
		}
		tools := list()
		if strings.Contains(tools[ToolLoad], "skill-7") != known || tools[ToolSearch] == "" || tools[ToolRead] == "" {
			t.Errorf("known %v: before the scan the tools are %q", known, tools)
		}
		search := func(ctx context.Context) string {
			request := mcp.CallToolRequest{}
			request.Params.Name, request.Params.RawArguments = ToolSearch, []byte(`{"query":"number"}`)
			result, err := s.tools[ToolSearch](ctx, request)
			if err != nil {
				return err.Error()
			}
			var b strings.Builder
			for _, content := range result.Content {
				b.WriteString(content.(mcp.TextContent).Text + "\n")
			}
			return b.String()
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if text := search(ended); strings.Contains(text, "skill-") != known {
			t.Errorf("known %v: a search before the scan finds %q", known, text)
		}
		if err := s.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if text := search(t.Context()); !strings.Contains(text, `added "a"`) || strings.Contains(text, "removed") != known || strings.Count(text, "[Skills changed") != 1 {
			t.Errorf("known %v: after the scan the next result is %q", known, text)
		}
		if text := search(t.Context()); strings.Contains(text, "[Skills changed") {
			t.Errorf("known %v: once more: %q", known, text)
		}
	}
}

func manyPairs(n int) (pairs []string) {
	for i := range n {
		pairs = append(pairs, fmt.Sprintf("skill-%d", i), "number")
	}
	return pairs
}
