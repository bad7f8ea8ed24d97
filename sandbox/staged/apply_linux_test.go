package staged

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

const someone = 54321 // a user that has nothing

// tree makes a directory with files, and returns it open.
func tree(t *testing.T, files ...string) *os.File {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// layerOf is a layer of the command's own files, over a workspace that nobody changes meanwhile.
func layerOf(upper, ws *os.File) *Layer {
	return &Layer{
		Upper: upper, Workspace: sandbox.Workspace{Dir: ws}, Outcome: sandbox.Exited, MaxBytes: 1 << 20,
		UID: os.Geteuid(), GID: os.Getegid(), FileUID: os.Geteuid(), FileGID: os.Getegid(), Began: time.Now(), Timeout: time.Minute,
	}
}

// paths lists what is in a directory.
func paths(t *testing.T, dir *os.File) map[string]fs.FileInfo {
	t.Helper()
	all := map[string]fs.FileInfo{}
	err := fs.WalkDir(os.DirFS(dir.Name()), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		all[p], err = d.Info()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func refusedAs(writes []sandbox.Write, path string) string {
	for _, w := range writes {
		if w.Path == path {
			return w.Refused
		}
	}
	return "nothing is said of " + path
}

// A file that a command has only moved keeps its owner, and no digest reveals what it could not read.
func TestApplyKeepsOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability root: files of several users")
	}
	const leased, command = 77, 65534
	upper, ws := tree(t, "made", "private", "public", "shared", "listed", "dir/below", "theirs/file"), tree(t)
	if err := errors.Join(ws.Chown(someone, someone), unix.Fchmod(int(ws.Fd()), 0o2777), unix.Fchmod(int(upper.Fd()), 0o777)); err != nil {
		t.Fatal(err)
	}
	for name, as := range map[string]struct {
		uid, gid int
		mode     fs.FileMode
	}{
		"made": {leased, leased, 0o4777}, "dir": {leased, leased, 0o700}, "dir/below": {leased, leased, 0o600},
		"private": {0, 0, 0o600}, "public": {0, 7, 0o664}, "shared": {0, leased, 0o640}, "listed": {0, 0, 0o664},
		"theirs": {7, 7, 0o711}, "theirs/file": {7, 7, 0o600},
	} {
		p := filepath.Join(upper.Name(), name)
		if err := errors.Join(os.Chown(p, as.uid, as.gid), unix.Chmod(p, uint32(as.mode))); err != nil {
			t.Fatal(err)
		}
	}
	listed := filepath.Join(upper.Name(), "listed")
	// user::rw-, user:65534:rw-, group::---, mask::rw-, other::r--
	list := "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x06\x00\xfe\xff\x00\x00\x04\x00\x00\x00\xff\xff\xff\xff\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff"
	lists := unix.Setxattr(listed, accessList, []byte(strings.Replace(list, "\xfe\xff", "\x4d\x00", 1)), 0) == nil
	l := layerOf(upper, ws)
	l.UID, l.GID, l.FileUID, l.FileGID = leased, leased, command, command
	writes := Apply(t.Context(), l)
	digests := map[string]bool{}
	for _, w := range writes {
		if w.Refused != "" {
			t.Errorf("%+v", w)
		}
		digests[w.Path] = w.Digest != ""
	}
	got := paths(t, ws)
	for name, want := range map[string]string{
		"made": "54321 54321 -rwxr-xr-x true", "dir": "54321 54321 dgrwx------ false", "dir/below": "54321 54321 -rw------- true",
		"private": "0 0 -rw------- false", "public": "0 7 -rw-rw-r-- true", "shared": "0 65534 -rw-r----- true",
		"theirs": "7 7 dgrwx--x--x false", "theirs/file": "7 7 -rw------- false",
	} {
		st := got[name].Sys().(*syscall.Stat_t)
		if is := fmt.Sprintf("%d %d %v %v", st.Uid, st.Gid, got[name].Mode(), digests[name]); is != want {
			t.Errorf("%s is %s, want %s", name, is, want)
		}
	}
	buf := make([]byte, 100)
	if n, err := unix.Getxattr(filepath.Join(ws.Name(), "listed"), accessList, buf); lists && (err != nil || string(buf[:n]) != list || digests["listed"]) {
		t.Errorf("listed: access list %q, %v, digest %v", buf[:max(n, 0)], err, digests["listed"])
	}
}

// A file that others could write already, others can write still; no other becomes writable.
func TestApplyKeepsModes(t *testing.T) {
	upper, ws := tree(t, "shared", "closed", "new"), tree(t, "shared", "closed")
	for p, mode := range map[string]uint32{"shared": 0o664, "closed": 0o644} {
		if err := unix.Chmod(filepath.Join(ws.Name(), p), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"shared", "closed", "new"} {
		if err := unix.Chmod(filepath.Join(upper.Name(), p), 0o6777); err != nil {
			t.Fatal(err)
		}
	}
	Apply(t.Context(), layerOf(upper, ws))
	got := paths(t, ws)
	for name, want := range map[string]fs.FileMode{"shared": 0o775, "closed": 0o755, "new": 0o755} {
		if got[name].Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, got[name].Mode(), want)
		}
	}
}

// Where a file system has no files without names, a named one is put in place.
func TestApplyWithNamedFiles(t *testing.T) {
	ws := tree(t, "a")
	_, to := applierOn(t, layerOf(tree(t), ws))
	for i, text := range []string{"new", ""} {
		in := incoming{to: to, name: "a", temp: ".temp", named: true}
		if err := in.createAs(in.temp, unix.O_CREAT|unix.O_EXCL); err != nil {
			t.Fatal(err)
		}
		if _, err := in.f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			in.discard()
		} else if err := in.enter(); err != nil {
			t.Error(err)
		}
		_ = in.f.Close()
		if b, err := os.ReadFile(filepath.Join(ws.Name(), "a")); err != nil || string(b) != "new" || len(paths(t, ws)) != 1 {
			t.Errorf("a holds %q, %v, there are %v", b, err, paths(t, ws))
		}
	}
}

// Only the mark of the overlay that was mounted counts; a command can set the other.
func TestOnlyTrueMarksHide(t *testing.T) {
	for _, tt := range []struct {
		mark    string
		trusted bool
		hides   bool
	}{{"user", false, true}, {"user", true, false}, {"trusted", true, true}, {"trusted", false, false}} {
		upper, ws := tree(t, "d/new"), tree(t, "d/old", "d/deep/old")
		if err := unix.Setxattr(filepath.Join(upper.Name(), "d"), tt.mark+".overlay.opaque", []byte("y"), 0); err != nil {
			t.Logf("not tried: missing capability to set %s attributes: %v", tt.mark, err)
			continue
		}
		l := layerOf(upper, ws)
		l.Trusted = tt.trusted
		writes := Apply(t.Context(), l)
		got := paths(t, ws)
		if gone := got["d/old"] == nil && got["d/deep"] == nil; gone != tt.hides || got["d/new"] == nil {
			t.Errorf("%+v: left is %v, said is %+v", tt, got, writes)
		}
	}
}

// A directory inside one that was replaced hides as well.
func TestReplacedDirectoriesHideBelow(t *testing.T) {
	upper, ws := tree(t, "d/same/new"), tree(t, "d/same/old", "d/old", "keep")
	if err := unix.Setxattr(filepath.Join(upper.Name(), "d"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skipf("missing capability: user attributes: %v", err)
	}
	writes := Apply(t.Context(), layerOf(upper, ws))
	if got := paths(t, ws); len(got) != 4 || got["d/same/new"] == nil || got["keep"] == nil {
		t.Errorf("left is %v, said is %+v", got, writes)
	}
}

// What somebody else changed since the run began stays, and so does what holds it.
func TestApplyLosesNoUpdate(t *testing.T) {
	upper := tree(t, "file", "other", "dir-now-file", "fresh", "replaced/new")
	ws := tree(t, "file", "other", "dir-now-file/x", "replaced/seen", "gone/x", "gone-too/d/x", "moved/x")
	if err := unix.Setxattr(filepath.Join(upper.Name(), "replaced"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skipf("missing capability: user attributes: %v", err)
	}
	l := layerOf(upper, ws)
	later := func() bool { // the clock of a file system moves in steps
		p := filepath.Join(ws.Name(), "fresh")
		if err := os.WriteFile(p, []byte("theirs"), 0o644); err != nil {
			t.Fatal(err)
		}
		e, err := statAt(int(ws.Fd()), "fresh", 0)
		return err == nil && e.changedSince(l.Began)
	}
	for !later() {
	}
	for name, text := range map[string]string{"file": "theirs", "dir-now-file/x": "theirs", "replaced/unseen": "theirs"} {
		if err := os.WriteFile(filepath.Join(ws.Name(), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	writes := Apply(t.Context(), l)
	refused, want := []string{"file", "fresh", "dir-now-file", "replaced/unseen"}, map[string]string{
		"file": "theirs", "fresh": "theirs", "dir-now-file/x": "theirs", "replaced/unseen": "theirs", "other": "other",
		"replaced/new": "replaced/new", "replaced/seen": "",
	}
	if os.Geteuid() == 0 { // which cannot know that it is the same directory
		refused[3], want["replaced/new"], want["replaced/seen"] = "replaced", "", "replaced/seen"
	}
	for _, p := range refused {
		if got := refusedAs(writes, p); got != errChanged.Error() {
			t.Errorf("%s: refused as %q", p, got)
		}
	}
	for p, text := range want {
		if b, err := os.ReadFile(filepath.Join(ws.Name(), p)); string(b) != text || (err == nil) == (text == "") {
			t.Errorf("%s holds %q, %v, want %q", p, b, err, text)
		}
	}
	// A directory that was moved in is new although nothing in it is.
	if err := os.Rename(filepath.Join(ws.Name(), "moved"), filepath.Join(ws.Name(), "gone-too/d/moved")); err != nil {
		t.Fatal(err)
	}
	a, to := applierOn(t, l)
	for p, want := range map[string]bool{"gone": true, "gone-too": false} {
		if done := a.remove(to, p, p, nil); done != want {
			t.Errorf("remove(%s) = %v, want %v", p, done, want)
		}
	}
}

func applierOn(t *testing.T, l *Layer) (*applier, *dir) {
	t.Helper()
	var dirs [2]*dir
	for i, f := range []*os.File{l.Upper, l.Workspace.Dir} {
		d, err := openDir(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		dirs[i] = d
	}
	return newApplier(t.Context(), l, dirs[0]), dirs[1]
}

// A server of root's goes into no directory that was put where the command worked in another.
func TestApplyKnowsTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability root: files of several users")
	}
	upper, ws := tree(t, "theirs/new", "ours/new", "same/new", "replaced/new"), tree(t, "theirs/x", "ours/x", "same/x", "other/x")
	if err := errors.Join(
		os.Chown(filepath.Join(upper.Name(), "theirs"), someone, someone), os.Chmod(filepath.Join(upper.Name(), "ours"), 0o777),
		os.Chown(filepath.Join(upper.Name(), "replaced"), someone, someone),
		unix.Setxattr(filepath.Join(upper.Name(), "replaced"), "user.overlay.opaque", []byte("y"), 0)); err != nil {
		t.Skipf("missing capability: owners and user attributes: %v", err)
	}
	l := layerOf(upper, ws)
	l.UID, l.GID, l.FileUID, l.FileGID = 77, 77, 65534, 65534
	if err := os.Rename(filepath.Join(ws.Name(), "other"), filepath.Join(ws.Name(), "replaced")); err != nil {
		t.Fatal(err)
	}
	l.Began = l.Began.Add(-time.Second)
	e, err := statAt(int(ws.Fd()), "replaced", 0)
	if err != nil || !e.changedSince(l.Began) {
		t.Skipf("missing capability: a file system that marks what is renamed: %v", err)
	}
	writes := Apply(t.Context(), l)
	for p, want := range map[string]string{"theirs/new": errChanged.Error(), "ours/new": errChanged.Error(), "replaced/new": errChanged.Error(), "same/new": ""} {
		if got := refusedAs(writes, p); got != want {
			t.Errorf("%s: refused as %q, want %q", p, got, want)
		}
	}
	if got := paths(t, ws); len(got) != 9 || got["replaced/x"] == nil {
		t.Errorf("left is %v", got)
	}
}

// Every change that is made is reported.
func TestApplyTellsAll(t *testing.T) {
	var names []string
	for i := range maxWrites + 500 {
		names = append(names, fmt.Sprintf("d/f%d", i))
	}
	upper, ws := tree(t, "d/new"), tree(t, append(names, "d/.env")...)
	if err := unix.Setxattr(filepath.Join(upper.Name(), "d"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skipf("missing capability: user attributes: %v", err)
	}
	writes := Apply(t.Context(), layerOf(upper, ws))
	gone := map[string]bool{}
	for _, w := range writes {
		if w.Op == "delete" && w.Refused == "" {
			gone[w.Path] = true
		}
	}
	left := paths(t, ws)
	for _, name := range names {
		if there := left[name] != nil; there == gone[name] {
			t.Fatalf("%s: there %v, reported as deleted %v", name, there, gone[name])
		}
	}
	if last := writes[len(writes)-1]; len(gone) == 0 || last.Refused == "" || left["d/new"] == nil {
		t.Errorf("%d were deleted, the last change is %+v, and new is there: %v", len(gone), last, left["d/new"] != nil)
	}
}

// A secret reaches the workspace neither in a file, whatever is around it, nor as a name.
func TestApplyWithholdsSecrets(t *testing.T) {
	ws, upper := tree(t, "kept"), tree(t, "plain", "dir/pass-word", "kept", "moved")
	for name, text := range map[string]string{"kept": "a pass-word b", "moved": strings.Repeat("x", 70000) + "pass-word"} {
		if err := os.WriteFile(filepath.Join(upper.Name(), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := layerOf(upper, ws)
	l.Workspace.Withhold = func(b []byte) bool { return bytes.Contains(b, []byte("pass-word")) }
	writes := Apply(t.Context(), l)
	for path, want := range map[string]string{"plain": "", "dir/pass-word": "holds a secret", "kept": "holds a secret", "moved": "holds a secret"} {
		if got := refusedAs(writes, path); got != want {
			t.Errorf("%s: refused as %q, want %q", path, got, want)
		}
	}
	text, err := os.ReadFile(filepath.Join(ws.Name(), "kept"))
	if left := paths(t, ws); err != nil || string(text) != "kept" || left["plain"] == nil || left["dir/pass-word"] != nil || left["moved"] != nil {
		t.Errorf("kept holds %q, %v; the workspace has %v", text, err, left)
	}
}
