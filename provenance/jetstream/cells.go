package jetstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skillsd/skillsd/provenance"
)

// Cells are small values that processes share, each with an expiry time. Every process sees a change at once.
// It is safe for concurrent use.
type Cells struct {
	*cluster
	state jetstream.Stream
}

// OpenCells returns the Cells of a cluster, and creates their stream if it does not exist. The caller owns
// the connection.
//
// Errors: see [Open].
func OpenCells(ctx context.Context, conn *nats.Conn, opts *Options) (*Cells, error) {
	c, err := newCluster(conn, opts.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("open cells: %w", err)
	}
	cells := &Cells{cluster: c}
	cells.state, err = c.stream(ctx, streamState, true)
	if err != nil {
		return nil, fmt.Errorf("open cells: %w", err)
	}
	return cells, nil
}

// Skew returns how far the clock of the server that leads the cells is ahead of the clock of this process; it
// is negative if that clock is behind. The time that the answer took is not included.
//
// Errors: provenance.ErrUnavailable, or the error of ctx.
func (c *Cells) Skew(ctx context.Context) (ahead time.Duration, err error) {
	err = c.ask(ctx, func(ctx context.Context) error {
		begin := c.opts.Now()
		info, err := c.state.Info(ctx)
		if err != nil {
			return err
		}
		ahead = skew(info, begin, c.opts.Now())
		return nil
	})
	return ahead, err
}

// skew returns how far the time in an answer lies outside the interval between request and answer.
func skew(info *jetstream.StreamInfo, begin, end time.Time) time.Duration {
	return min(0, info.TimeStamp.Sub(begin)) + max(0, info.TimeStamp.Sub(end))
}

// subjectOfCell returns the subject of a key's cell, which does not reveal the key to the cluster.
func (c *cluster) subjectOfCell(key string) string {
	sum := sha256.Sum256([]byte(key))
	return c.subject("st", hex.EncodeToString(sum[:]))
}

// headerToken is the header with a random token that identifies the change of one caller.
const headerToken = "Token"

// Change calls change with the value of a key, nil if it has none, and sets the value to the result, for life
// or at least a second. If the result is nil, the value stays unchanged. If another process changes the value
// meanwhile, change is called again with the new value. Keys are not revealed to the cluster.
//
// Errors: provenance.ErrUnavailable, after which the change may or may not have been made; the error of ctx.
func (c *Cells) Change(
	ctx context.Context, key string, life time.Duration, change func(value []byte) []byte,
) error {
	subject := c.subjectOfCell(key)
	for {
		var value []byte
		var seq uint64
		m, err := c.last(ctx, c.state, subject)
		switch {
		case err == nil:
			value, seq = m.Data, m.Sequence
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return fmt.Errorf("change a cell: %w", err)
		}
		next := change(value)
		if next == nil {
			return nil
		}
		msg := &nats.Msg{Subject: subject, Data: next}
		made, err := c.swap(ctx, c.state, msg, seq, max(life, time.Second))
		if err != nil {
			return fmt.Errorf("change a cell: %w", err)
		}
		if made {
			return nil
		}
	}
}

// swap publishes a message if seq is the number of the subject's last message, 0 for none, and reports
// whether it did. The message expires after life, or never if life is 0. If an answer is lost or is a
// refusal, only the last message at the leader of the stream decides.
func (c *cluster) swap(
	ctx context.Context, stream jetstream.Stream, m *nats.Msg, seq uint64, life time.Duration,
) (made bool, err error) {
	end, hopeless := c.probe()
	if hopeless {
		return false, provenance.ErrSilent
	}
	defer end()
	m.Header = nats.Header{headerToken: {rand.Text()}}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(seq)}
	if life > 0 {
		opts = append(opts, jetstream.WithMsgTTL(life))
	}
	for begin := time.Now(); ; time.Sleep(pause) {
		try, cancel := context.WithTimeout(ctx, attempt)
		_, err := c.js.PublishMsg(try, m, opts...)
		cancel()
		if err == nil {
			c.heard()
			return true, nil
		}
		got, failed := tryLast(ctx, stream, m.Subject)
		switch {
		case failed == nil && got.Header.Get(headerToken) == m.Header.Get(headerToken):
			return true, nil
		case failed == nil && got.Sequence > seq, errors.Is(failed, jetstream.ErrMsgNotFound) && seq > 0:
			// The cell has another value, or its value has expired.
			return false, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case refused(err):
			return false, fmt.Errorf("%w: %w", provenance.ErrUnavailable, err)
		case c.spent(begin):
			return false, fmt.Errorf("%w: %w", provenance.ErrSilent, err)
		}
		c.nudge(begin)
	}
}
