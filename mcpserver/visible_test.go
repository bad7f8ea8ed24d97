package mcpserver

import (
	"fmt"
	"testing"

	"github.com/skillsd/skillsd/skills/policy"
)

// What was made for those who see a part of a catalogue goes with it: a server that follows changes on
// disk would otherwise hold on to every skill of the last catalogues.
func TestPartsGoWithTheirCatalogue(t *testing.T) {
	skill := func(text string) string { return "---\nname: x\ndescription: For tests.\n---\n" + text }
	p := newProbe(t, map[string]string{"notes/SKILL.md": skill(""), "secret/SKILL.md": skill("")}, probeOptions{
		policy: policy.Config{Profiles: []policy.Profile{{Name: "office", Skills: []string{"notes"}}, {Name: "none", Skills: []string{}}}}})
	for i := range 5 {
		p.write(map[string]string{"secret/SKILL.md": skill(fmt.Sprint(i))})
		p.rescan()
		office := scope{principal: policy.Principal{Name: "alice", Profile: "office"}}
		if seen := p.server.visible(office); seen != p.server.visible(office) {
			t.Error("what a scope sees is made twice")
		}
		p.server.visible(scope{principal: policy.Principal{Name: "bob", Profile: "none"}})
	}
	if n := len(p.server.seen.parts); n != 2 {
		t.Errorf("%d parts are kept, want those of two profiles", n)
	}
}
