package detect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// playInterpreter makes a copy of the test binary under the name of an interpreter answer like one, and
// does not return then.
func playInterpreter() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	name, dir := filepath.Base(self), filepath.Dir(self)
	switch {
	case name == "volta-shim":
		// Like the real one it finds its tools below the home.
		found, err := filepath.Glob(filepath.Join(os.Getenv("HOME"), "tools/image/node/*/bin/node"))
		if err != nil || len(found) == 0 {
			os.Exit(1)
		}
		fmt.Println(found[0])
	case strings.HasPrefix(name, "python3"):
		// As Python does: the prefix is above the directory of modules.
		prefix := filepath.Dir(dir)
		real := prefix
		if config, err := os.ReadFile(filepath.Join(prefix, "pyvenv.cfg")); err == nil {
			_, home, _ := strings.Cut(strings.TrimSpace(string(config)), "home = ")
			real = filepath.Dir(home)
		}
		shared := ""
		if where, err := os.ReadFile(filepath.Join(real, "lib/libdir")); err == nil {
			shared = string(where)
		}
		if _, err := os.Stat(filepath.Join(real, "lib/libpython3.12.so")); err == nil {
			shared = filepath.Join(real, "lib")
		}
		fmt.Printf("%s\n%s\n%s\n%s\n", self, real, prefix, shared)
		fmt.Printf("%s\n%[1]s\n%s\n%[2]s\n", filepath.Join(real, "lib/python3.12"), filepath.Join(prefix, "lib/python3.12/site-packages"))
	case name == "showuid":
		fmt.Println(os.Geteuid())
	case name == "node", name == "deno":
		fmt.Println(self)
	default:
		return
	}
	os.Exit(0)
}

// What is mounted of an interpreter is what was installed with it, wherever version managers and users
// put it, and never a home, nor what a user keeps in one.
func TestInterpreterLayouts(t *testing.T) {
	python := "lib/python3.12/os.py"
	for _, tt := range []struct {
		name, interpreter string
		program           string            // that is there
		files             []string          // beside it
		links             map[string]string // to it or to another link
		shims             map[string]string // scripts that start something
		path              string            // of the search
		library           string            // directory of the one a Python is linked with
		want              []string          // mounts
		refused           string            // part of why
	}{
		{name: "nvm", interpreter: "node", program: ".nvm/versions/node/v22.1.0/bin/node", files: []string{".nvm/nvm.sh", ".nvm/versions/node/v22.1.0/lib/node_modules/npm/x"},
			path: ".nvm/versions/node/v22.1.0/bin", want: []string{".nvm/versions/node/v22.1.0"}},
		{name: "fnm", interpreter: "node", program: ".local/share/fnm/node-versions/v22.1.0/installation/bin/node",
			links: map[string]string{".local/state/fnm_multishells/1_2/bin": ".local/share/fnm/node-versions/v22.1.0/installation/bin"},
			path:  ".local/state/fnm_multishells/1_2/bin", want: []string{".local/share/fnm/node-versions/v22.1.0/installation"}},
		{name: "volta", interpreter: "node", program: "tools/image/node/22.1.0/bin/node", files: []string{"tools/image/node/22.1.0/lib/node_modules/npm/x"},
			links: map[string]string{".volta/bin/node": ".volta/bin/volta-shim"}, shims: map[string]string{".volta/bin/volta-shim": ""},
			path: ".volta/bin", want: []string{"tools/image/node/22.1.0"}},
		{name: "asdf", interpreter: "node", program: ".asdf/installs/nodejs/22.1.0/bin/node", shims: map[string]string{".asdf/shims/node": ".asdf/installs/nodejs/22.1.0/bin/node"},
			path: ".asdf/shims", want: []string{".asdf/installs/nodejs/22.1.0"}},
		{name: "mise", interpreter: "python3", program: ".local/share/mise/installs/python/3.12.1/bin/python3.12", files: []string{".local/share/mise/installs/python/3.12.1/" + python},
			links: map[string]string{".local/share/mise/installs/python/3.12/bin/python3": ".local/share/mise/installs/python/3.12.1/bin/python3.12"},
			path:  ".local/share/mise/installs/python/3.12/bin", want: []string{".local/share/mise/installs/python/3.12.1"}},
		{name: "pyenv", interpreter: "python3", program: ".pyenv/versions/3.12.1/bin/python3.12", files: []string{".pyenv/versions/3.12.1/" + python, ".pyenv/.git/config"},
			shims: map[string]string{".pyenv/shims/python3": ".pyenv/versions/3.12.1/bin/python3.12"}, path: ".pyenv/shims", want: []string{".pyenv/versions/3.12.1"}},
		{name: "uv", interpreter: "python3", program: ".local/share/uv/python/cpython-3.12.1-linux-x86_64-gnu/bin/python3.12",
			files: []string{".local/share/uv/python/cpython-3.12.1-linux-x86_64-gnu/" + python, ".local/share/uv/credentials"},
			links: map[string]string{".local/bin/python3": ".local/share/uv/python/cpython-3.12.1-linux-x86_64-gnu/bin/python3.12"},
			path:  ".local/bin", want: []string{".local/share/uv/python/cpython-3.12.1-linux-x86_64-gnu"}},
		{name: "virtual environment of links", interpreter: "python3", program: ".pyenv/versions/3.12.1/bin/python3.12", files: []string{".pyenv/versions/3.12.1/" + python, "work/.git/config", "work/.env"},
			links: map[string]string{"work/.venv/bin/python3": ".pyenv/versions/3.12.1/bin/python3.12"}, path: "work/.venv/bin", want: []string{".pyenv/versions/3.12.1"}},
		{name: "deno", interpreter: "deno", program: ".deno/bin/deno", path: ".deno/bin", want: []string{".deno/bin"}},
		{name: "node in ~/bin", interpreter: "node", program: "bin/node", files: []string{"lib/node_modules/npm/x"}, path: "bin", want: []string{"bin", "lib/node_modules"}},
		{name: "node in ~/.local/bin", interpreter: "node", program: ".local/bin/node", files: []string{".local/share/keyrings/login.keyring", ".local/lib/node_modules/npm/x"},
			path: ".local/bin", want: []string{".local/bin", ".local/lib/node_modules"}},
		{name: "node in ~/.local alone", interpreter: "node", program: ".local/bin/node", path: ".local/bin", want: []string{".local/bin"}},
		{name: "python in ~/.local", interpreter: "python3", program: ".local/bin/python3.12", files: []string{".local/" + python, ".local/state/skillsd/x"},
			links: map[string]string{".local/bin/python3": ".local/bin/python3.12"}, path: ".local/bin", want: []string{".local/bin", ".local/lib/python3.12"}},
		{name: "python in ~", interpreter: "python3", program: "bin/python3.12", files: []string{python},
			links: map[string]string{"bin/python3": "bin/python3.12"}, path: "bin", want: []string{"bin", "lib/python3.12"}},
		{name: "python in ~ with a library", interpreter: "python3", program: "bin/python3", files: []string{python, "lib/libpython3.12.so"}, path: "bin", refused: "linked with a library"},
		{name: "python with a library elsewhere", interpreter: "python3", program: "py/bin/python3", files: []string{"py/" + python}, path: "py/bin", library: "built/lib", want: []string{"built/lib", "py"}},
		{name: "python with a library among keys", interpreter: "python3", program: "py/bin/python3", files: []string{"py/" + python}, path: "py/bin", library: ".ssh/lib", refused: "is in .ssh"},
		{name: "deno in ~", interpreter: "deno", program: "deno", path: ".", refused: "home"},
		{name: "bash in ~", interpreter: "bash", program: "bash", path: ".", refused: "home"},
		{name: "bash among keys", interpreter: "bash", program: ".ssh/bash", path: ".ssh", refused: "is in .ssh"},
		{name: "node among keys", interpreter: "node", program: ".gnupg/x/bin/node", path: ".gnupg/x/bin", refused: "is in .gnupg"},
		{name: "bash among configuration", interpreter: "bash", program: ".config/bash", path: ".config", refused: "more than programs"},
		{name: "python in a project", interpreter: "python3", program: "work/bin/python3", files: []string{"work/" + python, "work/.git/config"}, path: "work/bin", want: []string{"work/bin", "work/lib/python3.12"}},
		{name: "deno in a project", interpreter: "deno", program: "work/deno", files: []string{"work/.env"}, path: "work", refused: "contains .env"},
		{name: "bash in the state", interpreter: "bash", program: "state/x/bash", path: "state/x", refused: "the server's own"},
		{name: "node above the state", interpreter: "node", program: "state/../srv/bin/node", files: []string{"srv/state/x"}, path: "srv/bin", want: []string{"srv/bin"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			home := layOut(t, tt.program, tt.files, tt.links, tt.shims)
			if tt.library != "" {
				if err := errors.Join(os.MkdirAll(filepath.Join(home, tt.library), 0o755),
					os.WriteFile(filepath.Join(home, filepath.Dir(filepath.Dir(tt.program)), "lib/libdir"), []byte(filepath.Join(home, tt.library)), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			f := Interpreters(filepath.Join(home, tt.path))
			f.dirs = f.dirs[:1]
			f.home = func() string { return home }
			homes := f.private.homes
			f.private.homes = func() []string { return append(homes(), home) }
			f.Keep("relative", filepath.Join(home, "state"), filepath.Join(home, "srv/state"))
			in, err := f.Find(t.Context(), tt.interpreter)
			if tt.refused != "" {
				if in != nil || err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("Find = %+v, %v; want it refused: %s", in, err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, dir := range in.Mounts {
				short, err := filepath.Rel(home, dir)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, short)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
			if want := filepath.Join(home, tt.program); in.Path != want {
				t.Errorf("Path = %s, want %s", in.Path, want)
			}
		})
	}
}

// layOut makes a home with an interpreter that answers like one.
func layOut(t *testing.T, program string, files []string, links, shims map[string]string) (home string) {
	t.Helper()
	// A program that another test starts meanwhile would hold open for writing what is written here to be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home = filepath.Join(home, "alice")
	at := func(name string) string {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	copySelf(t, at(program))
	for _, name := range append(files, ".ssh/id_ed25519", ".bashrc") {
		if err := os.WriteFile(at(name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, starts := range shims {
		if starts == "" {
			copySelf(t, at(name))
			continue
		}
		if err := os.WriteFile(at(name), []byte("#!/bin/sh\nexec "+filepath.Join(home, starts)+" \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range links {
		if err := os.Symlink(filepath.Join(home, to), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

func copySelf(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Link(self, to) == nil {
		return
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, from); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Chmod(0o755), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// A directory that nobody lists is known for a home by what lies in it.
func TestRefusesHomes(t *testing.T) {
	dir := t.TempDir()
	var p private
	if why := p.refuses(dir); why != "" {
		t.Fatalf("an empty directory is refused: %s", why)
	}
	for _, name := range marks {
		home := filepath.Join(dir, "of"+name)
		if err := os.MkdirAll(filepath.Join(home, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if p.refuses(home) == "" {
			t.Errorf("a directory with %s is not refused", name)
		}
	}
	for _, path := range []string{"/", "/opt", "/home/nobody-of-that-name", "/root"} {
		if p.refuses(path) == "" {
			t.Errorf("%s is not refused", path)
		}
	}
}

// The homes of the machine are known.
func TestKnowsHomes(t *testing.T) {
	all := homes()
	if len(all) == 0 || ownHome() != "" && !slices.Contains(all, ownHome()) {
		t.Fatal("no home is known")
	}
	p := private{homes: func() []string { return resolved(all) }}
	for _, home := range all {
		if filepath.IsAbs(home) && p.refuses(filepath.Clean(home)) == "" {
			t.Errorf("%s is not refused", home)
		}
	}
}
