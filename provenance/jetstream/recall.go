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
	// checkpointEvery is the number of events between checkpoints, chosen so that Recall reads at most 1,000
	// events: up to maxBatch of them are in the message before a checkpoint.
	checkpointEvery = 1000 - maxBatch

	// maxCheckpoint limits a checkpoint, in bytes, because a server refuses messages with headers over 64
	// KiB.
	maxCheckpoint = 48 << 10

	// maxUnpacked limits an uncompressed checkpoint, in bytes.
	maxUnpacked = 1 << 20
)

var _ cfharness.Recaller = (*Store)(nil)

// checkpoint is the state folded from all events before a message. It is valid if its message is in the
// record: a writer that lost the session cannot publish one. The first line of the message must follow
// the checkpoint's head.
type checkpoint struct {
	Form    int                `json:"form"` // cfharness.FoldForm
	Session provenance.Session `json:"session"`
	Fold    *cfharness.Fold    `json:"fold"`
}

// mark is the position of a checkpoint: it is in the message after message After, whose last event is Seq.
type mark struct {
	After uint64 `json:"after"`
	Seq   uint64 `json:"seq"`
}

// checkpoint returns the checkpoint for the next message, or "" if none is due or it would be too large.
func (t *turn) checkpoint() string {
	head := t.state.Session.Head
	if t.fold == nil || t.fold.Head != head || head.Seq-t.state.Checkpoint.Seq < checkpointEvery {
		return ""
	}
	packed, err := t.pack()
	if err != nil || len(packed) > maxCheckpoint {
		// A fold only grows, so it stays too large.
		t.fold = nil
		return ""
	}
	return packed
}

// pack returns the encoded and compressed checkpoint of the turn.
func (t *turn) pack() (string, error) {
	encoded, err := provenance.Encode(checkpoint{cfharness.FoldForm, t.state.Session, t.fold})
	if err != nil {
		return "", err
	}
	if len(encoded) > maxUnpacked {
		return "", errors.New("the checkpoint is too large")
	}
	var text strings.Builder
	to := base64.NewEncoder(base64.StdEncoding, &text)
	packer := t.store.packers.Get().(*gzip.Writer)
	packer.Reset(to)
	_, err = packer.Write(encoded)
	err = errors.Join(err, packer.Close(), to.Close())
	t.store.packers.Put(packer)
	return text.String(), err
}

// follow folds the events of a recorded batch.
func (t *turn) follow(b *batch) {
	if t.fold != nil && t.fold.Head != t.state.Session.Head {
		t.fold = nil
	}
	for _, e := range b.events {
		if t.fold != nil && t.fold.Add(e.as) != nil {
			// Recall returns the error.
			t.fold = nil
		}
	}
}

// checkpoint returns the last checkpoint of a session and its position. The checkpoint is nil if there is no
// complete one of the current form.
//
// Errors: see ask.
func (r *reader) checkpoint(ctx context.Context, session string) (*checkpoint, mark, error) {
	m, err := r.last(ctx, r.events, r.subjectOf(session))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, mark{}, nil
	}
	if err != nil {
		return nil, mark{}, fmt.Errorf("session %s: %w", session, err)
	}
	// If the message has no state, reading the events decides whether they are a record.
	last, _ := stateOf(m)
	at := last.Checkpoint
	if at.After == 0 {
		return nil, at, nil
	}
	err = r.ask(ctx, func(ctx context.Context) (err error) {
		m, err = r.events.GetMsg(ctx, at.After+1, jetstream.WithGetMsgSubject(r.subjectOf(session)))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, at, nil
	}
	if err != nil {
		return nil, at, fmt.Errorf("session %s: %w", session, err)
	}
	return unpack(m.Header.Get(headerCheckpoint)), at, nil
}

// unpack returns the checkpoint of a header, or nil if it is incomplete or of another form.
func unpack(header string) *checkpoint {
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(header)))
	if err != nil {
		return nil
	}
	// Reading up to the end makes gzip check the checksum.
	data, err := io.ReadAll(io.LimitReader(packed, maxUnpacked+1))
	var c checkpoint
	if err != nil || len(data) > maxUnpacked || json.Unmarshal(data, &c) != nil ||
		c.Form != cfharness.FoldForm || c.Fold == nil || c.Fold.Head != c.Session.Head || !c.Fold.Whole() {
		return nil
	}
	return &c
}

// Recall implements cfharness.Recaller. It reads the events since the last checkpoint. If this store has the
// session, later checkpoints continue from the result.
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

// fold folds the events of a session, starting at its last checkpoint if the later events follow that.
//
// Errors: see Events; provenance.ErrCorrupt for a row of a wrong form.
func (r *reader) fold(ctx context.Context, session string) (*cfharness.Fold, mark, error) {
	from := func(message uint64, c *checkpoint) (*cfharness.Fold, error) {
		for e, err := range r.scanFrom(ctx, session, message, c.Session) {
			if err != nil {
				return nil, err
			}
			if err := c.Fold.Add(e); err != nil {
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
