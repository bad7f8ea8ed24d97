package detect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a script may have written is not started and not mounted, whatever way leads there.
func TestWritable(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work, other, ran := filepath.Join(top, "work"), filepath.Join(top, "else"), filepath.Join(top, "ran")
	program := "#!/bin/sh\necho >>" + ran + "\nPATH=/usr/bin:/bin exec python3 \"$@\"\n"
	for _, dir := range []string{work + "/bin", other + "/real", other + "/linked", other + "/far", other + "/shim"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{work + "/bin/python3", other + "/real/python3"} {
		if err := os.WriteFile(file, []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		other + "/linked/python3": work + "/bin/python3",
		work + "/away":            other + "/real", // a script can lead it elsewhere
		other + "/far/python3":    "../../work/away/python3",
		other + "/dir":            work + "/away",
		top + "/other":            work,
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	shim := "#!/bin/sh\nprintf '%s\\n' " + work + "/bin/python3 /usr /usr /usr/lib\n"
	if err := os.WriteFile(other+"/shim/python3", []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, through := range map[string]bool{
		work + "/bin": true, other + "/linked": true, work + "/away": true, other + "/far": true, other + "/dir": true, top + "/other/bin": true,
		other + "/../work/bin": true, other + "/real": false,
	} {
		if got := (&Writable{Dir: work}).LeadsThrough(filepath.Join(dir, "python3")); got != through && !strings.Contains(dir, "..") {
			t.Errorf("LeadsThrough(%s) = %v", dir, got)
		}
	}
	for _, dir := range []string{work + "/bin", other + "/linked", work + "/away", other + "/far", other + "/dir", top + "/other/bin", other + "/shim"} {
		for _, workspace := range []string{work, top + "/other"} {
			f := Interpreters(dir)
			f.Writable(Writable{Dir: workspace})
			in, err := f.Find(t.Context(), "python3")
			if err != nil || in == nil || !belowUsr(in.Path) {
				t.Errorf("PATH %s: %+v, %v", dir, in, err)
			}
			f = Interpreters("")
			f.Name("python3", filepath.Join(dir, "python3"))
			f.Writable(Writable{Dir: workspace})
			if in, err := f.Find(t.Context(), "python3"); err == nil || !strings.Contains(err.Error(), errWritten.Error()) {
				t.Errorf("interpreters: %s: %+v, %v", dir, in, err)
			}
			f = Interpreters("")
			f.Writable(Writable{Dir: workspace})
			if in, err := f.FindOnHost(t.Context(), "python3", []string{dir}); dir != other+"/shim" && err == nil {
				t.Errorf("path of an entry: %s: %+v", dir, in)
			}
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program that a script could have written was started")
	}
	for _, name := range []string{"bwrap", "runsc"} {
		if err := os.WriteFile(filepath.Join(work, "bin", name), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		found, err := (&Options{Path: work + "/bin", Writable: []Writable{{Dir: work}}}).program(name)
		if err != nil || strings.HasPrefix(found, work) {
			t.Errorf("%s: %s, %v", name, found, err)
		}
	}
}

// A virtual environment is refused if somebody else may change a module in it, and if a script may.
func TestVirtualEnvironmentOfOthers(t *testing.T) {
	root, site := makeVenv(t)
	find := func(writable ...Writable) error {
		f := Interpreters("")
		f.Name("python3", filepath.Join(root, "bin", "python3"))
		f.Writable(writable...)
		_, err := f.Find(t.Context(), "python3")
		return err
	}
	if err := find(); err != nil {
		t.Fatal(err)
	}
	if err := find(Writable{Dir: filepath.Dir(root)}); err == nil || !strings.Contains(err.Error(), errWritten.Error()) {
		t.Errorf("in a workspace: %v", err)
	}
	if err := find(Writable{Dir: filepath.Dir(root), ReadOnly: ProgramDirs(filepath.Dir(root), "", []string{filepath.Join(root, "bin", "python3")})}); err != nil {
		t.Errorf("where scripts only read it: %v", err)
	}
	for _, path := range []string{site, filepath.Dir(site), filepath.Join(root, "lib"), filepath.Join(site, "office.py")} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, info.Mode()|0o002); err != nil {
			t.Fatal(err)
		}
		if err := find(); err == nil || !strings.Contains(err.Error(), "writable by its group or by everyone") {
			t.Errorf("%s may be written by everyone: %v", path, err)
		}
		if err := os.Chmod(path, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("missing capability: root, to give a file to another user")
		return
	}
	if err := os.Chown(filepath.Join(site, "office.py"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := find(); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("a module of another user: %v", err)
	}
}
