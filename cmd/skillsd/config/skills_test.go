package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

func TestHasCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: executable bits of files")
	}
	dir := t.TempDir()
	for _, name := range []string{"first", "second", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte("#!/bin/sh\nexit 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	program("first/data", 0o644)
	program("second/tool", 0o755)
	program("second/data", 0o755)
	program("other/hidden", 0o755)
	if err := os.Mkdir(filepath.Join(dir, "first", "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../second/tool", filepath.Join(dir, "first", "link")); err != nil {
		t.Fatal(err)
	}
	// The working directory is not the operator's choice: what it holds is not on PATH.
	program("here/relative/local", 0o755)
	program("here/local", 0o755)
	t.Chdir(filepath.Join(dir, "here"))
	path := strings.Join([]string{"", ".", "relative", filepath.Join(dir, "first"), filepath.Join(dir, "second")}, string(os.PathListSeparator))
	tests := []struct {
		name string
		want bool
	}{
		{"tool", true},
		{"link", true},
		{"data", true}, // the second directory has an executable one
		{"folder", false},
		{"hidden", false},
		{"local", false},
		{"", false},
		{".", false},
		{"..", false},
		{"../second/tool", false},
		{filepath.Join(dir, "other", "hidden"), false},
		{"to\x00ol", false},
		{strings.Repeat("x", 5000), false},
	}
	for _, tt := range tests {
		if got := hasCommand(path, "", tt.name); got != tt.want {
			t.Errorf("hasCommand(%.40q) = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestSkillOptionsApply(t *testing.T) {
	t.Parallel()
	a := &Process{Env: func(name string) (string, bool) { return "", name == "SET_BUT_EMPTY" }}
	var scan skills.ScanOptions
	opts := SkillOptions{Disabled: []string{"a"}, Pinned: []string{"b"}, NameOnly: []string{"c"}, Validation: "strict"}
	if err := opts.Apply(&scan, a); err != nil {
		t.Fatal(err)
	}
	if !scan.StrictSkills || scan.Disabled[0] != "a" || scan.Pinned[0] != "b" || scan.NameOnly[0] != "c" {
		t.Errorf("apply gave %+v", scan)
	}
	if !scan.HasEnv("SET_BUT_EMPTY") || scan.HasEnv("NOT_SET") || scan.HasCommand("sh") {
		t.Error("HasEnv and HasCommand must look at the environment of the app only")
	}
	for _, wrong := range []SkillOptions{{Validation: "hard"}, {Validation: "lenient", NameOnly: []string{""}}} {
		if err := wrong.Apply(&scan, a); err == nil {
			t.Errorf("apply of %+v = nil, want a usage error", wrong)
		}
	}
}
