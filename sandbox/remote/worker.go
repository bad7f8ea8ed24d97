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

// Work is what a worker does. It is safe for concurrent use.
type Work interface {
	// Slot waits for a slot for a run of a principal, and calls waiting with the number of runs before it.
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
	ended bool // nothing more is taken
	runs  map[string]*run
	kept  []*run // those that have ended, in this order
	size  int    // of kept, in bytes
}

// run is a run at a worker.
type run struct {
	id string

	mu     sync.Mutex
	tell   []*to // who waits for it
	job    []byte
	answer []byte
	done   time.Time // zero while it runs
}

// mostAskers is how many ask for the outcome of one run.
const mostAskers = 8

// errLate means that a job was not begun in time.
var errLate = errors.New("the job is late")

// Serve does the work of a pool until ctx ends, and then what it has begun.
//
// Errors: the errors of the connection.
func (l *Link) Serve(ctx context.Context, pool, node string, work Work, log *slog.Logger) error {
	w := &worker{Link: l, node: node, work: work, log: log, runs: map[string]*run{}}
	taken := func(want kind, serve func(context.Context, offer)) nats.MsgHandler {
		return func(m *nats.Msg) {
			msg, more, _, ok := w.open(m)
			var o offer
			if !ok || more || msg.kind != want || json.Unmarshal(msg.body, &o) != nil {
				log.WarnContext(ctx, "message without the key of the cluster",
					slog.String("subject", m.Subject))
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if !w.ended {
				w.serving.Go(func() { serve(ctx, o) })
			}
		}
	}
	offers, err := l.conn.QueueSubscribe(l.subject("run", pool), "workers", taken(kindOffer, w.offered))
	if err != nil {
		return err
	}
	asks, err := l.conn.Subscribe(l.subject("ask", pool), taken(kindAsk, w.asked))
	if err == nil {
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
	return errors.Join(err, l.conn.FlushTimeout(patience))
}

// offered takes a run that is offered, if it is new.
func (w *worker) offered(ctx context.Context, o offer) {
	r := &run{id: o.Run, tell: []*to{{Link: w.Link, inbox: o.Inbox}}}
	w.mu.Lock()
	known := w.runs[o.Run] != nil
	if !known {
		w.runs[o.Run] = r
	}
	w.mu.Unlock()
	if known {
		r.say(kindRefused, []byte("the run is known already"))
		return
	}
	if err := w.run(ctx, r, o.Principal); err != nil {
		w.log.InfoContext(ctx, "run not begun", slog.String("run", o.Run), tint.Err(err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.answer == nil {
		delete(w.runs, r.id)
		return
	}
	w.kept = append(w.kept, r)
	w.size += len(r.job) + len(r.answer)
	for len(w.kept) > 0 && (w.size > w.most || time.Since(w.kept[0].done) > keepFor) {
		w.size -= len(w.kept[0].job) + len(w.kept[0].answer)
		delete(w.runs, w.kept[0].id)
		w.kept = w.kept[1:]
	}
}

// run waits for a slot, then for the job, and runs it. An offer that somebody sends again is confirmed by
// nobody, so that it takes no slot.
func (w *worker) run(ctx context.Context, r *run, principal string) error {
	in, err := w.listen()
	if err != nil {
		return err
	}
	defer in.close()
	// A run that has begun ends by itself although the worker is asked to end: its slot and limits bound it.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var beating sync.WaitGroup
	defer beating.Wait()
	stopped := make(chan struct{})
	defer close(stopped)
	beating.Go(func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.say(kindAlive, nil)
			case <-stopped:
				return
			}
		}
	})
	r.say(kindHello, w.ready(in.sub.Subject))
	if m, err := in.receive(ctx, startWithin); err != nil || m.kind != kindMeant {
		return err
	}
	release, err := w.work.Slot(ctx, principal, func(before int) {
		body, _ := json.Marshal(before) // a number
		r.say(kindWaiting, body)
	})
	if err != nil {
		r.say(kindRefused, []byte(err.Error()))
		return err
	}
	defer release()
	readyAt := time.Now()
	r.say(kindReady, nil)
	m, err := in.receive(ctx, startWithin)
	switch {
	case err != nil:
		r.say(kindLate, nil)
		return err
	case m.kind != kindJob:
		return nil // given back
	}
	r.mu.Lock()
	r.job = m.body
	r.mu.Unlock()
	beating.Go(func() {
		for {
			m, err := in.receive(running, keepFor)
			if err == nil && m.kind == kindCancel {
				cancel()
			}
			if err != nil && !errors.Is(err, nats.ErrTimeout) {
				return
			}
		}
	})
	// Its sender knows, or will, before anything starts: that is waited for while the job is prepared.
	r.say(kindTaken, nil)
	known := make(chan error, 1)
	go func() { known <- w.conn.FlushTimeout(startWithin) }()
	late := false
	answer := w.work.Run(running, m.body, func() error {
		if err := <-known; err != nil {
			return err
		}
		late = time.Since(readyAt) > w.begin || running.Err() != nil
		if late {
			return errLate
		}
		return nil
	})
	cancel()
	if late {
		r.say(kindLate, nil)
		return errLate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.done = answer, time.Now()
	for _, t := range r.tell {
		_ = t.send(kindAnswer, answer, "") // who did not get it asks
	}
	return nil
}

// ready returns what the worker says if it takes a job into an inbox, or is there.
func (w *worker) ready(inbox string) []byte {
	body, _ := json.Marshal(ready{w.node, inbox}) // texts
	return body
}

// say sends a message to everybody who waits for a run.
func (r *run) say(k kind, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tell {
		_ = t.send(k, body, "") // a message that is lost is like silence
	}
}

// asked answers who asks what became of a run, now or when it has ended, or which workers there are.
func (w *worker) asked(_ context.Context, o offer) {
	if o.Run == "" {
		_ = (&to{Link: w.Link, inbox: o.Inbox}).send(kindReady, w.ready(""), "")
		return
	}
	w.mu.Lock()
	r := w.runs[o.Run]
	w.mu.Unlock()
	if r == nil {
		return
	}
	t := &to{Link: w.Link, inbox: o.Inbox}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.job == nil:
		return
	case r.answer == nil:
		// Questions may be repeated by anybody. The first is who offered the run; others ask anew.
		if len(r.tell) == mostAskers {
			r.tell = slices.Delete(r.tell, 1, 2)
		}
		r.tell = append(r.tell, t)
	}
	_ = t.send(kindWas, r.job, "")
	if r.answer != nil {
		_ = t.send(kindAnswer, r.answer, "")
	}
}
