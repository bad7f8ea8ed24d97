package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

func TestSkillOptionsApply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := "skill-program.exe"
	if err := os.WriteFile(filepath.Join(dir, program), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SET_BUT_EMPTY": "", "PATH": dir}
	a := &Process{Env: func(name string) (string, bool) { value, ok := env[name]; return value, ok }}
	var scan skills.ScanOptions
	opts := SkillOptions{Disabled: []string{"a"}, Pinned: []string{"b"}, NameOnly: []string{"c"},
		Validation: "strict"}
	if err := opts.Apply(&scan, a); err != nil {
		t.Fatal(err)
	}
	if !scan.StrictSkills || scan.Disabled[0] != "a" || scan.Pinned[0] != "b" || scan.NameOnly[0] != "c" {
		t.Errorf("apply gave %+v", scan)
	}
	if !scan.HasEnv("SET_BUT_EMPTY") || scan.HasEnv("HOME") || !scan.HasCommand(program) ||
		scan.HasCommand("no-"+program) {
		t.Error("HasEnv and HasCommand must look at the environment of the app only")
	}
	for _, wrong := range []SkillOptions{{Validation: "hard"},
		{Validation: "lenient", NameOnly: []string{""}}} {
		if err := wrong.Apply(&scan, a); err == nil {
			t.Errorf("apply of %+v = nil, want a usage error", wrong)
		}
	}
}
