package content_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/content"
)

func open(t *testing.T, below ...string) (*os.Root, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	root, err := content.Open(dir, below...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, dir
}

func plain([]byte) fs.FileMode { return content.Mode(false) }

func TestCreate(t *testing.T) {
	root, dir := open(t)
	text := strings.Repeat("0123456789", 10_000) // more than a buffer
	sum, size, err := content.Create(root, "a", strings.NewReader(text), func(head []byte) fs.FileMode {
		return content.Mode(strings.HasPrefix(string(head), "0123"))
	})
	if err != nil || sum != digest.FromString(text) || size != int64(len(text)) {
		t.Errorf("Create = %s, %d, %v", sum, size, err)
	}
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil || filepath.Separator == '/' && info.Mode() != 0o755 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if _, _, err := content.Create(root, "a", strings.NewReader(""), plain); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second Create = %v", err)
	}
	broken := io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrNoProgress))
	if _, _, err := content.Create(root, "b", broken, plain); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Create of a broken reader = %v", err)
	}
	if _, err := root.Lstat("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Create left a file: %v", err)
	}
}

func TestInspect(t *testing.T) {
	root, dir := open(t)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o644),
		os.Mkdir(filepath.Join(dir, "dir"), 0o755)); err != nil {
		t.Fatal(err)
	}
	found, err := content.Inspect(root, "file")
	if err != nil || found.Digest != digest.FromString("text") || found.Mark != (content.Mark{}) {
		t.Errorf("a new file: %+v, %v; want no mark yet", found, err)
	}
	found, err = content.Inspect(root, "dir")
	if err != nil || !found.Info.IsDir() || found.Digest != "" {
		t.Errorf("a directory: %+v, %v", found, err)
	}
	if _, err := content.Inspect(root, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if filepath.Separator != '/' {
		return
	}
	if err := errors.Join(os.Symlink("file", filepath.Join(dir, "link")),
		os.Chmod(filepath.Join(dir, "file"), 0o666)); err != nil {
		t.Fatal(err)
	}
	found, err = content.Inspect(root, "link")
	if err != nil || found.Target != "file" || found.Digest != "" {
		t.Errorf("a link: %+v, %v", found, err)
	}
	_, err = content.Inspect(root, "file")
	if _, damaged := errors.AsType[*content.DamageError](err); !damaged {
		t.Errorf("a file that others can write: %v", err)
	}
}

// A mark holds until a file, a directory or a mode changes.
func TestMark(t *testing.T) {
	if !content.Marks {
		t.Skip("missing capability: change times")
	}
	root, dir := open(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	top, err := root.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for _, c := range []struct {
		name   string
		change func() error
	}{
		{"bytes", func() error {
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(file, []byte("tExt"), 0o644),
				os.Chtimes(file, time.Time{}, info.ModTime()))
		}},
		{"mode", func() error { return os.Chmod(file, 0o600) }},
		{"file", func() error { return errors.Join(os.Remove(file), os.WriteFile(file, []byte("text"), 0o644)) }},
		{"link", func() error { return errors.Join(os.Remove(file), os.Symlink("other", file)) }},
	} {
		time.Sleep(content.Settling + 20*time.Millisecond)
		found, err := content.Inspect(root, "file")
		if err != nil || !found.Mark.Holds(top, "file") {
			t.Fatalf("before %s: %+v, %v", c.name, found, err)
		}
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if found.Mark.Holds(top, "file") {
			t.Errorf("the mark holds after a change of %s", c.name)
		}
	}
	if (content.Mark{}).Holds(top, "missing") {
		t.Error("a zero mark holds")
	}
}

func TestDir(t *testing.T) {
	root, dir := open(t, "trees")
	trees := content.DirOf(root, "trees")
	for _, name := range []string{trees.Temp(), trees.Path("b"), trees.Path("a")} {
		if err := errors.Join(root.MkdirAll(name+"/below", 0o700), root.Chmod(name+"/below", 0o500),
			root.Chmod(name, 0o500)); err != nil { // like earlier versions
			t.Fatal(err)
		}
	}
	if names, err := trees.Names(); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("Names = %q, %v", names, err)
	}
	info, err := root.Lstat(trees.Path("a"))
	if err != nil {
		t.Fatal(err)
	}
	handle, err := trees.Handle("a", info)
	if err != nil {
		t.Fatal(err)
	}
	handle.Close()
	_, err = trees.Handle("b", info)
	if _, damaged := errors.AsType[*content.DamageError](err); !damaged && filepath.Separator == '/' {
		t.Errorf("Handle of another directory = %v", err)
	}
	trees.RemoveTemps(func(fs.FileInfo) bool { return true })
	if err := errors.Join(trees.Remove("b"), trees.Remove("b")); err != nil {
		t.Errorf("Remove = %v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "trees"))
	if err != nil || len(left) != 1 || left[0].Name() != "a" {
		t.Errorf("%v are left, %v", left, err)
	}
	if err := trees.Remove("a"); err != nil { // the test's directory could not be removed with it
		t.Error(err)
	}
}

// Few files are synced one by one, and many with their file system; a file that is missing is an error.
func TestSync(t *testing.T) {
	root, _ := open(t)
	w := content.Written{Root: root, Dir: "tree"}
	for i := range 40 {
		w.Files = append(w.Files, fmt.Sprintf("d%d/f%d", i%3, i))
	}
	w.Dirs = content.Parents(slices.Values(w.Files))
	if len(w.Dirs) != 4 || !w.Dirs["."] || !w.Dirs["d2"] {
		t.Errorf("Parents = %v", w.Dirs)
	}
	for name := range w.Dirs {
		if err := root.MkdirAll("tree/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range w.Files {
		if err := root.WriteFile("tree/"+name, nil, 0o444); err != nil && filepath.Separator == '/' {
			t.Fatal(err)
		}
	}
	if filepath.Separator == '/' { // a file that is only readable is synced too
		if err := content.Sync(t.Context(), w); err != nil {
			t.Errorf("Sync = %v", err)
		}
	}
	w.Files = append(w.Files, "d0/missing")
	if err := content.Sync(t.Context(), w); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Sync of a missing file = %v", err)
	}
}
