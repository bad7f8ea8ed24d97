package native

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

func TestParseUIDs(t *testing.T) {
	for text, want := range map[string]UIDs{
		"": {}, "2000-2001": {2000, 2001}, "7-7": {7, 7}, "70000-4294967294": {70000, 4294967294},
		"5": {}, "-5": {}, "5-": {}, "9-8": {}, "0-5": {}, "60000-65534": {}, "65535-70000": {}, "70000-4294967295": {},
		"1-4294967296": {}, " 5-6": {}, "5-6-7": {}, "+5-6": {},
	} {
		got, err := ParseUIDs(text)
		if got != want || (err == nil) != (text == "" || want != UIDs{}) {
			t.Errorf("ParseUIDs(%q) = %v, %v; want %v", text, got, err, want)
		}
		if want != (UIDs{}) && got.String() != text {
			t.Errorf("%q is written as %v", text, got)
		}
	}
}

// Neither an account nor a container may have a user of the range.
func TestUIDsOfSomebody(t *testing.T) {
	u := UIDs{1000, 1999}
	const passwd = "root:x:0:0::/root:/bin/sh\nbroken\nx:y:z:::\n"
	for _, tt := range []struct {
		lines        string
		first, count int
		want         string
	}{
		{passwd + "alice:x:999:0::/:\nbob:x:2000:0::/:", 2, -1, ""},
		{passwd + "alice:x:1000:0::/:\n", 2, -1, "alice"},
		{passwd + "bob:x:1999:0::/:", 2, -1, "bob"},
		{"alice:100:900\nbob:2000:65536\nnone:1500:0\n", 1, 2, ""},
		{"alice:100:901\n", 1, 2, "alice"},
		{"1001:1999:65536", 1, 2, "1001"},
		{"alice:0:4294967295\n", 1, 2, "alice"},
		{"alice:1000\n", 1, 2, ""},
	} {
		if got := u.owner(tt.lines, tt.first, tt.count); got != tt.want {
			t.Errorf("the range is %q's by %q, want %q", got, tt.lines, tt.want)
		}
	}
	if err := DefaultUIDs().Check(); err != nil {
		t.Error(err)
	}
	if err := (UIDs{1, 100}).Check(); err == nil {
		t.Error("the users of daemons can be used")
	}
}

func TestWithout(t *testing.T) {
	got := without([]syscall.SysProcIDMap{{ContainerID: 0, HostID: 500, Size: 10}, {ContainerID: 20, HostID: 0, Size: 1}, {ContainerID: 30, HostID: 90, Size: 5}}, 20, 3, 9, 30)
	want := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 3}, {ContainerID: 4, HostID: 4, Size: 5}, {ContainerID: 31, HostID: 31, Size: 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where a workspace cannot be mounted for one user, its runs have the user whose rights they have in it.
func TestUserOfWorkspace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability root: users of its own")
	}
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, fstype := range []string{"ramfs", "tmpfs"} {
		for _, mode := range []sandbox.WorkspaceMode{sandbox.WorkspaceRO, sandbox.WorkspaceStaged, sandbox.WorkspaceRW} {
			dir := t.TempDir()
			if err := unix.Mount(fstype, dir, fstype, 0, ""); err != nil {
				t.Skipf("missing capability: mounts: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			open, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			if err := errors.Join(os.Chown(dir, FileUID, FileUID), os.Chmod(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			ws := sandbox.Workspace{Mode: mode, Dir: open}
			own := OwnUsers(ws)
			if fstype == "ramfs" && own {
				t.Errorf("%s: owners change on %s", mode, fstype)
			}
			r := New(nil)
			res, err := r.Run(t.Context(), &sandbox.Cmd{Tree: tree, Workspace: ws, Argv: []string{"/usr/bin/bash", "-c",
				"read in out n </proc/self/uid_map; echo x 2>/dev/null >f; stat -c %u . f 2>/dev/null; echo $out"}})
			if err != nil {
				t.Fatalf("%s, %s: %v, because %v", fstype, mode, err, errors.Unwrap(err))
			}
			lines := strings.Fields(string(res.Stdout.Head))
			uid := lines[len(lines)-1]
			if (uid == strconv.Itoa(FileUID)) == own || uid == "0" {
				t.Errorf("%s, %s: user %s; one of its own is to be had: %v", fstype, mode, uid, own)
			}
			// The command sees its own files, and others see nobody's.
			if want := map[bool]int{true: 2, false: 3}[mode == sandbox.WorkspaceRO]; len(lines) != want || lines[0] != "1000" || want == 3 && lines[1] != "1000" {
				t.Errorf("%s, %s: printed %q", fstype, mode, lines)
			}
			info, err := os.Stat(filepath.Join(dir, "f"))
			if (err == nil) == (mode == sandbox.WorkspaceRO) || err == nil && info.Sys().(*syscall.Stat_t).Uid != FileUID {
				t.Errorf("%s, %s: made %+v, %v", fstype, mode, info, err)
			}
		}
	}
}

// Nobody gets a user whom a run or another process has.
func TestLease(t *testing.T) {
	u := UIDs{2_020_000_000, 2_020_000_019}
	var all sync.WaitGroup
	var mu sync.Mutex
	got, releases := map[int]bool{}, []func(){}
	for range 20 {
		all.Go(func() {
			uid, release, err := u.Lease()
			mu.Lock()
			defer mu.Unlock()
			if err != nil || got[uid] || uid < int(u.First) || uid > int(u.Last) {
				t.Errorf("Lease = %d, %v, leased already: %v", uid, err, got[uid])
				return
			}
			got[uid], releases = true, append(releases, release)
		})
	}
	all.Wait()
	if uid, _, err := u.Lease(); err == nil {
		t.Errorf("Lease of a range in use = %d", uid)
	}
	defer releases[0]()
	for _, release := range releases[1:] {
		release()
	}
	alone := UIDs{2_020_000_100, 2_020_000_100}
	_, release, err := alone.Lease()
	if err != nil {
		t.Fatal(err)
	}
	release()
	_, again, err := alone.Lease()
	if err != nil {
		t.Fatalf("Lease of what was given back: %v", err)
	}
	defer again()
	release() // once more, when somebody else has it
	if uid, _, err := alone.Lease(); err == nil {
		t.Errorf("Lease = %d, whom somebody has", uid)
	}
	if os.Geteuid() != 0 {
		t.Skip("missing capability root: processes of several users")
	}
	own := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.First, Gid: u.First}, Pdeathsig: syscall.SIGKILL}
	other := exec.Command("/bin/sleep", "600")
	other.SysProcAttr = own
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		uid, release, err := u.Lease()
		if err != nil || uid == int(u.First) {
			t.Fatalf("Lease = %d, %v, whom another process has", uid, err)
		}
		release()
	}
	_ = other.Process.Kill()
	_ = other.Wait()
}
