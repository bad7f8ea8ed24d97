package mcpserver

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/skills/policy"
)

// TestHiddenChanges makes sure that who sees a part of the catalogue hears of changes of that part alone, for they
// could otherwise tell when something that is hidden from them changes, and that nobody hears of tools and
// prompts that are described as before.
func TestHiddenChanges(t *testing.T) {
	skill := func(description, text string) string {
		return "---\nname: x\ndescription: " + description + "\n---\n" + text
	}
	p := newProbe(t, map[string]string{"notes/SKILL.md": skill("A.", "a"), "secret/SKILL.md": skill("A.", "a"), "secret/more.md": "a"}, probeOptions{
		policy: policy.Config{Profiles: []policy.Profile{{Name: "office", Skills: []string{"notes", "later"}}}}})
	p.server.toolsEvery, p.server.cfg.CatalogBudget = 0, 1_000
	as := func(name, profile, client string) func() string {
		ctx, _, end := begun(t, withPrincipal(t.Context(), policy.Principal{Name: name, Profile: profile}), client)
		t.Cleanup(end)
		changed := p.server.changesFor(ctx)
		return func() string {
			var told []string
			for _, method := range listMethods() {
				if changed(method) {
					told = append(told, strings.Split(method, "/")[1])
				}
			}
			return strings.Join(told, " ")
		}
	}
	alice, bob, claude := as("alice", "office", ""), as("bob", "", "gemini-cli-mcp-client"), as("carol", "", "claude-code")
	for _, step := range []struct {
		name               string
		files              map[string]string
		alice, bob, claude string
	}{
		{"a hidden skill changes", map[string]string{"secret/SKILL.md": skill("A.", "b")}, "", "resources", "resources"},
		{"another file of it", map[string]string{"secret/more.md": "b"}, "", "resources", "resources"},
		{"a hidden description", map[string]string{"secret/SKILL.md": skill("B.", "b")}, "", "tools resources prompts", "resources prompts"},
		{"a hidden skill appears", map[string]string{"other/SKILL.md": skill("A.", "a")}, "", "tools resources prompts", "resources prompts"},
		{"a skill changes", map[string]string{"notes/SKILL.md": skill("A.", "b")}, "resources", "resources", "resources"},
		{"a description", map[string]string{"notes/SKILL.md": skill("B.", "b")}, "tools resources prompts", "tools resources prompts", "resources prompts"},
		{"a skill appears", map[string]string{"later/SKILL.md": skill("A.", "a")}, "tools resources prompts", "tools resources prompts", "resources prompts"},
		{"a skill with a long description", map[string]string{"later/SKILL.md": skill(strings.Repeat("word ", 250), "a")},
			"tools resources prompts", "tools resources prompts", "tools resources prompts"}, // search_skills appears
		{"nothing that is seen", map[string]string{"other/SKILL.md": skill("A.", "b")}, "", "resources", "resources"},
	} {
		p.write(step.files)
		p.rescan()
		if got := []string{alice(), bob(), claude()}; !slices.Equal(got, []string{step.alice, step.bob, step.claude}) {
			t.Errorf("%s: told are %q", step.name, got)
		}
		if got := alice(); got != "" {
			t.Errorf("%s: %s is told twice", step.name, got)
		}
	}
}

// TestToolsOnceAMinute makes sure that a client does not lose what its model has cached at each change, and hears
// of the last one.
func TestToolsOnceAMinute(t *testing.T) {
	p := newProbe(t, map[string]string{"notes/SKILL.md": "---\nname: notes\ndescription: A.\n---\n"}, probeOptions{})
	p.server.toolsEvery = time.Hour
	changed := p.server.changesFor(context.Background())
	for i, want := range []bool{true, false, false} {
		p.write(map[string]string{"notes/SKILL.md": "---\nname: notes\ndescription: " + strings.Repeat("B", i+1) + ".\n---\n"})
		p.rescan()
		if got := changed(mcp.MethodNotificationToolsListChanged); got != want {
			t.Errorf("change %d is told: %v", i, got)
		}
		if p.server.asksLater.Load() == want {
			t.Errorf("change %d is told later: %v", i, want)
		}
	}
	p.server.toolsEvery = 0
	if !changed(mcp.MethodNotificationToolsListChanged) {
		t.Error("the last change is not told")
	}
}
