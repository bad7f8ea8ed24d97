package staged

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// user::rw-, user:7:rw-, group::---, mask::rw-, other::r--
const listOf7 = "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x06\x00\x07\x00\x00\x00\x04\x00\x00\x00\xff\xff\xff\xff\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff"

func listOn(t *testing.T, p string) string {
	t.Helper()
	buf := make([]byte, 100)
	n, err := unix.Getxattr(p, accessList, buf)
	if err != nil && !errors.Is(err, unix.ENODATA) {
		t.Fatal(err)
	}
	return string(buf[:max(n, 0)])
}

// A file that replaces another has the other's owner, group and access list, and none replaces a file of
// a user who is neither the directory's owner nor the command's.
func TestApplyKeepsWhoseTheReplacedIs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability root: files of several users")
	}
	const leased, command, owner, group = 77, 65534, someone, 4
	upper, ws := tree(t, "same", "listed", "theirs", "theirs-listed", "open", "open-group", "own", "new"), tree(t, "same", "listed", "theirs", "theirs-listed", "open", "open-group", "own")
	if err := errors.Join(ws.Chown(owner, owner)); err != nil {
		t.Fatal(err)
	}
	for name, as := range map[string]struct {
		uid, gid int
		mode     uint32
		list     bool
	}{
		"same": {owner, group, 0o660, false}, "listed": {owner, group, 0o664, true}, "theirs": {7, group, 0o664, false},
		"theirs-listed": {7, group, 0o666, true}, "open": {7, group, 0o4666, false}, "open-group": {7, command, 0o664, false}, "own": {command, group, 0o664, false},
	} {
		p := filepath.Join(ws.Name(), name)
		if as.list {
			if err := unix.Setxattr(p, accessList, []byte(listOf7), 0); err != nil {
				t.Skipf("missing capability: access lists: %v", err)
			}
		}
		if err := errors.Join(os.Chown(p, as.uid, as.gid), unix.Chmod(p, as.mode)); err != nil {
			t.Fatal(err)
		}
	}
	for p := range paths(t, upper) {
		p = filepath.Join(upper.Name(), p)
		if err := errors.Join(os.Chown(p, leased, leased), unix.Chmod(p, 0o664)); err != nil {
			t.Fatal(err)
		}
	}
	l := layerOf(upper, ws).past()
	l.UID, l.GID, l.FileUID, l.FileGID = leased, leased, command, command
	writes := Apply(t.Context(), l)
	for name := range paths(t, upper) {
		want := ""
		if strings.HasPrefix(name, "theirs") || strings.HasPrefix(name, "open") {
			want = errOwner.Error()
		}
		if why := refusedAs(writes, name); why != want {
			t.Errorf("%s: refused as %q, want %q", name, why, want)
		}
	}
	got := paths(t, ws)
	for name, want := range map[string]string{
		"same": "54321 4 -rw-rw-r--", "listed": "54321 4 -rw-rw-r--", "theirs": "7 4 -rw-rw-r--", "theirs-listed": "7 4 -rw-rw-rw-",
		"open": "7 4 urw-rw-rw-", "open-group": "7 65534 -rw-rw-r--", "own": "65534 4 -rw-rw-r--", "new": "54321 54321 -rw-r--r--",
	} {
		st := got[name].Sys().(*syscall.Stat_t)
		if is := fmt.Sprintf("%d %d %v", st.Uid, st.Gid, got[name].Mode()); is != want {
			t.Errorf("%s is %s, want %s", name, is, want)
		}
		if list := listOn(t, filepath.Join(ws.Name(), name)); name == "listed" && list != listOf7 || (list != "") != strings.HasSuffix(name, "listed") {
			t.Errorf("%s: access list %q", name, list)
		}
	}
}

// A file keeps its own list, and gets neither another file's list nor the directory's default one.
func TestApplyKeepsLists(t *testing.T) {
	upper, ws := tree(t, "listed", "plain"), tree(t, "listed", "plain")
	if err := errors.Join(unix.Setxattr(filepath.Join(ws.Name(), "listed"), accessList, []byte(listOf7), 0),
		unix.Setxattr(ws.Name(), "system.posix_acl_default", []byte(listOf7), 0)); err != nil {
		t.Skipf("missing capability: access lists: %v", err)
	}
	chmod(t, upper, map[string]uint32{"listed": 0o664})
	Apply(t.Context(), layerOf(upper, ws).past())
	for p, want := range map[string]string{"listed": listOf7, "plain": ""} {
		if got := listOn(t, filepath.Join(ws.Name(), p)); got != want {
			t.Errorf("%s: access list %q, want %q", p, got, want)
		}
		if b, err := os.ReadFile(filepath.Join(ws.Name(), p)); err != nil || string(b) != p {
			t.Errorf("%s holds %q, %v", p, b, err)
		}
	}
}

// A file has the time the command's has, unless that would show a change as none, or as one to come.
func TestApplyKeepsTimes(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	old, later, ancient, future := now.Add(-48*time.Hour), now.Add(-24*time.Hour), time.Unix(-1<<33, 0), now.Add(24*time.Hour)
	upper, ws := tree(t, "new", "rewritten", "hidden", "backdated", "ancient", "future"), tree(t, "rewritten", "hidden", "backdated")
	for dir, times := range map[*os.File]map[string]time.Time{
		ws:    {"rewritten": old, "hidden": old, "backdated": later},
		upper: {"new": old, "rewritten": later, "hidden": old, "backdated": old, "future": future, "ancient": now},
	} {
		for p, at := range times {
			if err := os.Chtimes(filepath.Join(dir.Name(), p), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	long := []unix.Timespec{{Sec: ancient.Unix()}, {Sec: ancient.Unix()}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(upper.Name(), "ancient"), long, 0); err != nil {
		t.Fatal(err)
	}
	Apply(t.Context(), layerOf(upper, ws).past())
	got := paths(t, ws)
	for p, want := range map[string]time.Time{"new": old, "rewritten": later} {
		if at := got[p].ModTime(); !at.Equal(want) {
			t.Errorf("%s is of %v, want %v", p, at, want)
		}
	}
	for _, p := range []string{"hidden", "backdated", "ancient", "future"} {
		if at := got[p].ModTime(); at.Before(now) || !at.Before(future) {
			t.Errorf("%s is of %v, want the time of applying, %v or later", p, at, now)
		}
	}
}

// In a sticky directory the owner says who made a file, which is not whose directory it is.
func TestApplyOwnsInStickyDirectories(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability: root, who can give files away")
	}
	upper, ws := tree(t, "d/new", "d/sub/new"), tree(t, "d/old")
	if err := os.Chmod(filepath.Join(ws.Name(), "d"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(upper.Name(), "d"), 0o777); err != nil {
		t.Fatal(err)
	}
	l := layerOf(upper, ws).past()
	const leased, someone = 77, 65534
	l.UID, l.GID, l.FileUID, l.FileGID = leased, leased, someone, someone
	for _, p := range []string{"d/new", "d/sub", "d/sub/new"} {
		if err := os.Chown(filepath.Join(upper.Name(), p), leased, leased); err != nil {
			t.Fatal(err)
		}
	}
	writes := Apply(t.Context(), l)
	for _, p := range []string{"d/new", "d/sub", "d/sub/new"} {
		info, err := os.Lstat(filepath.Join(ws.Name(), p))
		if err != nil {
			t.Fatalf("%v: %+v", err, writes)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != someone || st.Gid != someone {
			t.Errorf("%s belongs to %d:%d", p, st.Uid, st.Gid)
		}
	}
}
