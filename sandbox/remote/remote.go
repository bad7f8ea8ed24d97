// Package remote hands runs to workers on other machines, over NATS, and says what became of them.
//
// A [Pool] offers a run to the workers of its name; one that has a slot says that it is ready and is sent the
// job. Guarantees:
//   - a job is sent once, to the worker that said that it was ready, which takes it within a second and a
//     half, says so before it starts it, and starts it within ten seconds by its own clock or not at all;
//     nothing is ever run again;
//   - messages are sealed with a key that both have, for one receiver and in the order of one sender: what is
//     forged, altered, repeated or late is not taken;
//   - a worker keeps the answer of a run for ten minutes, for whoever asks by the run's id.
//
// Jobs and answers are bytes here, as long as they like. Messages that are lost with a connection make an
// outcome unknown until somebody asks again.
package remote

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skillsd/skillsd/sandbox"
)

const (
	// startWithin is how long a worker waits for a word of who offered a run, and patience how long that one
	// waits for a sign of life. beginWithin is how long a worker may prepare a job before it starts it.
	startWithin = 1500 * time.Millisecond
	patience    = 2 * time.Second
	beginWithin = 10 * time.Second

	beat   = time.Second // how often a worker says that it lives
	silent = 3 * beat    // after which it is taken for lost

	askEvery = 5 * time.Second // for a lost outcome
	keepFor  = 10 * time.Minute
	keepMost = 64 << 20  // bytes of kept jobs and answers
	part     = 256 << 10 // bytes of a message
)

// ErrBusy means that no worker began the run in time, and none will.
var ErrBusy = errors.New("no worker began it in time")

// UnknownError means that a worker may have run a job, in part or to its end.
type UnknownError struct{ Node string }

func (e *UnknownError) Error() string { return "worker " + e.Node + " has not answered since it began" }

// RefusedError is why a worker gave no slot; the text is for logs.
type RefusedError struct{ Node, Reason string }

func (e *RefusedError) Error() string { return "worker " + e.Node + ": " + e.Reason }

// kind is what a message is.
type kind byte

const (
	kindOffer   kind = iota + 1 // of a run, to all workers: one answers
	kindAsk                     // what became of a run, to all workers: who knows answers
	kindHello                   // a worker has seen an offer: a ready
	kindMeant                   // the offer was sent now, and not only seen by somebody
	kindAlive                   // the worker lives
	kindWaiting                 // the run waits for a slot: a number
	kindReady                   // the worker takes the job now; or that it is there: a ready
	kindJob
	kindCancel
	kindTaken   // the job is being prepared, and started unless an answer or kindLate says that it was not
	kindLate    // the job was not begun
	kindRefused // there is no slot: a text
	kindAnswer  // of the run
	kindWas     // the job whose answer follows
)

// offer is the body of an offer and of a question.
type offer struct{ Inbox, Run, Principal string }

// ready is who a worker is, and where it takes what is meant for a run.
type ready struct{ Node, Inbox string }

// Link is a connection to workers, or to those who have work for them.
type Link struct {
	conn   *nats.Conn
	prefix string
	seal   cipher.AEAD
	// most is how many bytes of jobs and answers a worker keeps, and begin is beginWithin; tests change them.
	most  int
	begin time.Duration
}

// NewLink returns the link for the pools of a prefix, to who has the key of 32 bytes. The connection is the
// caller's.
//
// Errors: a key of another length.
func NewLink(conn *nats.Conn, prefix string, key []byte) (*Link, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	return &Link{conn: conn, prefix: prefix, seal: seal, most: keepMost, begin: beginWithin}, err
}

func (l *Link) subject(what, pool string) string { return l.prefix + "." + what + "." + pool }

// to is who messages of a run are sent to.
type to struct {
	*Link
	inbox string

	mu   sync.Mutex
	from [senderSize]byte // of this sender alone; zero before the first message
	seq  uint64
}

// send sends a message, in parts if it is long. reply gets notice if nobody listens; it may be empty.
func (t *to) send(k kind, body []byte, reply string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seq == 0 {
		_, _ = rand.Read(t.from[:]) // it does not fail
	}
	for more := true; more; {
		rest := body
		more = len(body) > part
		if more {
			body, rest = body[:part], body[part:]
		}
		t.seq++
		plain := append([]byte{byte(k), 0}, t.from[:]...)
		plain = append(binary.BigEndian.AppendUint64(plain, t.seq), body...)
		if more {
			plain[1] = 1
		}
		m := &nats.Msg{Subject: t.inbox, Reply: reply, Data: t.seal.Seal(nil, nil, plain, []byte(t.inbox))}
		if err := t.conn.PublishMsg(m); err != nil {
			return err
		}
		body = rest
	}
	return nil
}

// message is what was received.
type message struct {
	kind kind
	from [senderSize]byte
	body []byte
}

// header is the length of what comes before the body of a message.
const (
	senderSize = 8
	header     = 2 + senderSize + 8
)

// open opens what was sent to a subject; ok is false for what its key did not seal for it.
func (l *Link) open(m *nats.Msg) (msg message, more bool, seq uint64, ok bool) {
	plain, err := l.seal.Open(nil, nil, m.Data, []byte(m.Subject))
	if err != nil || len(plain) < header {
		return msg, false, 0, false
	}
	msg = message{kind(plain[0]), [senderSize]byte(plain[2:]), plain[header:]}
	return msg, plain[1] == 1, binary.BigEndian.Uint64(plain[2+senderSize:]), true
}

// inbox receives the messages of one run, in their order, from the first who sends one: an offer that is
// repeated has other workers answer as well.
type inbox struct {
	*Link
	sub  *nats.Subscription
	from [senderSize]byte
	seq  uint64
	got  []byte // of a message whose parts have not all come
}

func (l *Link) listen() (*inbox, error) {
	sub, err := l.conn.SubscribeSync(nats.NewInbox())
	return &inbox{Link: l, sub: sub}, err
}

func (in *inbox) close() { _ = in.sub.Unsubscribe() } // of a connection that is gone, it has ended

// receive waits for the next message, so long for each of its parts.
//
// Errors: nats.ErrNoResponders, nats.ErrTimeout, the error of ctx, or that messages were lost.
func (in *inbox) receive(ctx context.Context, wait time.Duration) (message, error) {
	for {
		msg, more, err := in.next(ctx, wait)
		if err != nil {
			return message{}, err
		}
		in.got = append(in.got, msg.body...)
		if !more {
			msg.body, in.got = in.got, nil
			return msg, nil
		}
	}
}

// next waits for the next part of a message.
func (in *inbox) next(ctx context.Context, wait time.Duration) (msg message, more bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, nats.ErrTimeout)
	defer cancel()
	for {
		m, err := in.sub.NextMsgWithContext(ctx)
		switch {
		case err == nil:
		case errors.Is(err, nats.ErrNoResponders) && in.seq > 0:
			continue // somebody was there
		case ctx.Err() != nil:
			return message{}, false, context.Cause(ctx)
		default:
			return message{}, false, err
		}
		msg, more, seq, ok := in.open(m)
		if !ok || seq <= in.seq || in.seq > 0 && msg.from != in.from {
			continue // forged, repeated, or of somebody else
		}
		if seq != in.seq+1 {
			return message{}, false, errors.New("messages were lost")
		}
		in.from, in.seq = msg.from, seq
		return msg, more, nil
	}
}

// Pool gives runs to the workers of a name. It is safe for concurrent use.
type Pool struct {
	*Link
	name string
}

// Pool returns the pool of a name.
func (l *Link) Pool(name string) *Pool { return &Pool{l, name} }

// Name returns the name of the pool.
func (p *Pool) Name() string { return p.name }

// call sends an offer or a question to the workers of the pool, and returns where they answer.
func (p *Pool) call(what string, k kind, run, principal string) (*inbox, error) {
	in, err := p.listen()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(offer{in.sub.Subject, run, principal})
	if err == nil {
		err = (&to{Link: p.Link, inbox: p.subject(what, p.name)}).send(k, body, in.sub.Subject)
	}
	if err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// Slot is a slot at a worker, which waits for the job for a moment.
type Slot struct {
	*inbox
	worker to
	node   string
	queued bool
	sent   bool
}

// Node returns the name of the worker.
func (s *Slot) Node() string { return s.node }

// Queued reports whether the run had to wait for the slot.
func (s *Slot) Queued() bool { return s.queued }

// Release gives a slot back to which no job was sent; of another one, the answer is not waited for any more.
func (s *Slot) Release() {
	if !s.sent {
		_ = s.worker.send(kindCancel, nil, "") // it ends by itself
	}
	s.close()
}

// Acquire waits until a worker has a slot for a run, which must be released. The id of the run occurs once in
// the pool; workers share their slots fairly over principals. While a worker is looked for, Acquire calls
// meant, at most once, and asks for no slot before that returns nil. While the run waits for its slot, it
// calls waiting with the number of runs before it.
//
// Errors: *sandbox.UnavailableError if there is no worker, ErrBusy, *RefusedError, those of meant and ctx.
func (p *Pool) Acquire(
	ctx context.Context, run, principal string, meant func() error, waiting func(before int),
) (*Slot, error) {
	in, err := p.call("run", kindOffer, run, principal)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	s := &Slot{inbox: in}
	for wait := patience; ; wait = silent {
		m, err := in.receive(ctx, wait)
		switch {
		case err != nil:
		case m.kind == kindWaiting:
			s.queued = true
			var before int
			if json.Unmarshal(m.body, &before) == nil {
				waiting(before)
			}
			continue
		case m.kind == kindHello:
			var r ready
			err = json.Unmarshal(m.body, &r)
			if err == nil {
				s.node, s.worker = r.Node, to{Link: p.Link, inbox: r.Inbox}
				heard := time.Now()
				if err := meant(); err != nil {
					s.Release()
					return nil, err
				}
				if time.Since(heard) > startWithin/2 {
					// The worker may have given up on it, and takes it for a new one once it has.
					s.Release()
					if err := sleep(ctx, time.Until(heard.Add(patience))); err != nil {
						return nil, err
					}
					return p.Acquire(ctx, run, principal, func() error { return nil }, waiting)
				}
				err = s.worker.send(kindMeant, nil, "")
			}
			if err == nil {
				continue
			}
		case m.kind == kindReady && s.node != "":
			return s, nil
		case m.kind == kindRefused:
			err = &RefusedError{s.node, string(m.body)}
		default:
			continue
		}
		if s.node != "" {
			_ = s.worker.send(kindCancel, nil, "") // else it gives the slot up by itself
		}
		in.close()
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, nats.ErrNoResponders):
			err = &sandbox.UnavailableError{Backend: "pool " + p.name,
				Reason: "no worker of the pool answers",
				Remedy: "the operator can start one: `skillsd worker --pool " + p.name + "`"}
		case !errors.As(err, new(*RefusedError)):
			err = fmt.Errorf("%w: %w", ErrBusy, err)
		}
		return nil, err
	}
}

// Run has the worker run a job, once, and returns its answer. If ctx ends, the worker is asked to end the run
// and to answer all the same.
//
// Errors: ErrBusy if the worker says that it has not begun the job and will not; *UnknownError.
func (s *Slot) Run(ctx context.Context, job []byte) ([]byte, error) {
	s.sent = true
	defer s.close()
	if err := s.worker.send(kindJob, job, ""); err != nil {
		return nil, &UnknownError{s.node} // a part may have left
	}
	done := context.WithoutCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = s.worker.send(kindCancel, nil, "") })
	defer stop()
	for wait, asked := patience, false; ; {
		m, err := s.receive(done, wait)
		if errors.Is(err, nats.ErrTimeout) && wait == patience && !asked {
			// Its word may be lost: only the worker knows whether it has begun.
			asked = true
			err = s.worker.send(kindCancel, nil, "")
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, &UnknownError{s.node}
		}
		switch m.kind {
		case kindTaken:
			wait = silent
		case kindLate:
			return nil, ErrBusy
		case kindAnswer:
			return m.body, nil
		}
	}
}

// Workers returns the names of the workers of the pool that answer within a moment, in order.
//
// Errors: the errors of the connection.
func (p *Pool) Workers(ctx context.Context) (names []string, err error) {
	in, err := p.call("ask", kindAsk, "", "")
	if err != nil {
		return nil, err
	}
	defer in.close()
	for {
		in.seq = 0 // each of them says one thing
		m, err := in.receive(ctx, beat/2)
		switch {
		case err == nil && m.kind == kindReady:
			var r ready
			if json.Unmarshal(m.body, &r) == nil {
				names = append(names, r.Node)
			}
		case errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders):
			slices.Sort(names)
			return names, nil
		case err != nil:
			return nil, err
		}
	}
}

// Late returns the job and the answer of a run whose outcome is not known here, as soon as a worker has it.
// If none says for three seconds that it runs it, lost is called, once.
//
// Errors: the error of ctx.
func (p *Pool) Late(ctx context.Context, run string, lost func()) (job, answer []byte, err error) {
	once := sync.OnceFunc(lost)
	for {
		begin := time.Now()
		in, err := p.call("ask", kindAsk, run, "")
		for err == nil {
			var m message
			m, err = in.receive(ctx, silent)
			if err == nil && m.kind == kindWas {
				job = slices.Clone(m.body)
			} else if err == nil && m.kind == kindAnswer {
				in.close()
				return job, m.body, nil
			}
		}
		if in != nil {
			in.close()
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		once()
		_ = sleep(ctx, askEvery-time.Since(begin))
	}
}

// sleep waits for so long, or until ctx ends.
//
// Errors: the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}
