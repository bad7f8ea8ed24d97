package skills

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory by its descriptor shows what os.Root shows, and refuses what it refuses.
func TestTreeBeneath(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for name, content := range map[string]string{
		"base/skill/SKILL.md": "self", "base/skill/deep/er/file": "deep", "base/other": "other", "secret": "secret",
	} {
		path := filepath.Join(top, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(top, "base", "skill")
	for name, target := range map[string]string{
		"in": "deep/er/file", "back": "deep/../SKILL.md", "out": "../other", "far": "../../secret", "absolute": filepath.Join(dir, "SKILL.md"),
		"loop": "loop", "none": "nowhere", "dir": "deep", "deep/up": "../SKILL.md", "deep/outdir": "../..", "proc": "/proc/self/cwd",
	} {
		if err := os.Symlink(target, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	p := location{base: filepath.Join(top, "base"), rel: "skill"}
	quick, ok := p.openBeneath()
	if !ok {
		t.Skip("missing capability: openat2")
	}
	defer quick.close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	slow := osTree{root}
	defer slow.close()
	names := []string{".", "SKILL.md", "missing", "SKILL.md/below", "deep", "deep/er/file", "dir/er/file", "deep/outdir/other",
		"deep/outdir/skill/SKILL.md", "in", "back", "out", "far", "absolute", "loop", "none", "dir", "deep/up", "proc", "pipe", "socket"}
	facts := func(tr tree, name string) string {
		var out []string
		for _, look := range []func(string) (fs.FileInfo, error){tr.lstat, tr.stat} {
			info, err := look(name)
			if err != nil {
				out = append(out, cause(err).Error())
				continue
			}
			m := markOf(info)
			out = append(out, fmt.Sprint(info.Mode().IsRegular(), info.IsDir(), info.Mode()&fs.ModeSymlink, info.Mode().Perm(),
				info.Size(), info.ModTime().UnixNano(), m))
		}
		file, _, err := openFile(tr, name)
		if err != nil {
			return strings.Join(append(out, err.Error()), "; ")
		}
		defer file.Close()
		data, err := io.ReadAll(file)
		return strings.Join(append(out, string(data), fmt.Sprint(err)), "; ")
	}
	for _, name := range names {
		if want, got := facts(slow, name), facts(quick, name); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	for _, name := range []string{".", "deep", "dir", "missing", "SKILL.md", "deep/outdir", "proc"} {
		list := func(tr tree) []string {
			entries, err := tr.list(name)
			var out []string
			for _, e := range entries {
				out = append(out, fmt.Sprint(e.Name(), e.IsDir(), e.Type().IsRegular(), e.Type()&fs.ModeSymlink))
			}
			slices.Sort(out)
			return append(out, fmt.Sprint(cause(err)))
		}
		if want, got := list(slow), list(quick); !slices.Equal(got, want) {
			t.Errorf("%s lists\n got %q\nwant %q", name, got, want)
		}
	}
	if err := errors.Join(os.Rename(dir, dir+".moved"), os.Symlink(dir+".moved", dir)); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.openBeneath(); ok {
		t.Error("a link in the place of the directory is followed")
	}
}
