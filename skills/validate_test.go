package skills_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

func TestValidateDir(t *testing.T) {
	t.Parallel()
	valid := "---\nname: x\ndescription: d\n---\n"
	tests := []struct {
		name string
		tree map[string]string
		dir  string
		want string // rule
	}{
		{"valid", map[string]string{"x/SKILL.md": valid}, "x", ""},
		{"lower case", map[string]string{"x/skill.md": valid}, "x", ""},
		{"upper case wins", map[string]string{"x/SKILL.md": valid, "x/skill.md": "text"}, "x", ""},
		{"trailing slash", map[string]string{"x/SKILL.md": valid}, "x/", ""},
		{"other name", map[string]string{"y/SKILL.md": valid}, "y", "V15"},
		{"missing", nil, "x", "V1"},
		{"file", map[string]string{"x": valid}, "x", "V2"},
		{"no SKILL.md", map[string]string{"x/README.md": valid}, "x", "V3"},
		{"mixed case", map[string]string{"x/Skill.MD": valid}, "x", "V3"},
		{"directory", map[string]string{"x/SKILL.md": "/"}, "x", "V3"},
		{"largest", map[string]string{"x/SKILL.md": valid + strings.Repeat("x", skills.MaxSkillFile-len(valid))}, "x", ""},
		{"too large", map[string]string{"x/SKILL.md": valid + strings.Repeat("x", skills.MaxSkillFile)}, "x", "V3"},
		{"encoding", map[string]string{"x/SKILL.md": "\xff"}, "x", "invalid-encoding"},
		{"link within", map[string]string{"x/SKILL.md": "-> doc/s.md", "x/doc/s.md": valid}, "x", ""},
		{"link outside", map[string]string{"x/SKILL.md": "-> ../s.md", "s.md": valid}, "x", "V3"},
		{"link to nothing", map[string]string{"x/SKILL.md": "-> s.md", "x/skill.md": valid}, "x", ""},
		{"link to itself", map[string]string{"x/SKILL.md": "-> SKILL.md"}, "x", "V3"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			writeTree(t, root, test.tree)
			got := skills.ValidateDir(context.Background(), filepath.Join(root, test.dir))
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || got[0].Rule != test.want) {
				t.Errorf("ValidateDir = %v, want %q", got, test.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got := skills.ValidateDir(ctx, t.TempDir()); len(got) != 1 || got[0].Rule != "V3" {
		t.Errorf("ValidateDir with an ended context = %v, want V3", got)
	}
}
