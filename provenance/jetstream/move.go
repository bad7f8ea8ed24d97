package jetstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// maxImported limits the record of an imported session, in bytes, because readers hold it in memory.
const maxImported = 256 << 20

// importing is how long a reservation prevents other processes from importing the same session.
const importing = time.Minute

// Import copies an ended or crashed session from another store, with its lines unchanged. The session appears
// at once, after its files; if its record cannot be verified, nothing is kept.
//
// Errors: provenance.ErrTaken if the cluster has a session with this ID or another process imports it;
// provenance.ErrHeld if the session is open; provenance.ErrCorrupt; provenance.ErrUnavailable; the errors of
// from.
func (st *Store) Import(ctx context.Context, cells *Cells, from provenance.Reader, id string) (err error) {
	source, err := from.Verify(ctx, id)
	if err != nil {
		return err
	}
	if source.Session.State == provenance.StateOpen {
		return fmt.Errorf("import %s: %w", id, provenance.ErrHeld)
	}
	held := reservation{cells: cells, key: "import " + id, token: []byte(rand.Text())}
	if err := held.renew(ctx); err != nil {
		return fmt.Errorf("import %s: %w", id, err)
	}
	defer held.release(context.WithoutCancel(ctx))
	t, err := st.turn(id)
	if err != nil {
		return err
	}
	defer st.leave(t)
	t.work <- struct{}{}
	defer func() { <-t.work }()
	if err := t.load(ctx); err != nil {
		return fmt.Errorf("import %s: %w", id, err)
	}
	if t.last > 0 {
		return fmt.Errorf("import %s: %w", id, provenance.ErrTaken)
	}
	b, lines, err := st.importFiles(ctx, held, from, source.Session)
	if err != nil {
		return t.undoImport(ctx, err)
	}
	err = t.publish(ctx, b, lines)
	if errors.Is(err, provenance.ErrLost) {
		return fmt.Errorf("import %s: %w", id, provenance.ErrTaken)
	}
	if err != nil {
		// The record may have been published.
		return err
	}
	// Otherwise a session that crashed would be reported as open in this store.
	t.held.Store(false)
	if _, err := st.Verify(ctx, id); err != nil {
		return t.undoImport(ctx, err)
	}
	return nil
}

// importFiles copies the files of a session that are not derived from its record, and returns the record as
// one batch. The record must end as source does.
func (st *Store) importFiles(
	ctx context.Context, held reservation, from provenance.Reader, source provenance.Session,
) (*batch, []byte, error) {
	b, lines, err := recordOf(ctx, from, source.ID)
	if err != nil {
		return nil, nil, err
	}
	for name, err := range from.Files(ctx, source.ID) {
		if err != nil {
			return nil, nil, err
		}
		if name != provenance.SessionFile && !provenance.IsView(name) {
			err = st.importFile(ctx, from, source.ID, name)
		}
		// The reservation is renewed after each file, because a large one may take most of its time.
		if err := errors.Join(err, held.renew(ctx)); err != nil {
			return nil, nil, err
		}
	}
	if b.state.Session.Head != source.Head {
		return nil, nil, fmt.Errorf("%w: its record changed during the import", provenance.ErrHeld)
	}
	return b, lines, nil
}

// undoImport deletes an imported session and returns the error that it is deleted for. After
// provenance.ErrTaken it deletes nothing, because the files may belong to the session of another process.
func (t *turn) undoImport(ctx context.Context, err error) error {
	err = fmt.Errorf("import %s: %w", t.id, err)
	if errors.Is(err, provenance.ErrTaken) {
		return err
	}
	return errors.Join(err, t.store.delete(context.WithoutCancel(ctx), t.id, t.last))
}

// reservation is a cell that prevents other processes from importing a session. It expires unless it is
// renewed.
type reservation struct {
	cells *Cells
	key   string
	token []byte
}

// renew makes or renews the reservation.
//
// Errors: provenance.ErrTaken if another process has one; the errors of Change.
func (r reservation) renew(ctx context.Context) error {
	taken := false
	err := r.cells.Change(ctx, r.key, importing, func(value []byte) []byte {
		taken = len(value) > 0 && !bytes.Equal(value, r.token)
		if taken {
			return nil
		}
		return r.token
	})
	if err != nil {
		return err
	}
	if taken {
		return provenance.ErrTaken
	}
	return nil
}

// release ends the reservation. If that fails, the reservation expires.
func (r reservation) release(ctx context.Context) {
	_ = r.cells.Change(ctx, r.key, time.Second, func(value []byte) []byte {
		if !bytes.Equal(value, r.token) {
			return nil
		}
		return []byte{}
	})
}

// recordOf returns the record of a session as one batch.
func recordOf(ctx context.Context, from provenance.Reader, id string) (*batch, []byte, error) {
	lines, err := readArtifact(ctx, from, id, provenance.EventsFile)
	if err != nil {
		return nil, nil, err
	}
	b := &batch{number: 1}
	sc := provenance.NewScanner(bytes.NewReader(lines))
	for e, err := range sc.All() {
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", provenance.EventsFile, sc.Line, err)
		}
		if !e.Kind.Facts().Apart {
			b.state.Called = e.Time
		}
	}
	b.state.Session, b.state.Bytes = sc.Tally.Session, int64(len(lines))
	return b, lines, nil
}

func readArtifact(ctx context.Context, from provenance.Reader, id, name string) ([]byte, error) {
	r, err := from.Stored(ctx, id, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, maxImported+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if len(data) > maxImported {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", provenance.ErrInvalid, name, maxImported)
	}
	return data, nil
}

func (st *Store) importFile(ctx context.Context, from provenance.Reader, id, name string) error {
	data, err := readArtifact(ctx, from, id, name)
	if err != nil {
		return err
	}
	_, err = st.keep(ctx, id, name, digest.FromBytes(data), data)
	return err
}

// Archive copies an ended session into the directory of a filestore, with its lines unchanged, and deletes it
// from the cluster if remove is set. The session appears in dir at once, verified and on stable storage.
//
// Errors: provenance.ErrTaken if dir has a session with this ID; provenance.ErrHeld if the session has not
// ended; the errors of filestore.CopyFrom.
func (st *Store) Archive(ctx context.Context, dir, id string, remove bool) error {
	if _, _, err := st.ended(ctx, id); err != nil {
		return fmt.Errorf("archive %s: %w", id, err)
	}
	report, err := filestore.CopyFrom(ctx, dir, st, id, true)
	if err != nil || !remove {
		return err
	}
	now, seq, err := st.ended(ctx, id)
	if err != nil {
		return fmt.Errorf("archive %s: %w", id, err)
	}
	if now.Session.Head != report.Session.Head {
		return fmt.Errorf("archive %s: it was continued, and is not deleted: %w", id, provenance.ErrHeld)
	}
	return st.delete(ctx, id, seq)
}

// ended returns the state of an ended session and the sequence number of its last message.
//
// Errors: provenance.ErrNotFound; provenance.ErrHeld if it has not ended; provenance.ErrCorrupt; see ask.
func (st *Store) ended(ctx context.Context, id string) (s state, seq uint64, err error) {
	m, err := st.last(ctx, st.events, st.subjectOf(id))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return s, 0, provenance.ErrNotFound
	}
	if err != nil {
		return s, 0, err
	}
	s, err = stateOf(m)
	if err != nil {
		return s, 0, err
	}
	if s.Session.State != provenance.StateEnded {
		return s, 0, provenance.ErrHeld
	}
	return s, m.Sequence, nil
}
