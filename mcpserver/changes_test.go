package mcpserver

import (
	"context"
	"testing"

	"github.com/skillsd/skillsd/skills/policy"
)

// Who sees a part of the catalogue is told of changes of that part alone, for they could otherwise
// tell when something that is hidden from them changes.
func TestHiddenChanges(t *testing.T) {
	skill := func(text string) string { return "---\nname: x\ndescription: For tests.\n---\n" + text }
	p := newProbe(t, map[string]string{"notes/SKILL.md": skill("a"), "secret/SKILL.md": skill("a"), "secret/more.md": "a"}, probeOptions{
		policy: policy.Config{Profiles: []policy.Profile{{Name: "office", Skills: []string{"notes", "later"}}}}})
	as := func(name, profile string) func(method string) bool {
		return p.server.changesFor(withPrincipal(context.Background(), policy.Principal{Name: name, Profile: profile}))
	}
	alice, bob := as("alice", "office"), as("bob", "")
	for _, step := range []struct {
		name   string
		files  map[string]string
		hidden bool
	}{
		{"a hidden skill changes", map[string]string{"secret/SKILL.md": skill("b")}, true},
		{"another file of it", map[string]string{"secret/more.md": "b"}, true},
		{"a hidden skill appears", map[string]string{"other/SKILL.md": skill("a")}, true},
		{"a skill changes", map[string]string{"notes/SKILL.md": skill("b")}, false},
		{"a skill appears", map[string]string{"later/SKILL.md": skill("a")}, false},
		{"nothing that is seen", map[string]string{"other/SKILL.md": skill("b")}, true},
	} {
		p.write(step.files)
		p.rescan()
		for _, method := range listMethods() {
			if got := alice(method); got == step.hidden {
				t.Errorf("%s: %s is told = %t", step.name, method, got)
			}
			if alice(method) {
				t.Errorf("%s: %s is told twice", step.name, method)
			}
			if !bob(method) {
				t.Errorf("%s: %s is not told to who sees all", step.name, method)
			}
		}
	}
}
