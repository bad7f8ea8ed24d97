package jetstream

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

const (
	// checkpointEvery is after how many events a message has a checkpoint, so that whoever recalls a session
	// reads at most 1,000: up to maxBatch are in the message before.
	checkpointEvery = 1000 - maxBatch

	// maxCheckpoint bounds a checkpoint, in bytes: a server takes no message whose headers are over 64 KiB.
	maxCheckpoint = 48 << 10

	// maxUnpacked bounds it before it is compressed.
	maxUnpacked = 1 << 20
)

var _ cfharness.Recaller = (*Store)(nil)

// checkpoint is what the events before a message make. It counts because its message does: whoever has lost
// the session publishes none. The first line of the message must follow its head.
type checkpoint struct {
	Form    int                `json:"form"` // cfharness.FoldForm
	Session provenance.Session `json:"session"`
	Fold    *cfharness.Fold    `json:"fold"`
}

// mark says where a checkpoint is: in the message after another one, of which Seq is the last event.
type mark struct {
	After uint64 `json:"after"`
	Seq   uint64 `json:"seq"`
}

// checkpoint returns the checkpoint of the next message, or "" if it needs none or cannot have one.
func (t *turn) checkpoint() string {
	head := t.state.Session.Head
	if t.fold == nil || t.fold.Head != head || head.Seq-t.state.Checkpoint.Seq < checkpointEvery {
		return ""
	}
	var text strings.Builder
	encoded, err := provenance.Encode(checkpoint{cfharness.FoldForm, t.state.Session, t.fold})
	if err == nil {
		to := base64.NewEncoder(base64.StdEncoding, &text)
		packed := t.store.packers.Get().(*gzip.Writer)
		packed.Reset(to)
		_, err = packed.Write(encoded)
		err = errors.Join(err, packed.Close(), to.Close())
		t.store.packers.Put(packed)
	}
	if err != nil || len(encoded) > maxUnpacked || text.Len() > maxCheckpoint {
		t.fold = nil // it only grows
		return ""
	}
	return text.String()
}

// follow folds the events of a batch that was recorded.
func (t *turn) follow(b *batch) {
	if t.fold != nil && t.fold.Head != t.state.Session.Head {
		t.fold = nil
	}
	for _, e := range b.events {
		if t.fold != nil && t.fold.Add(e.as) != nil {
			t.fold = nil // whoever recalls the session gets the error
		}
	}
}

// checkpoint returns the last checkpoint of a session, nil if there is none that is whole and of this form,
// and where it is.
//
// Errors: as ask.
func (r *reader) checkpoint(ctx context.Context, session string) (*checkpoint, mark, error) {
	m, err := r.last(ctx, r.events, r.subjectOf(session))
	var last state
	if err == nil {
		last, _ = stateOf(m) // without one, all events say whether they are a record
	}
	at := last.Checkpoint
	if at.After > 0 {
		err = r.ask(ctx, func(ctx context.Context) (err error) {
			m, err = r.events.GetMsg(ctx, at.After+1, jetstream.WithGetMsgSubject(r.subjectOf(session)))
			return err
		})
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, at, fmt.Errorf("session %s: %w", session, err)
	}
	if err != nil || at.After == 0 {
		return nil, at, nil
	}
	return unpack(m.Header.Get(headerCheckpoint)), at, nil
}

// unpack returns the checkpoint of a header, nil if it is not whole or not of this form.
func unpack(header string) *checkpoint {
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(header)))
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(packed, maxUnpacked+1)) // to its end, for the checksum
	var c checkpoint
	if err != nil || len(data) > maxUnpacked || json.Unmarshal(data, &c) != nil ||
		c.Form != cfharness.FoldForm || c.Fold == nil || c.Fold.Head != c.Session.Head || !c.Fold.Whole() {
		return nil
	}
	return &c
}

// Recall implements cfharness.Recaller: it reads the events since the last checkpoint. If this store has the
// session, it continues the fold.
func (st *Store) Recall(ctx context.Context, session string) (*cfharness.Recollection, error) {
	f, at, err := st.fold(ctx, session)
	if err != nil {
		return nil, err
	}
	was := f.Recollection()
	st.mu.Lock()
	t := st.turns[session]
	st.mu.Unlock()
	if t != nil {
		t.work <- struct{}{}
		defer func() { <-t.work }()
		if t.held.Load() && f.Head == t.state.Session.Head {
			t.fold, t.state.Checkpoint = f, at
		}
	}
	return was, nil
}

// fold folds the events of a session, from its last checkpoint on if they follow it.
//
// Errors: as Events, provenance.ErrCorrupt for a row that does not have its form.
func (r *reader) fold(ctx context.Context, session string) (*cfharness.Fold, mark, error) {
	from := func(message uint64, c *checkpoint) (*cfharness.Fold, error) {
		for e, err := range r.scanFrom(ctx, session, message, c.Session) {
			if err != nil {
				return nil, err
			}
			err = c.Fold.Add(e)
			if err != nil {
				return nil, err
			}
		}
		return c.Fold, nil
	}
	if provenance.ValidSessionID(session) {
		c, at, err := r.checkpoint(ctx, session)
		if err != nil {
			return nil, at, err
		}
		if c != nil {
			if f, err := from(at.After+1, c); !errors.Is(err, provenance.ErrCorrupt) {
				return f, at, err
			}
		}
	}
	f, err := from(1, &checkpoint{Fold: &cfharness.Fold{}})
	return f, mark{}, err
}
