package detect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// fakes are programs that could be found under a backend's name.
var fakes = map[string]string{
	"does nothing": "exit 0",
	"fails":        "echo no >&2; exit 1",
	// What comes after "--" is the helper, with the environment it would have inside.
	"isolates nothing": `while [ "$1" != -- ]; do [ "$1" = --setenv ] && export "$2=$3"; shift; done; shift; exec "$@"`,
	"isolates processes alone": `while [ "$1" != -- ]; do [ "$1" = --setenv ] && export "$2=$3"; shift; done; shift
exec unshare --user --map-root-user --pid --fork --mount-proc "$@"`,
	"starts the command itself": `exec /bin/sh -c 'echo "tree x"; exec sleep 1'`,
}

func TestSelectRefusesFakes(t *testing.T) {
	sandboxtest.Need(t, "userns")
	for _, backend := range []string{"bwrap", "runsc"} {
		for name, script := range fakes {
			t.Run(backend+" "+name, func(t *testing.T) {
				dir := fake(t, backend, script)
				r, reports, err := Select(t.Context(), backend, &Options{Path: dir})
				u, ok := errors.AsType[*sandbox.UnavailableError](err)
				if r != nil || !ok || u.Backend != backend || u.Reason == "" {
					t.Errorf("Select = %v, %v; want an UnavailableError", r, err)
				}
				if len(reports) != 1 || reports[0].OK || reports[0].Enforces != nil {
					t.Errorf("reports = %+v", reports)
				}
				if strings.Contains(err.Error(), dir) {
					t.Errorf("the error has a path of the host: %v", err)
				}
			})
		}
	}
}

// fake puts a script under a backend's name where the tests' user would find it.
func fake(t *testing.T, name, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A program that others may change is not started, not even for its self-test.
func TestSelectRefusesForeignProgram(t *testing.T) {
	sandboxtest.Need(t, "linux")
	mark := filepath.Join(t.TempDir(), "ran")
	dir := fake(t, "bwrap", "touch "+mark)
	if err := os.Chmod(filepath.Join(dir, "bwrap"), 0o777); err != nil {
		t.Fatal(err)
	}
	o := &Options{Path: dir}
	if path, err := o.program("bwrap"); path == filepath.Join(dir, "bwrap") || path == "" && err == nil {
		t.Errorf("program = %q, %v", path, err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the program was started")
	}
}

func TestSelectSaysWhyOfEach(t *testing.T) {
	all := together([]*sandbox.UnavailableError{
		{Backend: "native", Reason: "no namespaces", Remedy: "allow them", Err: errors.New("private 1")},
		{Backend: "bwrap", Reason: "not there", Remedy: "install it", Err: errors.New("private 2")},
	})
	for _, want := range []string{"native: no namespaces", "bwrap: not there"} {
		if !strings.Contains(all.Error(), want) {
			t.Errorf("error %q lacks %q", all, want)
		}
	}
	if strings.Contains(all.Error(), "private") || !strings.Contains(all.Err.Error(), "private 1") || !strings.Contains(all.Err.Error(), "private 2") {
		t.Errorf("error %q with cause %q", all, all.Err)
	}
	if !strings.Contains(all.Remedy, "allow them") || !strings.Contains(all.Remedy, "install it") {
		t.Errorf("remedy = %q", all.Remedy)
	}
}

func TestSurvey(t *testing.T) {
	sandboxtest.Need(t, "userns")
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	reports := Survey(t.Context(), &Options{Path: dir})
	if len(reports) != 3 {
		t.Fatalf("reports = %+v", reports)
	}
	for i, name := range []string{"native", "bwrap", "runsc"} {
		r := reports[i]
		if r.Name != name || r.OK != (r.Enforces != nil) || r.Fact == "" || r.OK == (r.Hint != "") {
			t.Errorf("report %d = %+v", i, r)
		}
	}
	if !reports[0].OK {
		t.Errorf("native: %+v", reports[0])
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the self-tests left %v, %v", left, err)
	}
}
