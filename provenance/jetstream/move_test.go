package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// failing fails to read one file.
type failing struct {
	provenance.Reader
	name string
}

func (f failing) Stored(ctx context.Context, session, name string) (io.ReadCloser, error) {
	if name == f.name {
		return nil, errors.New("unreadable")
	}
	return f.Reader.Stored(ctx, session, name)
}

// A session is moved from a directory to the cluster and back with every byte, or not at all, and never over
// another one.
func TestMoved(t *testing.T) {
	t.Parallel()
	conn := clustertest.Start(t, 1).Connect(t)
	opts := &jetstream.Options{Replicas: 1}
	st := open(t, conn, opts)
	defer st.Close()
	cells, err := jetstream.OpenCells(t.Context(), conn, opts)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	const long, held, broken = "long", "held", "broken"
	storetest.Long(t, files, long, nightly.Size(600, 1000)) // more than a message holds
	for _, id := range []string{long, broken, held} {
		if _, err := files.Keep(t.Context(), id, []byte("shown "+id)); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Append(t, files, held, provenance.KindSessionStarted)
	storetest.Append(t, files, broken, provenance.KindSessionStarted, provenance.KindSessionEnded)
	storetest.Append(t, files, long, provenance.KindSessionEnded)
	wantErr := func(doing string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s = %v, want %v", doing, err, want)
		}
	}
	wantNone := func(id string) {
		t.Helper()
		_, err := st.Stored(t.Context(), id, provenance.EventsFile)
		wantErr("record of "+id, err, provenance.ErrNotFound)
		_, err = st.Stored(t.Context(), id, provenance.ShownName(digest.FromString("shown "+id)))
		wantErr("file of "+id, err, provenance.ErrNotFound)
	}
	wantErr("import of an open session", st.Import(t.Context(), cells, files, held), provenance.ErrHeld)
	wantNone(held)
	shown := provenance.ShownName(digest.FromString("shown " + long))
	if err := st.Import(t.Context(), cells, failing{files, shown}, long); err == nil {
		t.Error("imported without a file")
	}
	wantNone(long)
	record := filepath.Join(dir, broken, provenance.EventsFile)
	whole, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, bytes.Replace(whole, []byte(`"seq":1`), []byte(`"seq":7`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := st.Import(t.Context(), cells, files, broken); err == nil {
		t.Error("a broken record was imported")
	}
	wantNone(broken)

	// Another one is importing it, or has.
	other := open(t, conn, opts)
	defer other.Close()
	results := make(chan error, 2)
	for _, to := range []*jetstream.Store{st, other} {
		go func() { results <- to.Import(t.Context(), cells, files, long) }()
	}
	if a, b := <-results, <-results; (a == nil) == (b == nil) || !errors.Is(errors.Join(a, b), provenance.ErrTaken) {
		t.Errorf("two imports at once: %v, %v", a, b)
	}
	wantErr("import again", st.Import(t.Context(), cells, files, long), provenance.ErrTaken)

	back := t.TempDir()
	if err := st.Archive(t.Context(), back, long, false); err != nil {
		t.Fatal(err)
	}
	wantErr("archive again", st.Archive(t.Context(), back, long, true), provenance.ErrTaken)
	for _, name := range []string{provenance.EventsFile, shown} {
		was, _ := os.ReadFile(filepath.Join(dir, long, name))
		is, err := os.ReadFile(filepath.Join(back, long, name))
		if err != nil || !bytes.Equal(was, is) || len(is) == 0 {
			t.Errorf("%s: %d bytes became %d, %v", name, len(was), len(is), err)
		}
	}
	moved := filepath.Join(back, "moved")
	if err := os.Mkdir(moved, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := st.Archive(t.Context(), moved, long, true); err != nil {
		t.Fatal(err)
	}
	wantNone(long)
	storetest.Append(t, st, held, provenance.KindSessionStarted)
	wantErr("archive of an open session", st.Archive(t.Context(), moved, held, true), provenance.ErrHeld)
	if entries, err := os.ReadDir(moved); err != nil || len(entries) != 1 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
}
