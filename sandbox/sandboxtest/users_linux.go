package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// nobody is a user that several services on a machine may have, and that owns the files that commands of a
// root server create in a workspace.
const nobody = 65534

// testUsers examines runs from the host.
func testUsers(t *testing.T, f *fixture) {
	t.Run("two at once", func(t *testing.T) { usersAtOnce(t, f, sandbox.Workspace{}) })
	t.Run("two at once in a workspace of all", func(t *testing.T) {
		modes := f.modes()
		usersAtOnce(t, f, sandbox.Workspace{Mode: modes[len(modes)-1], Dir: openDir(t, plainOwners(t))})
	})
	for _, mode := range f.modes() {
		if mode == sandbox.WorkspaceRO && f.has(OwnKernel) {
			continue // a command owns no file of the host there
		}
		t.Run(string(mode), func(t *testing.T) { usersOfFiles(t, f, mode, sandbox.Owner{}, t.TempDir()) })
		t.Run(string(mode)+" of a user", func(t *testing.T) { usersOfFiles(t, f, mode, theirs, t.TempDir()) })
		t.Run(string(mode)+" without mounts that change owners", func(t *testing.T) {
			usersOfFiles(t, f, mode, theirs, plainOwners(t))
		})
	}
	t.Run("closed", func(t *testing.T) { closedWorkspace(t, f) })
}

// theirs is a user that an operator names as the owner of a workspace.
var theirs = sandbox.Owner{UID: 54001, GID: 54002}

// plainOwners returns a directory on a file system that does not support mapped owners.
func plainOwners(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
		t.Skipf("missing capability: mounts: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// closedWorkspace checks that only the operator can fix a workspace that the command may not enter, and that
// no command has root's rights in a workspace.
func closedWorkspace(t *testing.T, f *fixture) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability: root, whose commands are other users")
	}
	ws := t.TempDir()
	if err := errors.Join(os.Chown(ws, int(theirs.UID), int(theirs.GID)), os.Chmod(ws, 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := f.script(t, "pwd.sh", "pwd; echo done")
	cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceRO, Dir: openDir(t, ws)}
	for cwd, operator := range map[string]bool{"": true, ".": true, sandbox.WorkspaceDir: true,
		"sub": false} {
		cmd.Cwd = cwd
		var refused *sandbox.CwdError
		_, err := f.runner.Run(t.Context(), cmd)
		if !errors.As(err, &refused) || refused.Cwd == "" ||
			strings.Contains(refused.Remedy(), "--workspace-owner") != operator {
			t.Errorf("Run in %q = %v, want a CwdError", cwd, err)
		}
	}
	cmd.Cwd = ""
	for _, owner := range []sandbox.Owner{{GID: 1}, {UID: 1<<32 - 1}, {UID: 1, GID: 1<<32 - 1}} {
		cmd.Workspace.Owner = owner
		var refused *sandbox.UnavailableError
		if _, err := f.runner.Run(t.Context(), cmd); !errors.As(err, &refused) {
			t.Errorf("Run with owner %v = %v", owner, err)
		}
	}
}

// usersAtOnce checks that each of two runs of a root server has a user of its own, and that neither the other
// run's user nor nobody can inspect or signal its processes, even outside a sandbox. Only in a workspace
// whose owners cannot be mapped do both run as nobody; then they can signal each other, and no more.
func usersAtOnce(t *testing.T, f *fixture, ws sandbox.Workspace) {
	Need(t, "bash")
	ctx, stop := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	defer runs.Wait()
	defer stop()
	for i := range 2 {
		cmd := f.script(t, fmt.Sprintf("stay%d.sh", i), "echo up; sleep 600")
		up := make(chan bool, 1)
		cmd.Live, cmd.Limits.Timeout, cmd.Workspace = awaited(up), slack, ws
		runs.Go(func() {
			if res, err := f.runner.Run(ctx, cmd); err != nil || res.Outcome != sandbox.Canceled {
				t.Errorf("Run = %+v, %v", res, err)
			}
			close(up)
		})
		<-up
	}
	users := map[int][]string{}
	for _, process := range below(os.Getpid()) {
		pid, _, _ := strings.Cut(process, " ")
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			continue
		}
		_, line, _ := strings.Cut(string(status), "\nUid:")
		var real, effective, saved, files int
		if _, err := fmt.Sscan(line, &real, &effective, &saved, &files); err != nil ||
			real != effective || real != saved || real != files {
			t.Errorf("process %s has several users: %.40q, %v", pid, line, err)
		}
		users[real] = append(users[real], pid)
	}
	if own := os.Geteuid(); own != 0 {
		if len(users) != 1 || users[own] == nil {
			t.Errorf("an ordinary user's commands are of other users: %v", users)
		}
		return
	}
	delete(users, 0) // processes that wait outside
	shared := ws.Dir != nil
	if all := len(users) == 1 && users[nobody] != nil; all != shared ||
		!shared && (len(users) != 2 || users[nobody] != nil) {
		t.Fatalf("users of two runs: %v", users)
	}
	for spy := range users {
		for _, as := range slices.Concat(slices.Collect(maps.Keys(users)), []int{nobody}) {
			if as == spy && !shared {
				continue
			}
			look := exec.Command("/bin/sh", "-c", `for p; do
	for f in environ maps mem cwd/. root/. fd/0 ns/user; do
		head -c 1 /proc/$p/$f 2>/dev/null | grep -q . && echo "BREACH reads $f"
		readlink /proc/$p/${f%/.} 2>/dev/null && echo "BREACH finds $f"
	done
	kill -0 $p 2>/dev/null && echo "BREACH signals"
done; echo done`, "look")
			look.Args = append(look.Args, users[spy]...)
			who := &syscall.Credential{Uid: uint32(as), Gid: uint32(as)}
			look.SysProcAttr = &syscall.SysProcAttr{Credential: who}
			out, err := look.Output()
			if shared {
				out = bytes.ReplaceAll(out, []byte("BREACH signals\n"), nil)
			}
			if err != nil || string(out) != "done\n" {
				t.Errorf("user %d looks at the processes of user %d: %s, %v", as, spy, out, err)
			}
		}
	}
}

// awaited is a writer that reports when something was written.
type awaited chan bool

func (a awaited) Write(p []byte) (int, error) {
	select {
	case a <- true:
	default:
	}
	return len(p), nil
}

// usersOfFiles checks the owners of files that runs of a root server can read, change and create in a
// workspace. They must not depend on the user that an earlier run had.
func usersOfFiles(t *testing.T, f *fixture, mode sandbox.WorkspaceMode, owner sandbox.Owner, ws string) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability root: files of several users")
	}
	type user struct{ uid, gid int }
	command, other := user{int(owner.UID), int(owner.GID)}, user{54321, 54321}
	if command.uid == 0 {
		command = user{nobody, nobody}
	}
	mkTree(t, ws, map[string]string{"own/private": "own", "shared/a": "a", "others/b": "TOPSECRET"})
	if owner.UID != 0 { // otherwise the owner is nobody
		other = user{nobody, nobody}
	}
	for name, as := range map[string]struct {
		user
		mode fs.FileMode
	}{
		".": {other, 0o755}, "own": {command, 0o700}, "own/private": {command, 0o600},
		"shared":   {other, 0o777 | fs.ModeSticky},
		"shared/a": {command, 0o644}, "others": {other, 0o755}, "others/b": {other, 0o600},
	} {
		p := filepath.Join(ws, name)
		if err := errors.Join(os.Chown(p, as.uid, as.gid), os.Chmod(p, as.mode)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := f.script(t, "own.sh", `cd /workspace; cat own/private
cat others/b 2>/dev/null && echo BREACH
{ echo >others/b || echo >others/c || chmod 777 others; } 2>/dev/null && echo BREACH
echo $1 >own/private; echo $1 >>shared/a; mkdir -p shared/d; echo $1 >>shared/d/new; echo $1 >>own/new
cat shared/d/new own/new; echo done`)
	cmd.Workspace = sandbox.Workspace{Mode: mode, Dir: openDir(t, ws), Owner: owner}
	var made strings.Builder
	for i, before := range []string{"own", "0\n", "1\n"} {
		cmd.Argv = append(cmd.Argv[:2:2], strconv.Itoa(i))
		_, _ = fmt.Fprintf(&made, "%d\n", i)
		want := before + made.String() + made.String() + "done\n"
		if mode == sandbox.WorkspaceRO {
			want = "owndone\n"
		}
		if got := string(f.runOK(t, cmd).Stdout.Head); got != want {
			t.Errorf("run %d prints %q, want %q", i, got, want)
		}
	}
	err := filepath.WalkDir(ws, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		is, want := user{int(st.Uid), int(st.Gid)}, command
		if rel, _ := filepath.Rel(ws, p); slices.Contains([]string{".", "shared", "others", "others/b"},
			rel) {
			want = other
		}
		if is != want {
			t.Errorf("%s belongs to %v, want %v", p, is, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
