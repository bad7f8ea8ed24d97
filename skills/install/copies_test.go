package install

import (
	"slices"
	"strings"
	"testing"
)

// A skill is installed once, under the name that it has, whatever else the source has of it; and a note tells
// what is left out and for what.
func TestCopies(t *testing.T) {
	m := newMachine(t)
	dir := write(t, t.TempDir(), map[string]string{
		".claude-plugin/marketplace.json": `{"name":"m","plugins":[{"name":"far","source":{"source":"url","url":"https://h.example/z"}}]}`,
		"plugins/c/p/plugin.json":         `{"name":"p"}`, "plugins/c/p/skills/a/SKILL.md": skillText("a"),
		"plugins/c/p/skills/b/SKILL.md": skillText("b"), "skills/a/SKILL.md": skillText("a"),
		"skills/b/SKILL.md": skillText("b") + "x\n", "skills/c/SKILL.md": skillText("c"), ".kiro/skills/c/SKILL.md": skillText("c") + "x\n",
	})
	i := m.open()
	if err := apply(t.Context(), i, Request{Source: dir, Skills: []string{"skills/a"}}); err != nil {
		t.Fatal(err)
	}
	plan, err := i.Add(t.Context(), Request{Source: dir, All: true})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	var got []string
	for _, c := range plan.Changes {
		got = append(got, c.Name)
	}
	if want := []string{"c", "p/b"}; !slices.Equal(got, want) {
		t.Errorf("installs %q, want %q", got, want)
	}
	notes := strings.Join(plan.Notes, "\n")
	for _, want := range []string{"1 of its skills are installed already",
		`an equal copy of these skills is left out: "skills/a"; "plugins/c/p/skills/a" is taken`,
		`2 other versions of these skills are left out, such as ".kiro/skills/c"; "skills/c" is taken`} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
}
