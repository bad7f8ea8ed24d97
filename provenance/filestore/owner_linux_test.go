package filestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// A session that somebody else could write is damaged among one's own: it is neither read, continued nor
// deleted. Where all records are theirs, such as in a directory that root looks at, it is like any other.
func TestSessionOfAnotherUser(t *testing.T) {
	for name, tt := range map[string]struct {
		give func(dir string) error // "s" to somebody else
		want string
	}{
		"others write the record": {func(dir string) error {
			return os.Chmod(filepath.Join(dir, "s", provenance.EventsFile), 0o622)
		}, "events.jsonl: others can write it (mode 0622)"},
		"others write the directory": {func(dir string) error {
			return os.Chmod(filepath.Join(dir, "s"), 0o770)
		}, "its directory: others can write it (mode 0770)"},
		"the directory is theirs": {func(dir string) error {
			return os.Chown(filepath.Join(dir, "s"), nobody, -1)
		}, "its directory: it belongs to another user"},
		"the record is theirs": {func(dir string) error {
			return os.Chown(filepath.Join(dir, "s", provenance.EventsFile), nobody, -1)
		}, "events.jsonl: it belongs to another user"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "records")
			st := open(t, dir, nil)
			storetest.Append(t, st, "s", provenance.KindSessionStarted)
			storetest.Append(t, st, "own", provenance.KindSessionStarted)
			closeStore(t, st)
			if err := tt.give(dir); errors.Is(err, os.ErrPermission) {
				t.Skipf("missing capability: giving files away: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			st = open(t, dir, nil)
			list, err := provenance.ListSessions(t.Context(), st)
			if err != nil {
				t.Fatal(err)
			}
			states := map[string]provenance.State{}
			for _, s := range list {
				states[s.ID] = s.State
			}
			if states["own"] != provenance.StateCrashed || states["s"] != provenance.StateDamaged {
				t.Errorf("sessions = %v", states)
			}
			refused := func(doing string, err error) {
				t.Helper()
				if err == nil || !strings.HasSuffix(err.Error(), tt.want) || strings.Contains(err.Error(), dir) {
					t.Errorf("%s = %v, want %s", doing, err, tt.want)
				}
			}
			for _, err := range st.Events(t.Context(), provenance.Query{Session: "s"}) {
				refused("Events", err)
			}
			refused("Append", st.Append(t.Context(), storetest.Event("s", provenance.KindSessionResumed, 2)))
			_, err = st.Put(t.Context(), "s", "outputs/x", nil)
			refused("Put", err)
			_, err = st.Verify(t.Context(), "s")
			refused("Verify", err)
			if _, is := errors.AsType[*provenance.VerifyError](err); !is {
				t.Errorf("Verify = %T", err)
			}
			closeStore(t, st)
			if got := collect(t, dir, provenance.CollectOptions{Before: time.Now().Add(time.Hour)}); len(got) != 1 {
				t.Errorf("Collect deleted %v, want what is one's own", got)
			}

			if err := os.Chmod(dir, 0o770); err != nil {
				t.Fatal(err)
			}
			r, err := filestore.OpenReader(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := r.Verify(t.Context(), "s"); err != nil {
				t.Errorf("Verify among records of others = %v", err)
			}
		})
	}
}
