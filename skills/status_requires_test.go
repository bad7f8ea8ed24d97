package skills_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
)

// A skill goes with those it requires, along the whole chain, and one that two skills offer stays while one
// of them does.
func TestRequiredSkills(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	files := map[string]string{
		"one/both/SKILL.md": withFields("both", "metadata:", "  requires: lack"),
		"two/both/SKILL.md": document("both", "both"),
		"needs/SKILL.md":    withFields("needs", "required-skills: both"),
		"self/SKILL.md":     withFields("self", "required-skills: [self, ring]"),
		"ring/SKILL.md":     withFields("ring", "requires:", "  skills: [self]"),
		"gone/SKILL.md":     withFields("gone", "required-skills: switched-off, nowhere"),
		"off/SKILL.md":      document("switched-off", "off"),
	}
	const chain = 300
	for i := range chain {
		files[fmt.Sprintf("c%03d/SKILL.md", i)] = withFields(fmt.Sprintf("c%03d", i), fmt.Sprintf("required-skills: c%03d", i+1))
	}
	writeTree(t, base, files)
	snapshot := scan(t, &skills.ScanOptions{Platform: "linux", Disabled: []string{"switched-off"},
		HasCommand: func(string) bool { return false }}, skills.Root{Dir: base, Tier: skills.TierUser})
	if diff := cmp.Diff([]string{"needs", "ring", "self", "two/both"}, paths(snapshot.Skills)); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	for _, sk := range snapshot.Withheld {
		want := map[string][]string{
			"gone": {`requires the skill "nowhere", which is not served`, `requires the skill "switched-off", which is not served`},
			"c299": {`requires the skill "c300", which is not served`},
			"c000": {`requires the skill "c001", which is not served`},
		}[sk.Path]
		if got := snapshot.Status(sk); want != nil && (got.State != skills.StateUnavailable || !slices.Equal(got.Reasons, want)) {
			t.Errorf("%s: %+v, want %q", sk.Path, got, want)
		}
	}
	if n := len(snapshot.Withheld); n != chain+3 {
		t.Errorf("%d are withheld, want %d", n, chain+3)
	}
}
