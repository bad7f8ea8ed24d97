package detect

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// What another user can put in its place is not started with the rights of a server that is root.
func TestForeignInterpreterIsAskedAsItsOwner(t *testing.T) {
	sandboxtest.Need(t, "root", "python3")
	const other = 65534
	const script = `[ "$(id -u)" = 65534 ] && [ "$(id -G)" != 0 ] || : >"$0.harm"
exec /usr/bin/python3 "$@"`
	for _, tt := range []struct {
		name  string
		owned func(dir string) []string
	}{
		{"the file", func(dir string) []string { return []string{filepath.Join(dir, "python3")} }},
		{"the directory", func(dir string) []string { return []string{dir} }},
		{"a directory above", func(dir string) []string { return []string{filepath.Dir(dir)} }},
		{"a link to a directory above", func(dir string) []string { return []string{relink(t, dir)} }},
	} {
		dir := fake(t, "python3", script)
		for _, path := range tt.owned(dir) {
			if err := os.Lchown(path, other, other); err != nil {
				t.Fatal(err)
			}
		}
		in, err := Interpreters(dir).Find(t.Context(), "python3")
		if err != nil || in == nil || filepath.Dir(in.Path) == dir {
			t.Errorf("another user owns %s: Find = %+v, %v", tt.name, in, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "python3.harm")); err == nil {
			t.Errorf("another user owns %s: it was started as root", tt.name)
		}
	}
}

// What lies where only root gets is root's, whoever it is said to belong to: programs that root unpacked
// keep the number of who packed them.
func TestInterpreterInClosedDirectory(t *testing.T) {
	sandboxtest.Need(t, "root", "python3")
	dir := fake(t, "python3", `[ "$(id -u)" = 0 ] || exit 1
exec /usr/bin/python3 "$@"`)
	inner := filepath.Join(dir, "inner")
	if err := errors.Join(os.Mkdir(inner, 0o755), os.Rename(filepath.Join(dir, "python3"), filepath.Join(inner, "python3")), os.Lchown(inner, 65533, 65533),
		os.Lchown(filepath.Join(inner, "python3"), 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	for _, closed := range []bool{true, false} {
		mode := os.FileMode(0o755)
		if closed {
			mode = 0o700
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		f := Interpreters(inner)
		f.dirs = []string{inner, "/usr/bin", "/bin"}
		owner, err := asOwner(filepath.Join(inner, "python3"))
		if closed && (owner != nil || err != nil) || !closed && err == nil {
			t.Errorf("closed %t: asOwner = %+v, %v", closed, owner, err)
		}
		if in, err := f.Find(t.Context(), "python3"); closed && (err != nil || in == nil) {
			t.Errorf("Find = %+v, %v", in, err)
		}
	}
	if err := os.Symlink("/usr/bin/python3", filepath.Join(inner, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if owner, err := asOwner(filepath.Join(inner, "link")); owner != nil || err != nil {
		t.Errorf("a link out of it: asOwner = %+v, %v", owner, err)
	}
}

// relink puts a link to a link to a directory in its place, and returns the second.
func relink(t *testing.T, dir string) string {
	t.Helper()
	real, between := dir+"-real", dir+"-link"
	if err := errors.Join(os.Rename(dir, real), os.Symlink(filepath.Base(real), between), os.Symlink(between, dir)); err != nil {
		t.Fatal(err)
	}
	return between
}

func TestInterpreterOfSeveralUsers(t *testing.T) {
	sandboxtest.Need(t, "root")
	dir := fake(t, "node", `: >"$0.harm"; echo /usr/bin/true`)
	if err := errors.Join(os.Lchown(dir, 65533, 65533), os.Lchown(filepath.Join(dir, "node"), 65534, 65534), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	f := Interpreters(dir)
	f.dirs = []string{dir}
	if in, err := f.Find(t.Context(), "node"); in != nil || err == nil {
		t.Errorf("Find = %+v, %v", in, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "node.harm")); err == nil {
		t.Error("it was started")
	}
}

// What an interpreter names as its program is opened only when it is a file.
func TestNamedProgramIsNoFile(t *testing.T) {
	sandboxtest.Need(t, "linux")
	dir := fake(t, "node", `echo "${0%/*}/fifo"`)
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := Interpreters(dir)
	f.dirs = []string{dir}
	if in, err := f.Find(t.Context(), "node"); in != nil || err == nil {
		t.Errorf("Find = %+v, %v", in, err)
	}
}
