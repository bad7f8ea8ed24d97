package detect

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// makeVenv makes a virtual environment with a package, in a directory that a sandbox can show.
func makeVenv(t *testing.T, args ...string) (root, site string) {
	t.Helper()
	sandboxtest.Need(t, "python3")
	cache, err := os.UserCacheDir()
	if err != nil || strings.HasPrefix(cache, "/tmp/") || os.MkdirAll(cache, 0o700) != nil {
		t.Skipf("missing capability: a home directory outside /tmp: %v", err)
	}
	home, err := os.MkdirTemp(cache, "skillsd-test-")
	if err != nil {
		t.Skipf("missing capability: a home directory that can be written: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	home, err = filepath.EvalSymlinks(home)
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(home, "[office]")
	args = append([]string{"-m", "venv", "--without-pip", root}, args...)
	if out, err := exec.Command("/usr/bin/python3", args...).CombinedOutput(); err != nil {
		t.Skipf("missing capability: python3 -m venv: %v: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(root), "*/lib/python3*/site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s, %v", found, err)
	}
	site = found[0]
	if err := errors.Join(os.Mkdir(filepath.Join(site, "office-1.dist-info"), 0o755),
		os.WriteFile(filepath.Join(site, "office.py"), []byte("WORD = 'found'\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return root, site
}

// Scripts of a virtual environment find its packages, in programs that they start too, and nothing else of
// the directory that it lies in. To look at it starts nothing of it.
func TestVirtualEnvironment(t *testing.T) {
	sandboxtest.Need(t, "userns")
	for _, how := range []string{"--symlinks", "--copies"} {
		t.Run(how, func(t *testing.T) {
			root, site := makeVenv(t, how)
			planted, ran := filepath.Join(filepath.Dir(root), "secret"), filepath.Join(filepath.Dir(root), "ran")
			if err := errors.Join(os.WriteFile(planted, []byte("PLANTED"), 0o644),
				os.WriteFile(filepath.Join(site, "a.pth"), []byte("import os; open('"+ran+"', 'w')\n"), 0o644),
				os.WriteFile(filepath.Join(site, "b.pth"), []byte(filepath.Dir(root)+"/src\n"+site+"/x\n/usr/share\n"),
					0o644)); err != nil {
				t.Fatal(err)
			}
			f := Interpreters("")
			f.Name("python3", filepath.Join(root, "bin/python"))
			in, err := f.Find(t.Context(), "python3")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("code of a package was run to look at the environment")
			}
			want := &sandbox.Venv{Dir: root, Base: in.Venv.Base, Packages: 1, Elsewhere: []string{filepath.Dir(root) + "/src"}}
			if diff := cmp.Diff(want, in.Venv); diff != "" || in.Path != root+"/bin/python" {
				t.Errorf("%s, found (-want +got):\n%s", in.Path, diff)
			}
			if apart, err := f.FindApart(t.Context(), "python3"); apart != in || err != nil {
				t.Errorf("FindApart = %+v, %v", apart, err)
			}
			if usual, err := Interpreters("/usr/bin").FindApart(t.Context(), "python3"); usual != nil || err != nil {
				t.Errorf("FindApart in /usr = %+v, %v", usual, err)
			}
			tree, err := os.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			script := `import office, os, subprocess, sys
print(office.WORD, os.path.exists(sys.argv[1]))
for argv in (["python3"], [sys.executable, "-I"]):
    print(subprocess.run(argv + ["-c", "import office; print(office.WORD)"], capture_output=True, text=True).stdout)`
			res, err := native.New(nil).Run(t.Context(), &sandbox.Cmd{
				Argv: []string{in.Path, "-E", "-s", "-B", "-c", script, planted}, Interpreter: in, Tree: tree,
				Env: []string{"PATH=" + root + "/bin:/usr/bin:/bin"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(res.Stdout.Head); got != "found False\nfound\n\nfound\n\n" {
				t.Errorf("the script printed %q, %s", got, res.Stderr.Head)
			}
		})
	}
}

// A virtual environment that cannot be what it says is refused, and no other Python takes its place.
func TestVirtualEnvironmentRefused(t *testing.T) {
	root, _ := makeVenv(t)
	config := filepath.Join(root, "pyvenv.cfg")
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := os.Symlink("/usr/bin/env", filepath.Join(other, "python3")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, config, want string }{
		{"without a home", "version = 3\n", "absolute path of its home"},
		{"with a relative home", "home = bin\n", "absolute path of its home"},
		{"with a home that is gone", "home = /nonexistent\n", "does not have its Python"},
		{"with the home of another program", "home = " + other + "\n", "does not have its Python"},
		{"with itself as its home", "home = " + root + "/bin\n", "does not have its Python"},
	} {
		if err := os.WriteFile(config, []byte(tt.config), 0o644); err != nil {
			t.Fatal(err)
		}
		f := Interpreters("")
		f.Name("python3", filepath.Join(root, "bin/python3"))
		if in, err := f.Find(t.Context(), "python3"); in != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Find = %+v, %v; want %q", tt.name, in, err, tt.want)
		}
	}
	if err := errors.Join(os.WriteFile(config, good, 0o644), os.Chmod(config, 0o666)); err != nil {
		t.Fatal(err)
	}
	f := Interpreters("")
	f.Name("python3", filepath.Join(root, "bin/python3"))
	if in, err := f.Find(t.Context(), "python3"); in != nil || err == nil || !strings.Contains(err.Error(), "writable") {
		t.Errorf("with a configuration that everyone may write: Find = %+v, %v", in, err)
	}
}

// A pyvenv.cfg that is not a regular file refuses the environment, rather than making its Python a plain one.
func TestVirtualEnvironmentConfigIsNotFile(t *testing.T) {
	root, _ := makeVenv(t)
	config := filepath.Join(root, "pyvenv.cfg")
	for _, replace := range []func() error{
		func() error { return os.Mkdir(config, 0o755) },
		func() error { return os.Symlink("/nonexistent", config) },
		func() error { return unix.Mkfifo(config, 0o644) },
	} {
		if err := errors.Join(os.Remove(config), replace()); err != nil {
			t.Fatal(err)
		}
		f := Interpreters(filepath.Join(root, "bin"))
		f.Name("python3", filepath.Join(root, "bin/python3"))
		in, err := f.Find(t.Context(), "python3")
		if in != nil || err == nil || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("Find = %+v, %v", in, err)
		}
	}
}

// A program that the configuration names as an interpreter must say that it is one.
func TestNamedInterpreterSaysVersion(t *testing.T) {
	f := Interpreters("")
	f.Name("python3", "/usr/bin/true")
	in, err := f.Find(t.Context(), "python3")
	if in != nil || err == nil || !strings.Contains(err.Error(), "does not print a version") {
		t.Errorf("Find of another program = %+v, %v", in, err)
	}
}

// A Python that its environment reaches through a link to a directory, as uv keeps one for each minor version,
// is found by that link in the sandbox too.
func TestVirtualEnvironmentBehindLink(t *testing.T) {
	store, minor, real := ".local/share/uv/python", "cpython-3.12-linux", "cpython-3.12.1-linux"
	home := layOut(t, filepath.Join(store, real, "bin/python3.12"), []string{store + "/" + real + "/lib/python3.12/os.py"},
		map[string]string{
			filepath.Join(store, minor): filepath.Join(store, real),
			"work/.venv/bin/python3.12": filepath.Join(store, minor, "bin/python3.12"),
			"work/.venv/bin/python3":    "work/.venv/bin/python3.12",
			"away/.venv/bin/python3":    "away/hop/python3.12",
			"away/hop/python3.12":       filepath.Join(store, real, "bin/python3.12"),
			"away/through/python3.12":   filepath.Join(store, real, "bin/python3.12"),
			"outside/.venv/bin/python3": "outside/link/python3.12",
			"outside/link":              "away/through",
		}, nil)
	for dir, base := range map[string]string{"work": minor, "away": real, "outside": real} {
		text := "home = " + filepath.Join(home, store, base, "bin") + "\n"
		if err := os.WriteFile(filepath.Join(home, dir, ".venv/pyvenv.cfg"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	find := func(dir string) (*sandbox.Interpreter, error) {
		f := Interpreters(filepath.Join(home, dir, ".venv/bin"))
		f.dirs = f.dirs[:1]
		homes := f.private.homes
		f.private.homes = func() []string { return append(homes(), home) }
		return f.Find(t.Context(), "python3")
	}
	in, err := find("work")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{filepath.Join(home, store, minor): filepath.Join(home, store, real)}, in.Links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	for dir, want := range map[string]string{"away": "which scripts do not see", "outside": "which scripts do not see"} {
		if in, err := find(dir); in != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Find = %+v, %v; want %q", dir, in, err, want)
		}
	}
}
