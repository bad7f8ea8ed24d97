package fsys_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The last read of a file is the one that reaches its size, and only if it finds no more.
func TestEnding(t *testing.T) {
	for _, tt := range []struct {
		name  string
		text  string
		size  int64
		room  int // of each read
		reads int
	}{
		{"all at once", "12345", 5, 8, 1},
		{"in parts", "12345", 5, 2, 3},
		{"no room to see the end", "12345", 5, 5, 2},
		{"empty", "", 0, 8, 1},
		{"longer than it was", "1234567", 5, 8, 2},
		{"longer, and a part ends where it ended", "1234567", 4, 2, 5},
		{"shorter than it was", "123", 5, 8, 2},
	} {
		under, got, reads := strings.NewReader(tt.text), "", 0
		counted := readerFunc(func(p []byte) (int, error) {
			reads++
			return under.Read(p)
		})
		for r, p := fsys.Ending(counted, tt.size), make([]byte, tt.room); ; {
			n, err := r.Read(p)
			got += string(p[:n])
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got != tt.text || reads != tt.reads {
			t.Errorf("%s: %q in %d reads, want %q in %d", tt.name, got, reads, tt.text, tt.reads)
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	write(t, filepath.Join(dir, "file"), "12345")
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	read := map[string]func(string, int64) ([]byte, error){
		"ReadFile": func(name string, limit int64) ([]byte, error) {
			return fsys.ReadFile(filepath.Join(dir, name), limit, nil)
		},
		"ReadFileIn": func(name string, limit int64) ([]byte, error) { return fsys.ReadFileIn(root, name, limit) },
	}
	for how, read := range read {
		if data, err := read("file", 5); string(data) != "12345" || err != nil {
			t.Errorf("%s at its limit = %q, %v", how, data, err)
		}
		data, err := read("file", 4)
		if long, ok := errors.AsType[*fsys.TooLongError](err); data != nil || !ok || long.Limit != 4 {
			t.Errorf("%s over its limit = %q, %v, want a *TooLongError", how, data, err)
		} else if !strings.Contains(err.Error(), "file: longer than 4 bytes") {
			t.Errorf("%s says %q, want the name of the file", how, err)
		}
		if _, err := read("dir", 5); !errors.Is(err, fsys.ErrNotRegular) {
			t.Errorf("%s of a directory: %v, want ErrNotRegular", how, err)
		}
		if _, err := read("missing", 5); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of nothing: %v, want fs.ErrNotExist", how, err)
		}
	}
}

func TestReadFileAsksTheCheck(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	write(t, name, "12345")
	refused := errors.New("refused")
	var size int64
	_, err := fsys.ReadFile(name, 100, func(info fs.FileInfo) error {
		size = info.Size()
		return refused
	})
	if !errors.Is(err, refused) || size != 5 {
		t.Errorf("ReadFile = %v with a size of %d, want the check's error and 5", err, size)
	}
}

func TestLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "text")
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	if data, err := fsys.ReadFile(filepath.Join(dir, "link"), 10, nil); string(data) != "text" || err != nil {
		t.Errorf("ReadFile of a link = %q, %v, want what it names", data, err)
	}
	if _, err := fsys.ReadFileIn(openRoot(t, dir), "link", 10); !errors.Is(err, fsys.ErrNotRegular) {
		t.Errorf("ReadFileIn of a link: %v, want ErrNotRegular", err)
	}
	if err := fsys.WriteFile(filepath.Join(dir, "link"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "file")); string(data) != "text" || err != nil {
		t.Errorf("writing a link changed what it names: %q, %v", data, err)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "below/file"} {
		for _, text := range []string{"first", "second"} {
			if err := fsys.WriteFileIn(root, name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			data, err := fsys.ReadFileIn(root, name, 10)
			if string(data) != text || err != nil {
				t.Errorf("ReadFileIn(%q) = %q, %v, want %q", name, data, err, text)
			}
		}
		info, err := root.Stat(name)
		if err != nil || runtime.GOOS != "windows" && info.Mode() != 0o644 {
			t.Errorf("mode of %s: %v, %v, want 0644", name, info.Mode(), err)
		}
	}
	noTemps(t, dir)
}

// A write that fails leaves neither a temporary file nor another content.
func TestWriteFileFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "taken", "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := fsys.WriteFile(filepath.Join(dir, "taken"), []byte("text"), 0o600); err == nil {
		t.Error("a file took the place of a directory that is not empty")
	}
	if err := fsys.WriteFile(filepath.Join(dir, "missing", "file"), []byte("text"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("WriteFile below a directory that is missing: %v, want fs.ErrNotExist", err)
	}
	noTemps(t, dir)
}

func noTemps(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(entry.Name(), fsys.TempPrefix) {
			t.Errorf("%s was left behind", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSyncDir(t *testing.T) {
	root := openRoot(t, t.TempDir())
	if err := fsys.SyncDir(root, "."); err != nil {
		t.Error(err)
	}
	if err := fsys.SyncDir(root, "missing"); runtime.GOOS != "windows" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SyncDir of nothing: %v, want fs.ErrNotExist", err)
	}
}

func TestExists(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Skip("missing capability: symbolic links")
	}
	root := openRoot(t, dir)
	for name, want := range map[string]bool{"file": true, "link": true, "none": false, "file/below": false} {
		if got := fsys.Exists(filepath.Join(dir, name)); got != want {
			t.Errorf("Exists(%s) is %v", name, got)
		}
		if got := fsys.ExistsIn(root, name); got != want {
			t.Errorf("ExistsIn(%s) is %v", name, got)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		dir, path, rel string
		below          bool
	}{
		{"/a", "/a", ".", true},
		{"/a", "/a/b/c", "b/c", true},
		{"/a", "/ab", "../ab", false},
		{"/a/b", "/a", "..", false},
		{"/a", "b", "", false},
	} {
		rel, below := fsys.Below(filepath.FromSlash(c.dir), filepath.FromSlash(c.path))
		if below != c.below || below && filepath.ToSlash(rel) != c.rel {
			t.Errorf("Below(%s, %s) is %q, %v", c.dir, c.path, rel, below)
		}
	}
}

// Of several processes that make the same file, one does, and all find what it wrote.
func TestWriteNew(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "key")
	errs := make(chan error)
	for n := range 8 {
		go func() { errs <- fsys.WriteNew(name, []byte{byte('a' + n)}, 0o600) }()
	}
	made := 0
	for range 8 {
		err := <-errs
		switch {
		case err == nil:
			made++
		case !errors.Is(err, fs.ErrExist):
			t.Error(err)
		}
	}
	data, err := os.ReadFile(name)
	if made != 1 || err != nil || len(data) != 1 {
		t.Errorf("%d made it: %q, %v", made, data, err)
	}
	noTemps(t, dir)
}
