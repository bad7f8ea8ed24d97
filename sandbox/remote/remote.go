// Package remote sends runs to workers on other machines, over NATS, and returns their outcomes.
//
// A [Pool] offers a run to the workers of its name. A worker with a free slot answers that it is ready and is
// sent the job. Guarantees:
//   - A job is sent once, to the worker that was ready. The worker accepts it within a second and a half and
//     reports that before it starts the job. It starts the job within ten seconds by its own clock, or not at
//     all. No job is ever run again.
//   - Messages are sealed with a shared key, for one receiver and in the order of one sender. Forged,
//     altered, repeated or late messages are ignored.
//   - A worker keeps the answer of a run for ten minutes, for clients that ask by the run's ID.
//
// Jobs and answers are bytes of any length. If messages are lost with a connection, the outcome is unknown
// until a client asks again.
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
	// startWithin is how long a worker waits for the next message of the pool that offered a run; patience is
	// how long that pool waits for a worker's message. prepareWithin limits a worker's preparation of a job
	// before it starts it.
	startWithin   = 1500 * time.Millisecond
	patience      = 2 * time.Second
	prepareWithin = 10 * time.Second

	beat   = time.Second // interval of a worker's kindAlive messages
	silent = 3 * beat    // after this time without a message, a worker is considered lost

	askEvery = 5 * time.Second // for an unknown outcome
	keepFor  = 10 * time.Minute
	keepMost = 64 << 20  // total size of kept jobs and answers, in bytes
	part     = 256 << 10 // maximum size of a message, in bytes
)

// ErrBusy means that no worker started the run in time, and none will.
var ErrBusy = errors.New("no worker began the run in time")

// UnknownError means that a worker may have run a job, partly or completely.
type UnknownError struct{ Node string }

func (e *UnknownError) Error() string { return "worker " + e.Node + " has not answered since it began" }

// RefusedError is the reason why a worker refused a slot; the text is for logs.
type RefusedError struct{ Node, Reason string }

func (e *RefusedError) Error() string { return "worker " + e.Node + ": " + e.Reason }

// kind is the kind of a message.
type kind byte

const (
	kindOffer   kind = iota + 1 // of a run, to all workers: one answers
	kindAsk                     // for the outcome of a run, to all workers: the one that has it answers
	kindHello                   // a worker has received an offer: a ready
	kindConfirm                 // confirms that the offer is new and was not repeated by another process
	kindAlive                   // the worker is running
	kindWaiting                 // the run waits for a slot: a number
	kindReady                   // the worker accepts the job now, or answers kindAsk without a run: a ready
	kindJob
	kindCancel
	kindTaken   // the job is being prepared, and will be started unless an answer or kindLate follows
	kindLate    // the job was not started
	kindRefused // there is no slot: a text
	kindAnswer  // the answer of the run
	kindWas     // the job; its answer follows
)

// offer is the body of an offer and of a question.
type offer struct{ Inbox, Run, Principal string }

// ready is the name of a worker and its inbox for a run.
type ready struct{ Node, Inbox string }

// Link is a connection to workers, or from a worker to its pools.
type Link struct {
	conn   *nats.Conn
	prefix string
	seal   cipher.AEAD
	// most is how many bytes of jobs and answers a worker keeps, and prepare is prepareWithin. Tests
	// change them.
	most    int
	prepare time.Duration
}

// NewLink returns the link for the pools with a prefix. key has 32 bytes and is shared by pools and workers.
// The caller owns the connection.
//
// Errors: a key of another length.
func NewLink(conn *nats.Conn, prefix string, key []byte) (*Link, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	return &Link{conn: conn, prefix: prefix, seal: seal, most: keepMost, prepare: prepareWithin}, err
}

func (l *Link) subject(what, pool string) string { return l.prefix + "." + what + "." + pool }

// sender sends the messages of a run to an inbox.
type sender struct {
	*Link
	inbox string

	mu   sync.Mutex
	from [senderSize]byte // ID of this sender; zero before the first message
	seq  uint64
}

// send sends a message, in parts if it is long. reply, if not empty, is notified if there is no receiver.
func (t *sender) send(k kind, body []byte, reply string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seq == 0 {
		// Since Go 1.24, Read cannot fail.
		_, _ = rand.Read(t.from[:])
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
		// The seal includes the subject, so that a message cannot be repeated to another receiver.
		m := &nats.Msg{Subject: t.inbox, Reply: reply, Data: t.seal.Seal(nil, nil, plain, []byte(t.inbox))}
		if err := t.conn.PublishMsg(m); err != nil {
			return err
		}
		body = rest
	}
	return nil
}

// message is a received message.
type message struct {
	kind kind
	from [senderSize]byte
	body []byte
}

// header is the size of a message before its body.
const (
	senderSize = 8
	header     = 2 + senderSize + 8
)

// open opens a message; ok is false if it is not sealed with the key for its subject.
func (l *Link) open(m *nats.Msg) (msg message, more bool, seq uint64, ok bool) {
	plain, err := l.seal.Open(nil, nil, m.Data, []byte(m.Subject))
	if err != nil || len(plain) < header {
		return msg, false, 0, false
	}
	msg = message{kind(plain[0]), [senderSize]byte(plain[2:]), plain[header:]}
	return msg, plain[1] == 1, binary.BigEndian.Uint64(plain[2+senderSize:]), true
}

// inbox receives the messages of one run in order. It accepts only the first sender, because other workers
// also answer a repeated offer.
type inbox struct {
	*Link
	sub  *nats.Subscription
	from [senderSize]byte
	seq  uint64
	got  []byte // parts of an incomplete message
}

func (l *Link) listen() (*inbox, error) {
	sub, err := l.conn.SubscribeSync(nats.NewInbox())
	return &inbox{Link: l, sub: sub}, err
}

func (in *inbox) close() { _ = in.sub.Unsubscribe() } // fails only if the connection is closed

// receive returns the next message. It waits up to wait for each of its parts.
//
// Errors: nats.ErrNoResponders, nats.ErrTimeout, the error of ctx, or an error that messages were lost.
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

// next returns the next part of a message.
func (in *inbox) next(ctx context.Context, wait time.Duration) (msg message, more bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, nats.ErrTimeout)
	defer cancel()
	for {
		m, err := in.sub.NextMsgWithContext(ctx)
		switch {
		case err == nil:
		case errors.Is(err, nats.ErrNoResponders) && in.seq > 0:
			// A worker has answered already.
			continue
		case ctx.Err() != nil:
			return message{}, false, context.Cause(ctx)
		default:
			return message{}, false, err
		}
		msg, more, seq, ok := in.open(m)
		if !ok || seq <= in.seq || in.seq > 0 && msg.from != in.from {
			// The message is forged, repeated, or from another sender.
			continue
		}
		if seq != in.seq+1 {
			return message{}, false, errors.New("messages were lost")
		}
		in.from, in.seq = msg.from, seq
		return msg, more, nil
	}
}

// Pool sends runs to the workers with a name. It is safe for concurrent use.
type Pool struct {
	*Link
	name string
}

// Pool returns the pool with a name.
func (l *Link) Pool(name string) *Pool { return &Pool{l, name} }

// Name returns the name of the pool.
func (p *Pool) Name() string { return p.name }

// call sends an offer or a question to the workers of the pool, and returns the inbox for their answers.
func (p *Pool) call(what string, k kind, run, principal string) (*inbox, error) {
	in, err := p.listen()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(offer{in.sub.Subject, run, principal})
	if err != nil {
		in.close()
		return nil, err
	}
	workers := &sender{Link: p.Link, inbox: p.subject(what, p.name)}
	if err := workers.send(k, body, in.sub.Subject); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// Slot is a slot at a worker, which waits briefly for the job.
type Slot struct {
	*inbox
	worker sender
	node   string
	queued bool
	sent   bool
}

// Node returns the name of the worker.
func (s *Slot) Node() string { return s.node }

// Queued reports whether the run had to wait for the slot.
func (s *Slot) Queued() bool { return s.queued }

// Release releases a slot without a job. For a slot with a job, it stops waiting for the answer.
func (s *Slot) Release() {
	if !s.sent {
		// Without this message, the worker releases the slot by itself.
		_ = s.worker.send(kindCancel, nil, "")
	}
	s.close()
}

// Acquire waits until a worker has a slot for a run. The caller must release it. The ID of the run must be
// unique in the pool; workers share their slots fairly among principals. Once a worker answers, Acquire calls
// confirm, at most once, and requests no slot unless confirm returns nil. While the run waits for its slot,
// Acquire calls waiting with the number of runs ahead of it.
//
// Errors: *sandbox.UnavailableError if no worker answers; ErrBusy; *RefusedError; the errors of confirm and
// ctx.
func (p *Pool) Acquire(
	ctx context.Context, run, principal string, confirm func() error, waiting func(before int),
) (*Slot, error) {
	in, err := p.call("run", kindOffer, run, principal)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	s := &Slot{inbox: in}
	if err := s.meet(ctx, waiting); err != nil {
		in.close()
		return nil, p.acquireError(ctx, err)
	}
	met := time.Now()
	if err := confirm(); err != nil {
		s.Release()
		return nil, err
	}
	if time.Since(met) > startWithin/2 {
		// The worker may have stopped waiting. After patience it has, and will treat the run as new.
		s.Release()
		if err := sleep(ctx, time.Until(met.Add(patience))); err != nil {
			return nil, err
		}
		return p.Acquire(ctx, run, principal, func() error { return nil }, waiting)
	}
	err = s.worker.send(kindConfirm, nil, "")
	if err == nil {
		_, err = s.await(ctx, kindReady, silent, waiting)
	}
	if err != nil {
		s.Release()
		return nil, p.acquireError(ctx, err)
	}
	return s, nil
}

// meet waits until a worker answers the offer, and notes its name and its inbox.
func (s *Slot) meet(ctx context.Context, waiting func(before int)) error {
	m, err := s.await(ctx, kindHello, patience, waiting)
	if err != nil {
		return err
	}
	var r ready
	if err := json.Unmarshal(m.body, &r); err != nil {
		return err
	}
	// In a record, an empty name means that the server ran the script itself.
	if r.Node == "" {
		return errors.New("the worker has no name")
	}
	s.node, s.worker.Link, s.worker.inbox = r.Node, s.Link, r.Inbox
	return nil
}

// await returns the next message of a kind. It waits up to first for the first message and up to silent for
// each other one. While the run waits for a slot, it calls waiting with the number of runs ahead.
//
// Errors: *RefusedError; the errors of receive.
func (s *Slot) await(
	ctx context.Context, want kind, first time.Duration, waiting func(before int),
) (message, error) {
	for wait := first; ; wait = silent {
		m, err := s.receive(ctx, wait)
		switch {
		case err != nil:
			return message{}, err
		case m.kind == want:
			return m, nil
		case m.kind == kindRefused:
			return message{}, &RefusedError{s.node, string(m.body)}
		case m.kind == kindWaiting:
			s.queued = true
			var before int
			if json.Unmarshal(m.body, &before) == nil {
				waiting(before)
			}
		}
	}
}

// acquireError returns the error of Acquire for an error of the exchange with workers.
func (p *Pool) acquireError(ctx context.Context, err error) error {
	_, refused := errors.AsType[*RefusedError](err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nats.ErrNoResponders):
		return &sandbox.UnavailableError{Backend: "pool " + p.name,
			Reason: "no worker of the pool answers",
			Remedy: "the user can start one: `skillsd worker --pool " + p.name + "`"}
	case refused:
		return err
	}
	return fmt.Errorf("%w: %w", ErrBusy, err)
}

// Run sends the job to the worker, once, and returns the answer. If ctx ends, it asks the worker to end the
// run, and still waits for the answer.
//
// Errors: ErrBusy if the worker reports that it has not started the job and will not; *UnknownError.
func (s *Slot) Run(ctx context.Context, job []byte) ([]byte, error) {
	s.sent = true
	defer s.close()
	if err := s.worker.send(kindJob, job, ""); err != nil {
		// A part of the job may have been sent.
		return nil, &UnknownError{s.node}
	}
	done := context.WithoutCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = s.worker.send(kindCancel, nil, "") })
	defer stop()
	for wait, asked := patience, false; ; {
		m, err := s.receive(done, wait)
		if errors.Is(err, nats.ErrTimeout) && wait == patience && !asked {
			// The worker's message may be lost, and only the worker can report whether it started the job.
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

// Workers returns the names of the workers that answer immediately, sorted.
//
// Errors: the errors of the connection.
func (p *Pool) Workers(ctx context.Context) (names []string, err error) {
	in, err := p.call("ask", kindAsk, "", "")
	if err != nil {
		return nil, err
	}
	defer in.close()
	for {
		// Each worker sends one message, with its own numbers.
		in.seq = 0
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

// Late returns the job and the answer of a run with an unknown outcome, as soon as a worker has them. It
// calls lost, once, if no worker reports for three seconds that it is running the job.
//
// Errors: the error of ctx.
func (p *Pool) Late(ctx context.Context, run string, lost func()) (job, answer []byte, err error) {
	once := sync.OnceFunc(lost)
	for {
		begin := time.Now()
		job, answer, err := p.ask(ctx, run)
		if err == nil {
			return job, answer, nil
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		once()
		_ = sleep(ctx, askEvery-time.Since(begin))
	}
}

// ask asks the workers for the job and the answer of a run, and waits while one of them is running it.
func (p *Pool) ask(ctx context.Context, run string) (job, answer []byte, err error) {
	in, err := p.call("ask", kindAsk, run, "")
	if err != nil {
		return nil, nil, err
	}
	defer in.close()
	for {
		m, err := in.receive(ctx, silent)
		switch {
		case err != nil:
			return nil, nil, err
		case m.kind == kindWas:
			job = slices.Clone(m.body)
		case m.kind == kindAnswer:
			return job, m.body, nil
		}
	}
}

// sleep waits for d, or until ctx ends.
//
// Errors: the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}
