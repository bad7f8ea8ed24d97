package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is returned to its former content only if nothing but setups changed it, and only if it is one of the
// client's.
func TestRestore(t *testing.T) {
	const before, after, later = "{ /* mine */ }\r\n", "ours", "ours, and the user's"
	for name, tt := range map[string]struct {
		existed bool
		change  func(t *testing.T, file, state string) // after the setup
		foreign bool                                   // the file is not the client's
		want    string                                 // "" if the file is gone
		all     bool
	}{
		"unchanged": {existed: true, want: before, all: true},
		"no file":   {all: true},
		"no file, and another in its directory": {all: true, change: func(t *testing.T, file, _ string) {
			writeText(t, filepath.Join(filepath.Dir(file), "other"), later)
		}},
		"changed": {existed: true, want: later, change: func(t *testing.T, file, _ string) { writeText(t, file, later) }},
		"removed": {existed: true, change: func(t *testing.T, file, _ string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}},
		"of another client": {existed: true, foreign: true, want: after},
		"former content changed": {existed: true, want: after, change: func(t *testing.T, _, state string) {
			writeText(t, (&Record{state: state}).former(sum([]byte(before))), later)
		}},
		"the user changed it between two setups": {existed: true, want: "again", change: func(t *testing.T, file, state string) {
			writeText(t, file, later)
			connect(t, state, file, "again")
		}},
		"two setups": {existed: true, want: before, all: true, change: func(t *testing.T, file, state string) {
			connect(t, state, file, "again")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, state := filepath.Join(dir, "a", "b", "client.json"), filepath.Join(dir, "state")
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.existed {
				writeText(t, file, before)
			}
			connect(t, state, file, after)
			if tt.change != nil {
				tt.change(t, file, state)
			}
			r, err := OpenRecord(state)
			if err != nil || len(r.Clients) != 1 {
				t.Fatalf("%d connections, %v", len(r.Clients), err)
			}
			allowed := []string{file}
			if tt.foreign {
				allowed = []string{filepath.Join(dir, "another")}
			}
			unlocked := 0
			_, all, err := r.Restore(r.Clients[0], allowed, func(string) (func(), error) {
				return func() { unlocked++ }, nil
			})
			if text, _ := os.ReadFile(file); err != nil || all != tt.all || string(text) != tt.want {
				t.Errorf("Restore = %v, %v, and the file has %q", all, err, text)
			}
			_, err = os.Stat(filepath.Join(dir, "a"))
			wantDir := tt.existed || tt.change != nil
			if os.IsNotExist(err) == wantDir || tt.all && unlocked != 1 {
				t.Errorf("the directory: %v; unlocked %d times", err, unlocked)
			}
			if err := r.Disconnected("claude", "skills"); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(state, adoptedDir)); !os.IsNotExist(err) {
				t.Errorf("former contents are left: %v", err)
			}
		})
	}
}

// The former content of a long file is not kept, and the connection is in the record all the same.
func TestRestoreLong(t *testing.T) {
	dir := t.TempDir()
	file, long := filepath.Join(dir, "client.json"), strings.Repeat(" ", maxBefore)
	writeText(t, file, long+"{}")
	connect(t, dir, file, long+"ours")
	r, err := OpenRecord(dir)
	if err != nil || len(r.Clients) != 1 {
		t.Fatalf("%d connections, %v", len(r.Clients), err)
	}
	restored, all, err := r.Restore(r.Clients[0], []string{file}, func(string) (func(), error) {
		return func() {}, nil
	})
	if len(restored) > 0 || all || err != nil {
		t.Errorf("Restore = %q, %v, %v", restored, all, err)
	}
}

// The mode that a file has by now stays, and the state directory may be given by another path.
func TestRestoreByAnotherPath(t *testing.T) {
	dir := t.TempDir()
	state, link := filepath.Join(dir, "state"), filepath.Join(dir, "link")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(state, link); err != nil {
		t.Skip("missing capability: symbolic links:", err)
	}
	file, skill := filepath.Join(dir, "client.json"), filepath.Join(dir, "skills", "a", "SKILL.md")
	writeText(t, file, "before")
	writeText(t, skill, "A skill.")
	connect(t, link, file, "after")
	r, err := OpenRecord(link)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Take([]OwnSkill{{Dir: filepath.Join(dir, "skills"), Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o400); err != nil {
		t.Fatal(err)
	}
	r, err = OpenRecord(state)
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := r.Restore(r.Clients[0], []string{file}, func(string) (func(), error) { return func() {}, nil })
	info, missing := os.Stat(file)
	if !all || err != nil || missing != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("Restore = %v, %v; %v", all, err, info)
	}
	if _, err := r.Return(func(Move) bool { return true }); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(skill); err != nil {
		t.Error(err)
	}
}

// connect is a setup that writes a file.
func connect(t *testing.T, state, file, text string) {
	t.Helper()
	r, err := OpenRecord(state)
	if err != nil {
		t.Fatal(err)
	}
	before := LookAt([]string{file})
	writeText(t, file, text)
	if err := r.Connected(Connection{Client: "claude", Entry: "skills"}, before); err != nil {
		t.Fatal(err)
	}
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
