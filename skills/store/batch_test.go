package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/content"
)

// entries returns the names of what a directory has.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		names = append(names, entry.Name())
	}
	return names
}

// A tree of a batch has its name after Commit and not before, however many files there are, and Close takes
// back what was not there before.
func TestBatch(t *testing.T) {
	large := texts{}
	for n := range content.FewFiles + 1 {
		large[fmt.Sprintf("dir%d/file%d", n%7, n)] = strings.Repeat("x", n)
	}
	for name, c := range map[string]texts{"few": sample, "many": large} {
		t.Run(name, func(t *testing.T) {
			s, _ := openStore(t)
			there := texts{"SKILL.md": "there"}
			if _, err := s.Put(t.Context(), there.files(), there.open); err != nil {
				t.Fatal(err)
			}
			b := s.Batch(s.root)
			tree, err := b.Put(t.Context(), c.files(), c.open)
			if err == nil {
				_, err = b.Put(t.Context(), c.files(), c.open) // another skill with the same files
			}
			if err == nil {
				_, err = b.Put(t.Context(), there.files(), there.open)
			}
			if err == nil {
				err = b.Copy(t.Context(), tree, "copy")
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				do     func() error
				found  bool
				stored bool
			}{
				{func() error { return b.Sync(t.Context()) }, false, false},
				{func() error { return b.Commit(t.Context()) }, true, true},
				{func() error { return b.Commit(t.Context()) }, true, true},
			} {
				if err := step.do(); err != nil || b.Stored() != step.stored {
					t.Fatalf("%v, stored %t", err, b.Stored())
				}
				if _, err := s.Tree(t.Context(), tree.Digest); (err == nil) != step.found {
					t.Fatalf("Tree = %v", err)
				}
			}
			if got := entries(t, s.Dir()); len(got) != 2 {
				t.Errorf("the store has %q", got)
			}
			if _, err := s.Batch(s.root).Put(t.Context(), c.files(), sample.open); err != nil {
				t.Errorf("a tree that is there was written again: %v", err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if got := entries(t, s.Dir()); len(got) != 1 {
				t.Errorf("after Close, the store has %q", got)
			}
			for path, want := range c {
				if got, err := s.root.ReadFile("copy/" + path); err != nil || string(got) != want {
					t.Errorf("the copy of %s: %q, %v", path, got, err)
				}
			}
		})
	}
}

// What was not committed leaves nothing behind, and what is kept stays.
func TestBatchClose(t *testing.T) {
	for name, test := range map[string]struct {
		before func(b *Batch) error
		left   int
	}{
		"written":   {func(b *Batch) error { return nil }, 0},
		"durable":   {func(b *Batch) error { return b.Sync(t.Context()) }, 0},
		"committed": {func(b *Batch) error { return b.Commit(t.Context()) }, 0},
		"kept": {func(b *Batch) error {
			err := b.Commit(t.Context())
			b.Keep()
			return err
		}, 1},
	} {
		s, _ := openStore(t)
		b := s.Batch(s.root)
		_, err := b.Put(t.Context(), sample.files(), sample.open)
		if err := errors.Join(err, test.before(b), b.Close()); err != nil {
			t.Fatal(err)
		}
		if got := entries(t, s.Dir()); len(got) != test.left {
			t.Errorf("%s: the store has %q", name, got)
		}
	}
}

// A corrupt tree is replaced when the batch is committed, and was there before.
func TestBatchReplacesCorrupt(t *testing.T) {
	s, tree, dir := stored(t)
	if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("# y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := s.Batch(s.root)
	if _, err := b.Put(t.Context(), sample.files(), sample.open); err != nil {
		t.Fatal(err)
	}
	_, err := s.Tree(t.Context(), tree.Digest)
	wantCorrupt(t, err)
	if err := errors.Join(b.Commit(t.Context()), b.Close()); err != nil || b.Stored() {
		t.Fatalf("%v, stored %t", err, b.Stored())
	}
	if _, err := s.Tree(t.Context(), tree.Digest); err != nil {
		t.Error(err)
	}
}

// A copy that was dropped is not missed by Commit.
func TestBatchDrop(t *testing.T) {
	s, tree, _ := stored(t)
	b := s.Batch(s.root)
	if err := errors.Join(b.Copy(t.Context(), tree, "a"), b.Copy(t.Context(), tree, "b"), b.Drop("a"),
		b.Commit(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := s.root.Lstat("a"); err == nil {
		t.Error("the copy is there")
	}
}

// A directory is taken only if it is what a copy of the tree would be, and becomes just that.
func TestTake(t *testing.T) {
	s, _ := openStore(t)
	tree, err := s.Put(t.Context(), sample.files(), sample.open)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(dir string) error
		taken  bool
	}{
		"equal":     {func(string) error { return nil }, true},
		"modes":     {func(dir string) error { return os.Chmod(dir+"/scripts/run.sh", 0o600) }, true},
		"more":      {func(dir string) error { return os.WriteFile(dir+"/x", nil, 0o600) }, false},
		"less":      {func(dir string) error { return os.Remove(dir + "/empty") }, false},
		"directory": {func(dir string) error { return os.Mkdir(dir+"/x", 0o700) }, false},
		"link":      {func(dir string) error { return os.Symlink(".", dir+"/a") }, false},
		"a link for a file": {func(dir string) error {
			return errors.Join(os.Remove(dir+"/empty"), os.Symlink("/dev/null", dir+"/empty"))
		}, false},
		"a link for the last file": {func(dir string) error {
			return errors.Join(os.Remove(dir+"/scripts/run.sh"), os.Symlink("lib/a.sh", dir+"/scripts/run.sh"))
		}, false},
		"a directory for a file": {func(dir string) error {
			return errors.Join(os.Remove(dir+"/empty"), os.Mkdir(dir+"/empty", 0o700))
		}, false},
		"two names":  {func(dir string) error { return os.Link(dir+"/empty", filepath.Dir(dir)+"/name") }, false},
		"more bytes": {func(dir string) error { return os.WriteFile(dir+"/empty", []byte("x"), 0o600) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := errors.Join(tree.Copy(t.Context(), root, "from"), tree.Copy(t.Context(), root, "copy")); err != nil {
				t.Fatal(err)
			}
			if err := test.change(filepath.Join(dir, "from")); err != nil {
				t.Fatal(err)
			}
			taken, err := s.Batch(root).Take(t.Context(), tree, "from", "to")
			if taken != test.taken || err != nil {
				t.Fatalf("Take = %v, %v", taken, err)
			}
			if _, err := root.Lstat("to"); (err == nil) != taken {
				t.Errorf("to: %v", err)
			}
			if !taken {
				return
			}
			for _, f := range tree.Files {
				was, err := root.Stat("copy/" + f.Path)
				is, failed := root.Stat("to/" + f.Path)
				if err != nil || failed != nil || was.Mode() != is.Mode() || was.Size() != is.Size() {
					t.Errorf("%s: %v, %v", f.Path, is, failed)
				}
			}
		})
	}
}
