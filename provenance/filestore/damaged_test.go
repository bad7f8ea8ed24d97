package filestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// damages are what another process does to a record: rotate it, cut it, write to it.
var damages = map[string]func(name string) error{
	"rotated": func(name string) error {
		return errors.Join(os.Rename(name, name+".1"), os.WriteFile(name, nil, 0o600))
	},
	"rewritten": func(name string) error {
		data, err := os.ReadFile(name)
		return errors.Join(err, os.WriteFile(name+".n", data, 0o600), os.Rename(name+".n", name))
	},
	"linked": func(name string) error {
		return errors.Join(os.Rename(name, name+".1"), os.Symlink(filepath.Base(name)+".1", name))
	},
	"emptied": func(name string) error { return os.Truncate(name, 0) },
	"cut": func(name string) error {
		info, err := os.Stat(name)
		return errors.Join(err, os.Truncate(name, info.Size()-1))
	},
	"written to": func(name string) error {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("{}\n")
		return errors.Join(err, f.Close())
	},
	"removed": os.Remove,
}

// A record that another process took away or changed takes no more events: they would be lost, or would
// hide what was done.
func TestChangedRecordTakesNoEvents(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a system where an open file can be renamed and removed")
	}
	for what, damage := range damages {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir, &filestore.Options{Quiet: time.Hour})
			storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSkillActivated)
			storetest.Read(t, st, "s", provenance.SessionFile)
			name := filepath.Join(dir, "s", provenance.EventsFile)
			if err := damage(name); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(name)
			for _, kind := range []provenance.Kind{provenance.KindScriptRequested, provenance.KindResourceRead} {
				e := storetest.Event("s", kind, 2)
				err := st.Append(t.Context(), e)
				if !errors.Is(err, provenance.ErrUnavailable) || e.Seq != 0 || strings.Contains(err.Error(), dir) {
					t.Errorf("Append = %v, seq %d, want ErrUnavailable", err, e.Seq)
				}
			}
			// That views cannot be written now is no matter of this test.
			_ = st.Close()
			if after, _ := os.ReadFile(name); string(after) != string(before) {
				t.Errorf("%s was written to", provenance.EventsFile)
			}
			if what != "rewritten" && what != "linked" {
				wantDifference(t, dir, what)
			}
			list, err := filestore.List(dir)
			if err != nil || len(list) != 1 || list[0].ID != "s" {
				t.Errorf("List = %+v, %v, want the session", list, err)
			}
		})
	}
}

// A session is listed whatever became of its record, so that it can be found and verified.
func TestDamagedSessionsAreListed(t *testing.T) {
	const id = "ses_019aa6f0-7c00-7000-8000-000000000000"
	made := time.UnixMilli(0x019aa6f07c00)
	for what, damage := range map[string]func(dir string) error{
		"without a record": func(dir string) error { return os.Remove(filepath.Join(dir, provenance.EventsFile)) },
		"with an empty record": func(dir string) error {
			return os.Truncate(filepath.Join(dir, provenance.EventsFile), 0)
		},
		"with a record cut at a line": func(dir string) error {
			name := filepath.Join(dir, provenance.EventsFile)
			data, err := os.ReadFile(name)
			return errors.Join(err, os.Truncate(name, int64(strings.IndexByte(string(data), '\n')+1)))
		},
		"with a broken line": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, provenance.EventsFile), []byte("{}\n"), 0o600)
		},
		"with a directory for a record": func(dir string) error {
			name := filepath.Join(dir, provenance.EventsFile)
			return errors.Join(os.Remove(name), os.Mkdir(name, 0o700))
		},
		"without any file": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
		"with its lock only": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, provenance.LockFile), nil, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir, nil)
			start := storetest.Event(id, provenance.KindSessionStarted, 0)
			start.Time = made
			if err := st.Append(t.Context(), start); err != nil {
				t.Fatal(err)
			}
			storetest.Append(t, st, id, provenance.KindSkillActivated)
			closeStore(t, st)
			if err := damage(filepath.Join(dir, id)); err != nil {
				t.Fatal(err)
			}
			list, err := filestore.List(dir)
			if err != nil || len(list) != 1 || list[0].ID != id || list[0].State != provenance.StateDamaged || !list[0].CreatedAt.Equal(made) {
				t.Errorf("List = %+v, %v, want %s, damaged, of %v", list, err, id, made)
			}
			if _, err := filestore.Verify(dir, id); err == nil {
				t.Error("Verify found nothing")
			}
		})
	}
}
