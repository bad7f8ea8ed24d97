package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
)

// texts is a tree as a test describes it.
type texts map[string]string

func (c texts) files() []File {
	var files []File
	for path, data := range c {
		files = append(files, File{Path: path, Size: int64(len(data)), Digest: digest.FromString(data)})
	}
	return files
}

func (c texts) open(path string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(c[path])), nil
}

func openStore(t *testing.T) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, dir
}

var sample = texts{"SKILL.md": "# x\n", "scripts/run.sh": "echo hi\n", "scripts/lib/a.sh": "true\n",
	"empty": ""}

// The digest is what `sha256sum` over the files prints, hashed: anyone can recompute it.
func TestTreeDigest(t *testing.T) {
	files := []File{
		{Path: "b", Digest: digest.FromString("2")}, {Path: "a/z", Digest: digest.FromString("1")},
		{Path: "a.txt", Digest: digest.FromString("0")},
	}
	var lines bytes.Buffer
	for _, file := range []File{files[2], files[1], files[0]} {
		fmt.Fprintf(&lines, "%s  %s\n", file.Digest.Encoded(), file.Path)
	}
	if got, want := TreeDigest(files), digest.FromBytes(lines.Bytes()); got != want {
		t.Errorf("TreeDigest = %s, want %s", got, want)
	}
}

func TestPut(t *testing.T) {
	s, dir := openStore(t)
	tree, err := s.Put(t.Context(), sample.files(), sample.open)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Digest != TreeDigest(sample.files()) || len(tree.Files) != len(sample) {
		t.Errorf("Put = %s with %d files", tree.Digest, len(tree.Files))
	}
	for path, want := range sample {
		if got, err := tree.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("ReadFile(%q) = %q, %v, want %q", path, got, err, want)
		}
	}
	handle, err := tree.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if names, err := handle.Readdirnames(-1); err != nil || len(names) != 3 {
		t.Errorf("the handle lists %q, %v", names, err)
	}
	err = filepath.WalkDir(s.Dir(), func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || name == s.Dir() {
			return err
		}
		want := fs.FileMode(0o644)
		if entry.IsDir() {
			want = 0o755
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the store has mode %v, %v, want 0700", info.Mode(), err)
	}
}

// Only bytes with the digest they are said to have get into the store. Another process that replaces a
// corrupt tree takes away the one that was just stored.
func TestPutStoresAnew(t *testing.T) {
	s, _ := openStore(t)
	tree, err := s.Put(t.Context(), sample.files(), sample.open)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := s.Remove(tree.Digest); err != nil {
		t.Fatal(err)
	}
	// The context is asked for the first time after the tree has its name when the tree is read.
	left := 1
	ctx := interrupted{t.Context(), func() {
		if _, err := os.Lstat(filepath.Join(s.Dir(), tree.Digest.Encoded())); err == nil && left > 0 {
			left--
			if err := other.Remove(tree.Digest); err != nil {
				t.Error(err)
			}
		}
	}}
	if _, err := s.Put(ctx, sample.files(), sample.open); err != nil || left > 0 {
		t.Errorf("Put = %v, %d removals left", err, left)
	}
}

// interrupted is a context that does something each time it is asked for its error.
type interrupted struct {
	context.Context
	do func()
}

func (i interrupted) Err() error {
	i.do()
	return i.Context.Err()
}

func TestPutRefusesOtherBytes(t *testing.T) {
	for name, lie := range map[string]texts{
		"other": {"SKILL.md": "# y\n", "scripts/run.sh": "echo hi\n", "scripts/lib/a.sh": "true\n",
			"empty": ""},
		"shorter": {"SKILL.md": "#", "scripts/run.sh": "echo hi\n", "scripts/lib/a.sh": "true\n",
			"empty": ""},
		"longer": {"SKILL.md": "# x\n more", "scripts/run.sh": "echo hi\n", "scripts/lib/a.sh": "true\n",
			"empty": ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := openStore(t)
			if _, err := s.Put(t.Context(), sample.files(), lie.open); err == nil {
				t.Error("Put = nil, want an error")
			}
			if entries, err := os.ReadDir(s.Dir()); err != nil || len(entries) != 0 {
				t.Errorf("the store holds %v, %v after a failed Put", entries, err)
			}
			if _, err := s.Tree(t.Context(), TreeDigest(sample.files())); !errors.Is(err, ErrNotFound) {
				t.Errorf("Tree = %v, want ErrNotFound", err)
			}
		})
	}
}

func TestPutRefusesPaths(t *testing.T) {
	for _, path := range []string{"../x", "/x", "a/../b", "", ".", "a//b"} {
		s, dir := openStore(t)
		evil := texts{path: "x"}
		if _, err := s.Put(t.Context(), evil.files(), evil.open); err == nil {
			t.Errorf("Put(%q) = nil, want an error", path)
		}
		if _, err := os.Lstat(filepath.Join(dir, "x")); err == nil {
			t.Errorf("Put(%q) wrote outside of its tree", path)
		}
	}
}

// A tree that was changed under the store's feet is found before it is used, and put right.
func TestTreeFindsChanges(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"content": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "scripts/run.sh"), []byte("echo ho\n"), 0o644)
		},
		"extra": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "scripts/new.sh"), nil,
				0o644)
		},
		"missing": func(dir string) error { return os.Remove(filepath.Join(dir, "empty")) },
		"link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "empty")),
				os.Symlink("/etc/passwd", filepath.Join(dir, "empty")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := openStore(t)
			tree, err := s.Put(t.Context(), sample.files(), sample.open)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(s.Dir(), tree.Digest.Encoded())
			for _, d := range []string{dir, dir + "/scripts", dir + "/scripts/run.sh"} {
				if err := os.Chmod(d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Tree(t.Context(), tree.Digest); err == nil {
				t.Fatal("Tree = nil, want *CorruptError")
			} else if _, ok := errors.AsType[*CorruptError](err); !ok {
				t.Fatalf("Tree = %v, want *CorruptError", err)
			}
			if _, err := s.Put(t.Context(), sample.files(), sample.open); err != nil {
				t.Errorf("Put over the damaged tree: %v", err)
			}
			if _, err := s.Tree(t.Context(), tree.Digest); err != nil {
				t.Errorf("Tree after Put: %v", err)
			}
		})
	}
}

func TestConcurrentPut(t *testing.T) {
	_, dir := openStore(t)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			s, err := Open(dir) // each like a process of its own
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := s.Put(t.Context(), sample.files(), sample.open); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	entries, err := os.ReadDir(filepath.Join(dir, treesDir))
	if err != nil || len(entries) != 1 {
		t.Errorf("the store holds %v, %v, want one tree", entries, err)
	}
}

func BenchmarkTreeUnchanged(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	tree, err := s.Put(b.Context(), sample.files(), sample.open)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Tree(b.Context(), tree.Digest); err != nil {
			b.Fatal(err)
		}
	}
}

// A program stays one: collections lose modes, and a script may call its neighbour.
func TestPutModes(t *testing.T) {
	s, _ := openStore(t)
	c := texts{"tool": "#!/bin/sh\n", "elf": "\x7fELF....", "data": "#", "short": "\x7fEL", "empty": "",
		"marked": "text\n"}
	files := c.files()
	for i := range files {
		files[i].Executable = files[i].Path == "marked"
	}
	tree, err := s.Put(t.Context(), files, c.open)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{"tool": 0o755, "elf": 0o755, "marked": 0o755, "data": 0o644,
		"short": 0o644, "empty": 0o644}
	for path, mode := range want {
		info, err := os.Lstat(filepath.Join(s.Dir(), tree.Digest.Encoded(), path))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v, %v, want %v", path, info.Mode(), err, mode)
		}
	}
}
