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
	token, taken := []byte(rand.Text()), false
	reserve := func() error {
		err := cells.Change(ctx, "import "+id, importing, func(value []byte) []byte {
			taken = len(value) > 0 && !bytes.Equal(value, token)
			if taken {
				return nil
			}
			return token
		})
		if err != nil {
			return err
		}
		if taken {
			return provenance.ErrTaken
		}
		return nil
	}
	if err := reserve(); err != nil {
		return fmt.Errorf("import %s: %w", id, err)
	}
	defer func() {
		// A reservation that is not released expires.
		_ = cells.Change(context.WithoutCancel(ctx), "import "+id, time.Second, func(value []byte) []byte {
			if !bytes.Equal(value, token) {
				return nil
			}
			return []byte{}
		})
	}()
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
	fail := func(err error) error {
		err = fmt.Errorf("import %s: %w", id, err)
		if errors.Is(err, provenance.ErrTaken) {
			// The files may now belong to the other process's session.
			return err
		}
		return errors.Join(err, st.delete(context.WithoutCancel(ctx), id, t.last))
	}
	b, lines, err := recordOf(ctx, from, id)
	if err != nil {
		return fail(err)
	}
	for name, err := range from.Files(ctx, id) {
		if err != nil {
			return fail(err)
		}
		if name != provenance.SessionFile && !provenance.IsView(name) {
			err = st.importFile(ctx, from, id, name)
		}
		// The reservation is renewed after each file, because a large one may take most of its time.
		if err := errors.Join(err, reserve()); err != nil {
			return fail(err)
		}
	}
	if b.state.Session.Head != source.Session.Head {
		return fail(fmt.Errorf("%w: its record changed during the import", provenance.ErrHeld))
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
		return fail(err)
	}
	return nil
}

// recordOf returns the record of a session as one batch.
func recordOf(ctx context.Context, from provenance.Reader, id string) (*batch, []byte, error) {
	lines, err := readArtifact(ctx, from, id, provenance.EventsFile)
	if err != nil {
		return nil, nil, err
	}
	b, tally := &batch{number: 1}, provenance.Tally{}
	sc := provenance.NewScanner(bytes.NewReader(lines))
	for e, err := range sc.All() {
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", provenance.EventsFile, sc.Line, err)
		}
		if err := tally.Add(e); err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", provenance.EventsFile, sc.Line, err)
		}
		if !e.Kind.Facts().Apart {
			b.state.Called = e.Time
		}
	}
	b.state.Session, b.state.Bytes = tally.Session, int64(len(lines))
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
