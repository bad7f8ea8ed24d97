package detect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// What another user can put in its place is not started with the rights of a server that is root: as that
// user, or as one whom nothing else has when there are several.
func TestForeignInterpreterIsAskedAsItsOwner(t *testing.T) {
	sandboxtest.Need(t, "root", "python3")
	const alice, bob = 65532, 65533 // whom no list names
	for _, tt := range []struct {
		name   string
		change func(dir, file string) error
		want   int
	}{
		{"nobody else", func(string, string) error { return nil }, 0},
		{"the file", func(_, file string) error { return os.Lchown(file, alice, alice) }, alice},
		{"the directory", func(dir, _ string) error { return os.Lchown(dir, alice, alice) }, alice},
		{"a directory above", func(dir, _ string) error { return os.Lchown(filepath.Dir(dir), alice, alice) }, alice},
		{"a link to a directory above", func(dir, _ string) error { return os.Lchown(relink(t, dir), alice, alice) }, alice},
		{"file and directory", func(dir, file string) error {
			return errors.Join(os.Lchown(dir, alice, alice), os.Lchown(file, alice, alice))
		}, alice},
		{"the file and another the directory", func(dir, file string) error {
			return errors.Join(os.Lchown(dir, alice, alice), os.Lchown(file, bob, bob))
		}, nobody},
		{"with their group the directory", func(dir, _ string) error {
			return errors.Join(os.Lchown(dir, alice, alice), os.Chmod(dir, 0o775))
		}, nobody},
		{"as one of root's group the directory", func(dir, _ string) error { return os.Chmod(dir, 0o775) }, nobody},
		{"as one of root's group a directory above", func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o775) }, nobody},
		{"nothing in a sticky directory above", func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777|os.ModeSticky) }, 0},
		{"the file in a sticky directory", func(dir, file string) error {
			return errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Lchown(file, alice, alice))
		}, alice},
	} {
		t.Run(tt.name, func(t *testing.T) {
			is := fmt.Sprintf(`[ "$(id -u)" = %d ]`, tt.want)
			if tt.want == nobody { // a user whom nothing else has
				users := native.DefaultUIDs()
				is = fmt.Sprintf(`[ "$(id -u)" -ge %d ] && [ "$(id -u)" -le %d ] && [ "$(id -G)" = "$(id -u)" ]`, users.First, users.Last)
			} else if tt.want != 0 {
				is += ` && [ "$(id -G)" = 65534 ]`
			}
			dir := fake(t, "python3", "PATH=/usr/bin:/bin\n"+is+` || exit 1
exec /usr/bin/python3 "$@"`)
			if err := tt.change(dir, filepath.Join(dir, "python3")); err != nil {
				t.Fatal(err)
			}
			f := Interpreters(dir)
			f.dirs = []string{dir}
			if in, err := f.Find(t.Context(), "python3"); err != nil || in == nil {
				t.Errorf("Find = %+v, %v; is it asked as %d?", in, err, tt.want)
			}
		})
	}
}

// A file that others may change is refused before anybody is asked.
func TestOwnerOfSharedFile(t *testing.T) {
	sandboxtest.Need(t, "root")
	file := filepath.Join(fake(t, "node", ""), "node")
	for mode, want := range map[os.FileMode]uint32{0o755: 0, 0o775: nobody, 0o757: nobody} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if owner, err := ownerOf(true, file); owner != want || err != nil {
			t.Errorf("%v: ownerOf = %d, %v; want %d", mode, owner, err, want)
		}
	}
}

// The shell of a shim that root starts comes from where root alone puts programs.
func TestRootAsksWithItsOwnPath(t *testing.T) {
	sandboxtest.Need(t, "root", "bash", "python3")
	const shim = "#!/usr/bin/env bash\nexec /usr/bin/python3 \"$@\"\n"
	for _, tt := range []struct {
		name   string
		change func(dir string) error
	}{
		{"another's", func(dir string) error { return os.Lchown(dir, 65533, 65533) }},
		{"a group's", func(dir string) error { return os.Chmod(dir, 0o775) }},
		{"everyone's", func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }},
		{"behind another's link", func(dir string) error { return os.Lchown(relink(t, dir), 65533, 65533) }},
	} {
		shims := fake(t, "python3", "")
		if err := os.WriteFile(filepath.Join(shims, "python3"), []byte(shim), 0o755); err != nil {
			t.Fatal(err)
		}
		theirs := fake(t, "bash", `: >"${0%/*}/harm"; exec /bin/bash "$@"`)
		if err := tt.change(theirs); err != nil {
			t.Fatal(err)
		}
		f := Interpreters(theirs + string(filepath.ListSeparator) + shims)
		if in, err := f.Find(t.Context(), "python3"); err != nil || in == nil {
			t.Errorf("%s: Find = %+v, %v", tt.name, in, err)
		}
		if _, err := os.Lstat(filepath.Join(theirs, "harm")); err == nil {
			t.Errorf("%s: root started the shell in it", tt.name)
		}
		if err := os.Lchown(filepath.Join(shims, "python3"), 65533, 65533); err != nil {
			t.Fatal(err)
		}
		dirs, _, err := asOwner(exec.Command(filepath.Join(shims, "python3")), shims, f.dirs, "")
		if err != nil || !slices.Contains(dirs, theirs) {
			t.Errorf("%s: another user's shim is asked with %q, %v", tt.name, dirs, err)
		}
	}
}

// Whoever could name the program has chosen it: root does not ask it for its version.
func TestNamedProgramIsAskedAsWhoNamedIt(t *testing.T) {
	sandboxtest.Need(t, "root")
	dir := fake(t, "node", `echo "${0%/*}/showuid"`)
	copySelf(t, filepath.Join(dir, "showuid"))
	for _, uid := range []int{0, 65533} {
		if err := os.Lchown(filepath.Join(dir, "node"), uid, uid); err != nil {
			t.Fatal(err)
		}
		f := Interpreters(dir)
		f.dirs = []string{dir}
		if in, err := f.Find(t.Context(), "node"); err != nil || in.Version != strconv.Itoa(uid) {
			t.Errorf("Find = %+v, %v; want the version %d", in, err, uid)
		}
	}
}

// A shim of another user looks into that user's home.
func TestHomeOfOwner(t *testing.T) {
	sandboxtest.Need(t, "root")
	daemon, err := user.Lookup("daemon")
	if err != nil {
		t.Skip("missing capability: an account of the name daemon")
	}
	uid, err := strconv.Atoi(daemon.Uid)
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]string{0: ownHome(), uid: daemon.HomeDir, nobody: "none", 65533: "none"} {
		dir := fake(t, "node", `[ "${HOME-none}" = "`+want+`" ] && echo /usr/bin/true`)
		if err := os.Lchown(filepath.Join(dir, "node"), uid, uid); err != nil {
			t.Fatal(err)
		}
		f := Interpreters(dir)
		f.dirs = []string{dir}
		if in, err := f.Find(t.Context(), "node"); err != nil || in == nil {
			t.Errorf("user %d: Find = %+v, %v; want the home %s", uid, in, err, want)
		}
	}
}

// Who is asked has no terminal to read or to type into, and leaves nothing running.
func TestAskedInOwnSession(t *testing.T) {
	sandboxtest.Need(t, "linux")
	dir := fake(t, "node", `PATH=/usr/bin:/bin
read -r pid name state parent group session terminal rest </proc/$$/stat
[ "$group $session $terminal" = "$$ $$ 0" ] && [ "$(readlink /proc/$$/fd/0)" = /dev/null ] || exit 1
exec 3>"${0%/*}/fifo"
sleep 60 &
echo /usr/bin/true`)
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	f := Interpreters(dir)
	f.dirs = []string{dir}
	if in, err := f.Find(t.Context(), "node"); err != nil || in == nil {
		t.Errorf("Find = %+v, %v", in, err)
	}
	if err := end.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := end.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the process it left in the background is alive: %v", err)
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
		owner, err := ownerOf(true, filepath.Join(inner, "python3"))
		if err != nil || closed != (owner == 0) {
			t.Errorf("closed %t: ownerOf = %d, %v", closed, owner, err)
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
	if owner, err := ownerOf(true, filepath.Join(inner, "link")); owner != 0 || err != nil {
		t.Errorf("a link out of it: ownerOf = %d, %v", owner, err)
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
