package staged

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

func chmod(t *testing.T, dir *os.File, modes map[string]uint32) {
	t.Helper()
	for p, mode := range modes {
		if err := unix.Chmod(filepath.Join(dir.Name(), p), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // so that the directory can be removed
		for p := range modes {
			_ = unix.Chmod(filepath.Join(dir.Name(), p), 0o700)
		}
	})
}

// past makes everything in the workspace older than the run.
func (l *Layer) past() *Layer {
	l.Began = time.Now().Add(time.Second)
	return l
}

func reported(writes []sandbox.Write, op, path string) (applied bool, refused string) {
	for _, w := range writes {
		if w.Op == op && w.Path == path {
			applied, refused = applied || w.Refused == "", refused+w.Refused
		}
	}
	return applied, refused
}

// A directory that was there keeps its mode, and it is said if the command changed that. Of one that was
// copied up only because of what is below nothing is said.
func TestApplyKeepsDirectoryModes(t *testing.T) {
	for name, tt := range map[string]struct {
		old, asked uint32
		refused    bool
	}{
		"copied up":        {old: 0o2775, asked: 0o775},
		"set-id bits":      {old: 0o755, asked: 0o6755},
		"closed to others": {old: 0o755, asked: 0o700, refused: true},
		"opened":           {old: 0o700, asked: 0o755, refused: true},
		"made writable":    {old: 0o755, asked: 0o777, refused: true},
		"closed":           {old: 0o755, asked: 0o500, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			upper, ws := tree(t, "d/new"), tree(t, "d/old")
			chmod(t, ws, map[string]uint32{"d": tt.old, ".": tt.old})
			chmod(t, upper, map[string]uint32{"d": tt.asked, ".": tt.asked})
			want := paths(t, ws)["d"].Mode()
			writes := Apply(t.Context(), layerOf(upper, ws).past())
			for _, p := range []string{".", "d"} {
				var why string
				if tt.refused {
					why = errMode.Error()
				}
				if applied, refused := reported(writes, "chmod", p); applied || refused != why {
					t.Errorf("%s: applied %v, refused as %q, want %q", p, applied, refused, why)
				}
			}
			got := paths(t, ws)
			if got["d"].Mode() != want || got["d/new"] == nil {
				t.Errorf("mode %v, want %v; d/new: %v", got["d"].Mode(), want, got["d/new"])
			}
		})
	}
}

// What the owner closed to himself stays as it is: nothing is applied in it, and it is not deleted.
func TestApplyInClosedDirectories(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("missing capability: an ordinary user, for whom directories can be closed")
	}
	upper, ws := tree(t, "kept/new", "file"), tree(t, "kept/x", "file/closed/x", "file/a")
	closed := map[string]uint32{"kept": 0o555, "file/closed": 0o555}
	chmod(t, ws, closed)
	before := paths(t, ws)
	writes := Apply(t.Context(), layerOf(upper, ws).past())
	for _, p := range []string{"kept/new", "file"} {
		if why := refusedAs(writes, p); why != "permission denied" {
			t.Errorf("%s: refused as %q", p, why)
		}
	}
	if got := paths(t, ws); len(got) != len(before) {
		t.Errorf("left is %v, reported %+v", got, writes)
	}
}

// A deletion that the kernel would stop midway is not begun.
func TestDeletionIsWholeOrNothing(t *testing.T) {
	t.Run("attribute", func(t *testing.T) {
		ws := tree(t, "d/a", "d/sub/b", "d/z")
		f, err := os.Open(filepath.Join(ws.Name(), "d/sub/b"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const immutable = 0x10
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
			t.Skipf("missing capability: to set files' attributes: %v", err)
		}
		defer func() { _ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0) }()
		untouched(t, ws)
	})
	t.Run("other's", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("missing capability root: directories of several users")
		}
		const user = someone + 1
		for name, set := range map[string]func(d string) error{
			"closed": func(d string) error {
				return errors.Join(os.Chown(d, user, user), os.Chown(d+"/sub", someone, someone))
			},
			"sticky": func(d string) error {
				return errors.Join(os.Chown(d, user, user), os.Chmod(d+"/sub", 0o777|os.ModeSticky))
			},
			"outside": func(d string) error { return errors.Join(os.Chown(d, user, user), os.Chown(d+"/sub", user, user)) },
		} {
			t.Run(name, func(t *testing.T) {
				ws := tree(t, "d/a", "d/sub/b", "d/z")
				err := errors.Join(os.Chmod(filepath.Dir(ws.Name()), 0o755), os.Chmod(ws.Name(), 0o777))
				if name == "outside" {
					err = errors.Join(err, os.Chmod(ws.Name(), 0o755))
				}
				if err = errors.Join(err, set(filepath.Join(ws.Name(), "d"))); err != nil {
					t.Fatal(err)
				}
				child := exec.Command("/proc/self/exe", "-test.run=^TestDeletionOf$", "--", ws.Name())
				child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
				if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "not permitted") && !strings.Contains(string(out), "denied") {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
	})
}

// TestDeletionOf is for TestDeletionIsWholeOrNothing, which starts it as another user.
func TestDeletionOf(t *testing.T) {
	if flag.NArg() != 1 {
		return
	}
	ws, err := os.Open(flag.Arg(0))
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	fmt.Println(untouched(t, ws))
}

// untouched fails the test unless d is refused and whole.
func untouched(t *testing.T, ws *os.File) (said []sandbox.Write) {
	t.Helper()
	before := paths(t, ws)
	a, to := applierOn(t, layerOf(ws, ws).past())
	if done := a.remove(to, "d", "d", nil); done || len(paths(t, ws)) != len(before) {
		t.Errorf("left is %v of %v, reported %+v", paths(t, ws), before, a.writes)
	}
	return a.writes
}
