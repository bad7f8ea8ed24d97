package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
)

func TestExtend(t *testing.T) {
	s, dir := openStore(t)
	files := sample.files()
	for i := range files {
		files[i].Executable = files[i].Path == "empty"
	}
	base, err := s.Put(t.Context(), files, sample.open)
	if err != nil {
		t.Fatal(err)
	}
	more := map[string][]byte{"scripts/cache/a": []byte("1"), "b": []byte("2")}
	tree, err := s.Extend(t.Context(), base, more)
	if err != nil {
		t.Fatal(err)
	}
	want := append([]File{{Path: "scripts/cache/a", Digest: digest.FromString("1")},
		{Path: "b", Digest: digest.FromString("2")}}, sample.files()...)
	if tree.Digest != TreeDigest(want) || tree.Digest == base.Digest {
		t.Errorf("Extend = %s, want %s", tree.Digest, TreeDigest(want))
	}
	for name, mode := range map[string]fs.FileMode{"empty": 0o755, "SKILL.md": 0o644, "b": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, treesDir, tree.Digest.Encoded(), name)); err != nil ||
			info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", name, info, err, mode)
		}
	}
	if again, err := s.Tree(t.Context(), base.Digest); err != nil || len(again.Files) != len(sample) {
		t.Errorf("the base after it: %v, %v", again, err)
	}
	alone, err := s.Extend(t.Context(), nil, more)
	if err != nil || len(alone.Files) != 2 {
		t.Errorf("without a base: %v, %v", alone, err)
	}
}

func TestExtendRefuses(t *testing.T) {
	s, dir := openStore(t)
	base, err := s.Put(t.Context(), sample.files(), sample.open)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SKILL.md", "scripts", "scripts/lib", "empty/below", "SKILL.md/a/b", "../x",
		"/x", "a/../b", "", ".", "a//b", "a\x00b"} {
		if tree, err := s.Extend(t.Context(), base, map[string][]byte{name: nil}); err == nil {
			t.Errorf("%q: stored as %s", name, tree.Digest)
		}
	}
	trees, err := os.ReadDir(filepath.Join(dir, treesDir))
	if err != nil || len(trees) != 1 {
		t.Errorf("left %v, %v", trees, err)
	}
	// A base that is damaged is not copied.
	path := filepath.Join(dir, treesDir, base.Digest.Encoded(), "SKILL.md")
	if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, []byte("# y\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if tree, err := s.Extend(t.Context(), base, map[string][]byte{"new": nil}); err == nil {
		t.Errorf("of a damaged base: stored as %s", tree.Digest)
	}
	if err := os.Remove(path); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	} else if err == nil {
		if _, err := s.Extend(t.Context(), base, map[string][]byte{"new": nil}); err == nil {
			t.Error("of a base without a file: stored")
		}
	}
}
