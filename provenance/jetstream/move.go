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

// maxImported bounds the record of a session that is imported, in bytes: whoever reads it holds it in memory.
const maxImported = 256 << 20

// importing is how long a session is not imported again by somebody else.
const importing = time.Minute

// Import copies a session that has ended, or whose server has crashed, from another store, with its lines as
// they are. The session appears at once, after its files; if its record cannot be verified, nothing is kept.
//
// Errors: provenance.ErrTaken if the cluster has a session of this id or gets it from somebody else,
// provenance.ErrHeld for one that is open, provenance.ErrCorrupt, provenance.ErrUnavailable, the errors of
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
			err = provenance.ErrTaken
		}
		return err
	}
	if err := reserve(); err != nil {
		return fmt.Errorf("import %s: %w", id, err)
	}
	defer func() {
		// One that is not freed ends by itself.
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
	err = t.load(ctx)
	if err != nil {
		return fmt.Errorf("import %s: %w", id, err)
	}
	if t.last > 0 {
		err = provenance.ErrTaken
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", id, err)
	}
	b, lines, err := recordOf(ctx, from, id)
	for name, failed := range from.Files(ctx, id) {
		if err = errors.Join(err, failed); err != nil {
			break
		}
		if name != provenance.SessionFile && !provenance.IsView(name) {
			err = st.importFile(ctx, from, id, name)
		}
		err = errors.Join(err, reserve())
	}
	if err == nil && b.state.Session.Head != source.Session.Head {
		err = fmt.Errorf("%w: it changes", provenance.ErrHeld)
	}
	if err == nil {
		err = t.publish(ctx, b, lines)
		if errors.Is(err, provenance.ErrLost) {
			return fmt.Errorf("import %s: %w", id, provenance.ErrTaken)
		}
		if err != nil {
			return err // the record may be there, and whole
		}
		t.held.Store(false)
		_, err = st.Verify(ctx, id)
	}
	if err != nil {
		err = fmt.Errorf("import %s: %w", id, err)
		if !errors.Is(err, provenance.ErrTaken) {
			err = errors.Join(err, st.delete(context.WithoutCancel(ctx), id, t.last))
		}
	}
	return err
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
		err = tally.Add(e)
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", provenance.EventsFile, sc.Line, err)
		}
		if e.Kind.OfCall() {
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

// Archive copies a session that has ended into the directory of a filestore, with its lines as they are, and
// deletes it in the cluster if remove is set. The session appears there at once, verified and on the disk.
//
// Errors: provenance.ErrTaken if the directory has a session of this id, provenance.ErrHeld for one that has
// not ended, the errors of filestore.CopyFrom.
func (st *Store) Archive(ctx context.Context, dir, id string, remove bool) error {
	ended := func() (s state, seq uint64, err error) {
		m, err := st.last(ctx, st.events, st.subjectOf(id))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			err = provenance.ErrNotFound
		}
		if err == nil {
			seq = m.Sequence
			s, err = stateOf(m)
		}
		if err == nil && s.Session.State != provenance.StateEnded {
			err = provenance.ErrHeld
		}
		if err != nil {
			err = fmt.Errorf("archive %s: %w", id, err)
		}
		return s, seq, err
	}
	if _, _, err := ended(); err != nil {
		return err
	}
	report, err := filestore.CopyFrom(ctx, dir, st, id, true)
	if err != nil || !remove {
		return err
	}
	now, seq, err := ended()
	if err != nil {
		return err
	}
	if now.Session.Head != report.Session.Head {
		err = fmt.Errorf("archive %s: it was continued, and is not deleted: %w", id, provenance.ErrHeld)
	}
	if err != nil {
		return err
	}
	return st.delete(ctx, id, seq)
}
