package filestore_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// files returns the files of a session that Verify answers for.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != provenance.LockFile {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// wantDifference requires Verify to find something wrong.
func wantDifference(t *testing.T, dir, what string) {
	t.Helper()
	_, err := filestore.Verify(dir, "s")
	var ve *provenance.VerifyError
	if !errors.As(err, &ve) {
		t.Fatalf("%s: Verify = %v, want a difference", what, err)
	}
	if ve.File == "" || ve.Line < 1 || ve.What == "" {
		t.Fatalf("%s: Verify = %+v, want file, line and what", what, ve)
	}
}

func TestVerifyFindsAnyChange(t *testing.T) {
	for _, state := range []string{"ended", "closed"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			dir, step := t.TempDir(), 3 // of the bytes: each line and each bit of a byte many times
			record(t, dir, "s")
			if state == "closed" {
				step = 7
				st := open(t, dir, nil)
				storetest.Append(t, st, "s", provenance.KindSessionResumed, provenance.KindResourceRead)
				closeStore(t, st)
			}
			r := verify(t, dir, "s")
			names := files(t, filepath.Join(dir, "s"))
			if r.Files != len(names) || len(names) != 8 || len(r.Stale)+len(r.Unrecorded) != 0 {
				t.Fatalf("Verify = %+v with files %v", r, names)
			}
			for _, name := range names {
				switch base := filepath.Base(name); {
				case base == provenance.EventsFile || base == provenance.SessionFile:
					tamper(t, dir, name, step)
				case state == "ended": // the others do not depend on the state, and are compared as a whole
					tamper(t, dir, name, 7)
				}
			}
			verify(t, dir, "s")
		})
	}
}

// tamper flips a bit of every step-th byte of a file, cuts it at many lengths and at every line, deletes it
// and puts other things in its place.
func tamper(t *testing.T, dir, name string, step int) {
	t.Helper()
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(good); i += step {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		write(bad)
		wantDifference(t, dir, name+" flipped")
	}
	for n := range good {
		if n%16 == 0 || good[n] == '\n' || n > 0 && good[n-1] == '\n' {
			write(good[:n])
			wantDifference(t, dir, name+" truncated")
		}
	}
	write(append(bytes.Clone(good), '\n'))
	wantDifference(t, dir, name+" with a newline more")
	write(append(bytes.Clone(good), good...))
	wantDifference(t, dir, name+" doubled")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	wantDifference(t, dir, name+" deleted")
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	wantDifference(t, dir, name+" a directory")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	aside := filepath.Join(t.TempDir(), "aside")
	if err := os.WriteFile(aside, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(aside, name); err == nil {
		wantDifference(t, dir, name+" a link to its content")
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	write(good)
}

// Lines are removed, moved, and exchanged for those of another session with a valid chain.
func TestVerifyFindsRearrangedLines(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "s")
	record(t, dir, "other")
	path := filepath.Join(dir, "s", provenance.EventsFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(filepath.Join(dir, "other", provenance.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	lines = lines[:len(lines)-1]
	bad := map[string][]byte{
		"other session": other,
		"swapped":       bytes.Join([][]byte{lines[1], lines[0], bytes.Join(lines[2:], nil)}, nil),
		"twice":         append(bytes.Clone(lines[0]), good...),
		"blank line":    append(bytes.Clone(good), "\n"...),
	}
	for i := range lines {
		bad["without a line"] = bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil)
		bad["up to a line"] = bytes.Join(lines[:i], nil)
		for what, data := range bad {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			wantDifference(t, dir, what)
		}
	}
}

// A session whose views were not written for its last events is stale, not changed; going back
// behind session.json is a change.
func TestVerifyTellsStaleFromOlder(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindResourceRead)
	storetest.Read(t, st, "s", provenance.ResourceReadsFile)
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(filepath.Join(dir, "s"))); err != nil {
		t.Fatal(err)
	}
	storetest.Append(t, st, "s", provenance.KindResourceRead, provenance.KindSkillActivated)
	want := []string{"session.json", "skill-activations.json", "skill-resource-reads.json", "policy-trace.json"}
	if r := verify(t, dir, "s"); strings.Join(r.Stale, " ") != strings.Join(want, " ") || r.Events != 4 {
		t.Errorf("Verify before the views are written = %+v, want stale %v", r, want)
	}
	closeStore(t, st)
	if r := verify(t, dir, "s"); len(r.Stale) != 0 {
		t.Errorf("Verify after closing = %+v", r)
	}
	data, err := os.ReadFile(filepath.Join(old, provenance.ResourceReadsFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "s", provenance.ResourceReadsFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = filestore.Verify(dir, "s")
	var ve *provenance.VerifyError
	if !errors.As(err, &ve) || ve.File != provenance.ResourceReadsFile || !strings.Contains(ve.What, "older") {
		t.Errorf("Verify with a view put back = %v", err)
	}
}

// A session that was moved or copied to another name is not that session.
func TestSessionOfAnotherName(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "other")
	if err := os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "s")); err != nil {
		t.Fatal(err)
	}
	wantDifference(t, dir, "another session")
	_, err := filestore.Verify(dir, "s")
	if want := `events.jsonl:1: event of session "other"`; err.Error() != want {
		t.Errorf("Verify = %v, want %s", err, want)
	}
	st := open(t, dir, nil)
	defer closeStore(t, st)
	if err := st.Append(t.Context(), storetest.Event("s", provenance.KindSessionResumed, 1)); !errors.Is(err, provenance.ErrCorrupt) {
		t.Errorf("Append = %v, want ErrCorrupt", err)
	}
}

func TestVerifyNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "s")
	path := filepath.Join(dir, "s", provenance.EventsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
	if err := os.Truncate(path, int64(last)); err != nil {
		t.Fatal(err)
	}
	_, err = filestore.Verify(dir, "s")
	if want := "events.jsonl:7: missing: session.json names event 7"; err == nil || err.Error() != want {
		t.Errorf("Verify without the last event = %v, want %s", err, want)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{provenance.SessionFile, provenance.RegistryFile} {
		path := filepath.Join(dir, "s", name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		_, err = filestore.Verify(dir, "s")
		if want := name + ":1: missing"; err == nil || err.Error() != want {
			t.Errorf("Verify without %s = %v, want %s", name, err, want)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestVerifyNamesTheDifference(t *testing.T) {
	for _, tc := range []struct{ name, file, old, new, want string }{
		{"line", provenance.EventsFile, `"seq":3`, `"seq":8`, "events.jsonl:3: record is corrupt: invalid: hash does not match the line"},
		{"view", provenance.ResourceReadsFile, `"status": "read"`, `"status": "none"`, "skill-resource-reads.json:12: differs from the events"},
		{"snapshot", provenance.RegistryFile, "of", "if", "skill-registry.json:1: digest is"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			record(t, dir, "s")
			path := filepath.Join(dir, "s", tc.file)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := bytes.Replace(data, []byte(tc.old), []byte(tc.new), 1)
			if bytes.Equal(changed, data) {
				t.Fatalf("%s has no %s:\n%s", tc.file, tc.old, data)
			}
			if err := os.WriteFile(path, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := filestore.Verify(dir, "s"); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("Verify = %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := filestore.Verify(t.TempDir(), "s"); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("Verify of an unknown session = %v, want ErrNotFound", err)
	}
	if _, err := filestore.Verify(t.TempDir(), ".."); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("Verify of .. = %v, want ErrNotFound", err)
	}
}

func TestVerifyListsUnrecordedFiles(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "s")
	for _, name := range []string{"note.txt", "outputs/extra"} {
		if err := os.WriteFile(filepath.Join(dir, "s", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := verify(t, dir, "s"); strings.Join(r.Unrecorded, " ") != "note.txt outputs/extra" {
		t.Errorf("Unrecorded = %v", r.Unrecorded)
	}
}
