package skills

import (
	"encoding/json"
	"testing"

	"github.com/skillsd/skillsd/e2e/testtree"
)

// What is kept of a catalogue shows names and descriptions, and leads to no file, of its own or of the disk.
func TestOutlined(t *testing.T) {
	dir := t.TempDir()
	testtree.Write(t, dir, map[string]string{
		"a/SKILL.md":      "---\nname: first\ndescription: Is a.\nwhen_to_use: Now.\n---\nText.\n",
		"hidden/SKILL.md": "---\nname: hidden\ndescription: Is hidden.\ndisable-model-invocation: true\n---\nText.\n",
	})
	t.Chdir(dir)
	roots := []Root{{Dir: dir, Tier: TierOrg}}
	was, err := Scan(t.Context(), roots, &ScanOptions{NameOnly: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(was.Outline())
	if err != nil {
		t.Fatal(err)
	}
	var all []Outline
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	is := Outlined(roots, append(all, Outline{Path: "foreign", Root: 1}), &ScanOptions{NameOnly: []string{"a"}})
	if len(is.Skills) != 1 {
		t.Fatalf("there are %d skills, want a alone", len(is.Skills))
	}
	sk, old := is.Skills[0], was.Skill("a")
	if sk.Path != "a" || sk.Name() != "first" || sk.Description() != "Is a." || sk.Root.Tier != TierOrg || sk.Digest != old.Digest ||
		sk.Lead != old.Lead || sk.Frontmatter.WhenToUse != "Now." || !is.Status(sk).NameOnly {
		t.Errorf("the skill is %+v", sk)
	}
	if _, err := sk.Index(t.Context()); err == nil {
		t.Error("its files can be indexed")
	}
	if _, err := sk.Read(t.Context(), "SKILL.md", MaxSkillFile); err == nil {
		t.Error("its file can be read")
	}
	if len(is.Dirs())+len(is.SkillFiles()) > 0 {
		t.Error("it has places on the disk")
	}
}
