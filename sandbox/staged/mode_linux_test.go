package staged

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
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

func told(writes []sandbox.Write, op, path string) (applied bool, refused string) {
	for _, w := range writes {
		if w.Op == op && w.Path == path {
			applied, refused = applied || w.Refused == "", refused+w.Refused
		}
	}
	return applied, refused
}

// The mode of a directory that was there changes as a file's does, or it is said why not; of one that
// was copied up only because of what is below nothing is said.
func TestApplyDirectoryModes(t *testing.T) {
	for name, tt := range map[string]struct {
		files        []string
		old, asked   uint32
		want         fs.FileMode
		told         bool
		refused      error
		protected    string
		changedSince bool
	}{
		"copied up":           {old: 0o2775, asked: 0o775, want: 0o775 | fs.ModeSetgid},
		"closed to others":    {old: 0o755, asked: 0o700, want: 0o700, told: true},
		"opened":              {old: 0o700, asked: 0o755, want: 0o755, told: true},
		"made writable":       {old: 0o700, asked: 0o777, want: 0o755, told: true, refused: errShared},
		"only made writable":  {old: 0o755, asked: 0o777, want: 0o755, refused: errShared},
		"still writable":      {old: 0o1777, asked: 0o775, want: 0o775 | fs.ModeSticky, told: true},
		"closed to its owner": {old: 0o755, asked: 0o500, want: 0o700, told: true, refused: errShared},
		"closed to writing":   {old: 0o755, asked: 0o555, want: 0o755, refused: errShared},
		"set-id bits":         {old: 0o755, asked: 0o6711, want: 0o711, told: true},
		"guards":              {old: 0o700, asked: 0o755, want: 0o700, refused: errHolds, files: []string{"d/.git/HEAD"}},
		"guards deeper":       {old: 0o700, asked: 0o755, want: 0o700, refused: errHolds, files: []string{"d/a/b/.envrc"}},
		"guards a path":       {old: 0o700, asked: 0o755, want: 0o700, refused: errHolds, protected: "d/x/skills"},
		"a repository":        {old: 0o700, asked: 0o755, want: 0o700, refused: errGit, files: []string{"d/HEAD", "d/refs/x", "d/objects/x"}},
		"changed":             {old: 0o700, asked: 0o755, want: 0o700, refused: errChanged, changedSince: true},
	} {
		t.Run(name, func(t *testing.T) {
			upper, ws := tree(t, "d/new"), tree(t, append(tt.files, "d/old")...)
			chmod(t, ws, map[string]uint32{"d": tt.old})
			chmod(t, upper, map[string]uint32{"d": tt.asked})
			l := layerOf(upper, ws).past()
			if tt.changedSince {
				l.Began = time.Time{}
			}
			if tt.protected != "" {
				l.Workspace.Protected = []string{tt.protected}
			}
			writes := Apply(t.Context(), l)
			got := paths(t, ws)
			applied, refused := told(writes, "chmod", "d")
			var why string
			if tt.refused != nil {
				why = tt.refused.Error()
			}
			if mode := got["d"].Mode().Perm() | got["d"].Mode()&(fs.ModeSetgid|fs.ModeSticky|fs.ModeSetuid); mode != tt.want || applied != tt.told || refused != why {
				t.Errorf("mode %v, want %v; told %v, refused as %q, want %v, %q", mode, tt.want, applied, refused, tt.told, why)
			}
			if gone := refusedAs(writes, "d/new") != ""; gone != (tt.refused == errGit) {
				t.Errorf("d/new: %q", refusedAs(writes, "d/new"))
			}
		})
	}
}

// The workspace's own mode is the operator's, and that a script set another is told.
func TestApplyKeepsTheTopsMode(t *testing.T) {
	upper, ws := tree(t), tree(t)
	chmod(t, upper, map[string]uint32{".": 0o777})
	writes := Apply(t.Context(), layerOf(upper, ws).past())
	info, err := os.Stat(ws.Name())
	if _, refused := told(writes, "chmod", "."); err != nil || info.Mode().Perm() != 0o755 || refused != errTop.Error() {
		t.Errorf("mode %v, %v; told %+v", info.Mode(), err, writes)
	}
}

// What a directory holds that its owner closed to himself goes whole, and changes in it are made; it has
// its mode again then.
func TestApplyInClosedDirectories(t *testing.T) {
	upper, ws := tree(t, "kept/deep/new", "kept/deep/x", "file"), tree(t, "gone/closed/x", "gone/closed/y", "gone/a", "kept/deep/x", "kept/deep/out", "file/closed/x")
	closed := map[string]uint32{"gone/closed": 0o555, "gone": 0o555, "kept/deep": 0o555, "file/closed": 0o555}
	chmod(t, ws, closed)
	chmod(t, upper, map[string]uint32{"kept/deep": 0o555})
	a, to := applierOn(t, layerOf(upper, ws).past())
	a.root = os.Geteuid() == 0
	if !a.remove(to, "gone", "gone", "") {
		t.Errorf("gone: %+v", a.writes)
	}
	l := layerOf(upper, ws).past()
	writes := Apply(t.Context(), l)
	for _, w := range writes {
		if w.Refused != "" {
			t.Errorf("%+v", w)
		}
	}
	got := paths(t, ws)
	if got["gone"] != nil || got["kept/deep/new"] == nil || !got["file"].Mode().IsRegular() || got["kept/deep"].Mode().Perm() != 0o555 {
		t.Errorf("left is %v, told %+v", got, writes)
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
	a.root = os.Geteuid() == 0
	if done := a.remove(to, "d", "d", ""); done || len(paths(t, ws)) != len(before) {
		t.Errorf("left is %v of %v, told %+v", paths(t, ws), before, a.writes)
	}
	return a.writes
}
