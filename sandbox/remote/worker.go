package remote

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"github.com/nats-io/nats.go"
)

// Work executes the jobs of a worker. It is safe for concurrent use.
type Work interface {
	// Slot waits for a slot for a run of a principal. While it waits, it calls waiting with the number of
	// runs ahead.
	Slot(ctx context.Context, principal string, waiting func(before int)) (release func(), err error)
	// Run runs a job and returns its answer. It calls started before it starts anything, and starts nothing
	// if that fails.
	Run(ctx context.Context, job []byte, started func() error) (answer []byte)
}

// worker serves a pool.
type worker struct {
	*Link
	node string
	work Work
	log  *slog.Logger

	serving sync.WaitGroup

	mu    sync.Mutex
	ended bool // no more offers and questions are accepted
	runs  map[string]*run
	kept  []*run // ended runs with an answer, in the order of their end
	size  int    // size of kept, in bytes
}

// run is a run at a worker.
type run struct {
	id string

	mu      sync.Mutex
	waiting []*sender // inboxes that wait for the run's messages
	job     []byte
	answer  []byte
	done    time.Time // zero while the run is in progress
}

// mostAskers is how many inboxes can wait for the outcome of one run.
const mostAskers = 8

// errLate means that a job was not started in time.
var errLate = errors.New("the job is late")

// Serve serves a pool until ctx ends, and then finishes the jobs that it started.
//
// Errors: the errors of the connection.
func (l *Link) Serve(ctx context.Context, pool, node string, work Work, log *slog.Logger) error {
	w := &worker{Link: l, node: node, work: work, log: log, runs: map[string]*run{}}
	offers, err := l.conn.QueueSubscribe(l.subject("run", pool), "workers",
		w.handler(ctx, kindOffer, w.offered))
	if err != nil {
		return err
	}
	asks, err := l.conn.Subscribe(l.subject("ask", pool), w.handler(ctx, kindAsk, w.asked))
	if err == nil {
		// Before the answer to this flush, the server may lack the subscriptions and report that no worker
		// responds.
		err = l.conn.Flush()
	}
	if err == nil {
		log.InfoContext(ctx, "worker ready", slog.String("pool", pool), slog.String("node", w.node))
		<-ctx.Done()
	}
	err = errors.Join(err, offers.Unsubscribe())
	if asks != nil {
		err = errors.Join(err, asks.Unsubscribe())
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.serving.Wait()
	// The caller may close the connection, and the last answers must have left it.
	return errors.Join(err, l.conn.FlushTimeout(patience))
}

// handler returns the handler of messages of a kind, which calls serve in a goroutine of its own.
func (w *worker) handler(
	ctx context.Context, want kind, serve func(context.Context, offer),
) nats.MsgHandler {
	return func(m *nats.Msg) {
		msg, more, _, ok := w.open(m)
		var o offer
		if !ok || more || msg.kind != want || json.Unmarshal(msg.body, &o) != nil {
			w.log.WarnContext(ctx, "message without the key of the cluster",
				slog.String("subject", m.Subject))
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		// A goroutine that starts while Serve waits would be a misuse of the WaitGroup, and could outlive
		// Serve.
		if !w.ended {
			w.serving.Go(func() { serve(ctx, o) })
		}
	}
}

// offered runs an offered run, if it is new.
func (w *worker) offered(ctx context.Context, o offer) {
	r := &run{id: o.Run, waiting: []*sender{{Link: w.Link, inbox: o.Inbox}}}
	w.mu.Lock()
	known := w.runs[o.Run] != nil
	if !known {
		w.runs[o.Run] = r
	}
	w.mu.Unlock()
	if known {
		r.send(kindRefused, []byte("the run is known already"))
		return
	}
	if err := w.run(ctx, r, o.Principal); err != nil {
		w.log.InfoContext(ctx, "run not begun", slog.String("run", o.Run), tint.Err(err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.answer == nil {
		// Nothing was started. The pool may offer the run again, for example after a slow confirmation.
		delete(w.runs, r.id)
		return
	}
	w.keep(r)
}

// keep keeps the answer of an ended run, and makes room for it: the oldest answers go first. A run that ended
// later may have been kept earlier. w.mu is held.
func (w *worker) keep(r *run) {
	at, _ := slices.BinarySearchFunc(w.kept, r.done,
		func(k *run, done time.Time) int { return k.done.Compare(done) })
	w.kept = slices.Insert(w.kept, at, r)
	w.size += len(r.job) + len(r.answer)
	for len(w.kept) > 0 && (w.size > w.most || time.Since(w.kept[0].done) > keepFor) {
		w.size -= len(w.kept[0].job) + len(w.kept[0].answer)
		delete(w.runs, w.kept[0].id)
		w.kept = w.kept[1:]
	}
}

// run waits for a slot, then for the job, and runs it. If another process repeats an offer, no pool confirms
// it, so it uses no slot.
func (w *worker) run(ctx context.Context, r *run, principal string) error {
	in, err := w.listen()
	if err != nil {
		return err
	}
	defer in.close()
	// A run that has started continues after ctx ends; its slot and limits bound it.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var beating sync.WaitGroup
	defer beating.Wait()
	stopped := make(chan struct{})
	defer close(stopped)
	beating.Go(func() { r.keepAlive(stopped) })
	r.send(kindHello, w.ready(in.sub.Subject))
	if m, err := in.receive(ctx, startWithin); err != nil || m.kind != kindConfirm {
		return err
	}
	release, err := w.work.Slot(ctx, principal, func(before int) {
		// A number cannot fail.
		body, _ := json.Marshal(before)
		r.send(kindWaiting, body)
	})
	if err != nil {
		r.send(kindRefused, []byte(err.Error()))
		return err
	}
	defer release()
	start := time.Now().Add(w.prepare)
	r.send(kindReady, nil)
	m, err := in.receive(ctx, startWithin)
	switch {
	case err != nil:
		r.send(kindLate, nil)
		return err
	case m.kind != kindJob:
		// The pool has released the slot.
		return nil
	}
	r.mu.Lock()
	r.job = m.body
	r.mu.Unlock()
	beating.Go(func() { in.awaitCancel(running, cancel) })
	answer, err := w.execute(running, r, start)
	// A deferred call waits for the goroutine that receives cancellations, which ends now.
	cancel()
	if err != nil {
		r.send(kindLate, nil)
		return err
	}
	r.finish(answer)
	return nil
}

// keepAlive reports that the worker is running, until stopped is closed.
func (r *run) keepAlive(stopped <-chan struct{}) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.send(kindAlive, nil)
		case <-stopped:
			return
		}
	}
}

// awaitCancel calls cancel when the pool cancels the run. It returns when ctx ends or messages are lost.
func (in *inbox) awaitCancel(ctx context.Context, cancel func()) {
	for {
		m, err := in.receive(ctx, keepFor)
		if err == nil && m.kind == kindCancel {
			cancel()
		}
		if err != nil && !errors.Is(err, nats.ErrTimeout) {
			return
		}
	}
}

// execute runs the job and returns its answer.
//
// Errors: errLate if the job was not started, because the time start had passed or ctx had ended.
func (w *worker) execute(ctx context.Context, r *run, start time.Time) ([]byte, error) {
	// The job does not start before the NATS server has this message. The job is prepared meanwhile.
	r.send(kindTaken, nil)
	known := make(chan error, 1)
	go func() { known <- w.conn.FlushTimeout(startWithin) }()
	late := false
	answer := w.work.Run(ctx, r.job, func() error {
		if err := <-known; err != nil {
			return err
		}
		late = time.Now().After(start) || ctx.Err() != nil
		if late {
			return errLate
		}
		return nil
	})
	if late {
		return nil, errLate
	}
	return answer, nil
}

// finish sends the answer to all inboxes that wait for the run.
func (r *run) finish(answer []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.done = answer, time.Now()
	for _, t := range r.waiting {
		// A pool that does not receive it asks again.
		_ = t.send(kindAnswer, answer, "")
	}
}

// ready returns the body of a kindHello or kindReady message.
func (w *worker) ready(inbox string) []byte {
	// Strings cannot fail.
	body, _ := json.Marshal(ready{w.node, inbox})
	return body
}

// send sends a message to all inboxes that wait for the run.
func (r *run) send(k kind, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.waiting {
		// Receivers treat a lost message like silence.
		_ = t.send(k, body, "")
	}
}

// asked answers a question for the outcome of a run, now or when it has ended, or for the workers of the
// pool.
func (w *worker) asked(_ context.Context, o offer) {
	if o.Run == "" {
		_ = (&sender{Link: w.Link, inbox: o.Inbox}).send(kindReady, w.ready(""), "")
		return
	}
	w.mu.Lock()
	r := w.runs[o.Run]
	w.mu.Unlock()
	if r == nil {
		return
	}
	t := &sender{Link: w.Link, inbox: o.Inbox}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.job == nil:
		return
	case r.answer == nil:
		// Any process may repeat questions. The first inbox is the pool that offered the run, and it stays;
		// others can ask again.
		if len(r.waiting) == mostAskers {
			r.waiting = slices.Delete(r.waiting, 1, 2)
		}
		r.waiting = append(r.waiting, t)
	}
	_ = t.send(kindWas, r.job, "")
	if r.answer != nil {
		_ = t.send(kindAnswer, r.answer, "")
	}
}
