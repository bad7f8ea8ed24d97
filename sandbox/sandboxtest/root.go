package sandboxtest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
)

// libraries matches the files in the output of ldd.
var libraries = regexp.MustCompile(`(?m)(?:=> |^\s+)(/\S+) \(`)

// RootOf creates a root file system in dir from files of this machine, programs or shared libraries, and the
// libraries that they need, at the same paths. Existing files in dir stay.
func RootOf(dir string, files ...string) error {
	out, err := exec.Command("ldd", files...).Output() // fails for a program without libraries
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		return err
	}
	for _, found := range libraries.FindAllStringSubmatch(string(out), -1) {
		files = append(files, found[1])
	}
	return CopyTo(dir, files...)
}

// CopyTo copies files of this machine, by absolute paths, to the same paths below dir.
func CopyTo(dir string, files ...string) error {
	for _, at := range files {
		to := filepath.Join(dir, at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), copyFile(at, to)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Close())
	if info, statErr := in.Stat(); err == nil && statErr == nil {
		err = errors.Join(os.Chmod(to, info.Mode().Perm()), os.Chtimes(to, info.ModTime(), info.ModTime()))
	}
	return err
}

// OpenRoot returns the root file system in dir. Its directories stay open until the test ends.
func OpenRoot(t *testing.T, dir string) *sandbox.Root {
	t.Helper()
	tops, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	root := &sandbox.Root{}
	for _, top := range tops {
		root.Dirs = append(root.Dirs, sandbox.Mount{Dir: openDir(t, filepath.Join(dir, top.Name())),
			At: "/" + top.Name()})
	}
	return root
}

// testRoot runs a command on a root file system. It must see that file system and nothing of the host's, and
// change nothing.
func testRoot(t *testing.T, f *fixture) {
	dir := t.TempDir()
	if err := RootOf(dir, "/usr/bin/bash", "/usr/bin/ls", "/usr/bin/touch", "/usr/bin/cat",
		"/usr/bin/readlink"); err != nil {
		t.Skipf("missing capability: programs for a root file system: %v", err)
	}
	if err := errors.Join(os.MkdirAll(dir+"/etc/own", 0o755),
		os.WriteFile(dir+"/etc/own/marker", []byte("marked\n"), 0o666),
		os.WriteFile(dir+"/etc/passwd", []byte("sandbox:x:1000:1000::/tmp:/bin/sh\n"), 0o644),
		os.WriteFile(dir+"/etc/group", nil, 0o644), os.Chmod(dir+"/etc/own/marker", 0o666),
		os.Chmod(dir+"/etc/own", 0o777)); err != nil {
		t.Fatal(err)
	}
	root := OpenRoot(t, dir)
	root.Links = map[string]string{"linked": "etc/own"}
	want := []string{"linked"}
	for _, top := range root.Dirs {
		want = append(want, strings.TrimPrefix(top.At, "/"))
	}
	cmd := f.script(t, "root.sh", `cat /linked/marker
for harm in "echo x >/etc/own/marker" "touch /etc/own/more" "touch /usr/x" "touch /x" "touch /etc/passwd"; do
	(eval "$harm") 2>/dev/null && echo "BREACH $harm"
done
ls / /etc /usr/bin
readlink /linked
[ -e /usr/bin/env ] && echo "BREACH the host's programs"
exit 0`)
	cmd.Argv[0], cmd.Interpreter, cmd.Root = "/usr/bin/bash", nil, root
	res, err := f.runner.Run(t.Context(), cmd)
	if u, ok := errors.AsType[*sandbox.UnavailableError](err); ok &&
		strings.Contains(u.Reason, "shared libraries") && u.Remedy != "" {
		t.Skip("missing capability: a test that was built without cgo")
	}
	if err != nil {
		t.Fatal(err)
	}
	out := string(res.Stdout.Head)
	if res.ExitCode != 0 || !strings.HasPrefix(out, "marked\n") || strings.Contains(out, "BREACH") ||
		!strings.HasSuffix(out, "etc/own\n") {
		t.Errorf("exit %d: %s%s", res.ExitCode, out, res.Stderr.Head)
	}
	for _, name := range want {
		if !strings.Contains(out, "\n"+name+"\n") {
			t.Errorf("%s is not in the root file system: %s", name, out)
		}
	}
	if data, err := os.ReadFile(dir + "/etc/own/marker"); err != nil || string(data) != "marked\n" {
		t.Errorf("afterwards: %q, %v", data, err)
	}
	for _, at := range []string{"", "/", "usr", "/usr/bin", "/proc", "/dev", "/skill", "/workspace", "/tmp",
		"/out", "/..", "/."} {
		root.Dirs[0].At = at
		var u *sandbox.UnavailableError
		if res, err := f.runner.Run(t.Context(), cmd); !errors.As(err, &u) {
			t.Errorf("Run with a root file system at %q = %+v, %v, want an UnavailableError", at, res, err)
		}
	}
}
