// Package jetstream keeps the provenance of sessions in three streams of a NATS JetStream cluster, so that
// several processes serve the same sessions and a lost machine loses nothing.
//
// The record of a session is the messages of one subject. A message is a batch of lines, as they are in an
// events.jsonl, and is published with the sequence number of the one before it: the cluster refuses it if
// another writer was faster. A header has the state of the session after the batch, so that the next writer
// reads one message; whoever reads events reads the lines and checks their chain.
//
// A header of some messages has what the events before it say of a session that is to be continued, so that
// [Store.Recall] reads at most the last 1,000, and checks the chain of those. That has up to 48 KiB, or 1 MiB
// before it is compressed, which is some 600 loads; in a longer session, all events after the last such
// header are read.
//
// # Turns
//
// [Store.Take] takes a session from any other writer. That one notices at its next event: it is not recorded,
// and the error is provenance.ErrLost. Turns are named in events and messages, so equal bytes of two writers
// are never taken for each other.
//
// # Durability
//
// An acknowledged event is on most servers of the cluster, and on their disks if the servers have
// "sync_interval: always", without which a power failure can lose it. An append waits for an election, for
// [Options.Patience] at most. Then its error is provenance.ErrUnavailable, and whether the events become part
// of the record is open: an event that is appended again in the same turn is recorded once in either case.
//
// Reads are answered by the leaders of the streams. Bytes of files are compared with their digests.
//
// # Limits
//
// Nothing bounds the outputs and texts of a session but the limits of the streams, nothing is signed, and
// there is no register of sessions. Bytes that no session names any more are deleted by the first Collect
// that comes a day after they were written and deletes a session. Whoever may publish to the streams can make
// a consistent record of something else.
package jetstream

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

var _ provenance.Store = (*Store)(nil)

// Options adjust a Store. The zero value and nil have the defaults.
type Options struct {
	// Prefix begins the names of streams and subjects; "" is "skillsd". Stores with different prefixes have
	// nothing in common.
	Prefix string
	// Replicas is of how many servers each has all records; zero is 3.
	Replicas int
	// Node begins the names of turns, if a [Store] has a node of its own; "" is random.
	Node string
	// Address is what [Store.Holder] of other stores says of the sessions of this one.
	Address string
	// Patience is how long an operation waits for the cluster; zero is 15 s, which is longer than an
	// election.
	Patience time.Duration
	// Now is the clock for events without a time; nil is time.Now.
	Now func() time.Time
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.Prefix, c.Replicas = cmp.Or(c.Prefix, "skillsd"), cmp.Or(c.Replicas, 3)
	c.Patience = cmp.Or(c.Patience, 15*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

const (
	// attempt bounds one request to the cluster, and pause is between two.
	attempt = 2 * time.Second
	pause   = 20 * time.Millisecond

	// deaf is how long nothing must have been answered before the connection is given up: a client stays
	// connected to a server that is cut off from the others.
	deaf = 4 * time.Second
)

// Store is a provenance.Store in a cluster. It is safe for concurrent use.
type Store struct {
	reader
	name    string // of this store, without a dot; begins the names of its turns
	alive   []*nats.Subscription
	packers sync.Pool // of *gzip.Writer, of which a new one costs ten checkpoints

	mu     sync.Mutex
	closed bool
	turns  map[string]*turn
	took   int                         // turns that this store had
	known  map[digest.Digest]time.Time // until when the cluster is known to keep the bytes
}

// cluster is a connection to the streams.
type cluster struct {
	opts   Options
	conn   *nats.Conn
	js     jetstream.JetStream
	events jetstream.Stream
	blobs  jetstream.Stream
	shelf  string // of the subjects of blobs; empty for those of records

	answered, moved atomic.Int64  // when the cluster last answered, and the connection was last given up
	failing         atomic.Int64  // when the first attempt began since it answered; 0 for none
	probing         chan struct{} // has one element while an operation tries whether it answers again
}

// Open returns the Store of a cluster, whose streams it makes if they do not exist. The connection is the
// caller's, and must stay open until Close.
//
// Errors: the error of making the streams, provenance.ErrInvalid for streams that do not keep what a Store
// promises.
func Open(ctx context.Context, conn *nats.Conn, opts *Options) (*Store, error) {
	c, err := connect(ctx, conn, opts.withDefaults(), true)
	if err != nil {
		return nil, err
	}
	node := strings.NewReplacer(".", "_", "*", "_", ">", "_", " ", "_").Replace(c.opts.Node)
	st := &Store{reader: reader{cluster: c}, name: cmp.Or(node, "node") + "-" + rand.Text()[:10],
		turns: map[string]*turn{}, known: map[digest.Digest]time.Time{},
		packers: sync.Pool{New: func() any { return gzip.NewWriter(nil) }}}
	st.reader.own = st.holds
	holds := func(m *nats.Msg) {
		answer := []byte("0")
		if st.holds(string(m.Data)) {
			answer = []byte("1" + c.opts.Address)
		}
		_ = m.Respond(answer) // who asks asks again
	}
	for subject, answer := range map[string]nats.MsgHandler{c.subject("holds", st.name): holds,
		c.subject("nodes"): st.present} {
		alive, failed := conn.Subscribe(subject, answer)
		st.alive, err = append(st.alive, alive), errors.Join(err, failed)
	}
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	err = c.ask(ctx, conn.FlushWithContext)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	return st, nil
}

// OpenReader returns a Reader of the sessions in a cluster. It makes no streams. The connection is the
// caller's.
//
// Errors: the error of finding the streams.
func OpenReader(ctx context.Context, conn *nats.Conn, opts *Options) (provenance.Reader, error) {
	c, err := connect(ctx, conn, opts.withDefaults(), false)
	if err != nil {
		return nil, err
	}
	return &reader{cluster: c, own: func(string) bool { return false }}, nil
}

// newCluster returns the connection, without streams.
func newCluster(conn *nats.Conn, opts Options) (*cluster, error) {
	if !provenance.ValidSessionID(opts.Prefix) || strings.Contains(opts.Prefix, ".") {
		return nil, fmt.Errorf("%w: prefix %.60q", provenance.ErrInvalid, opts.Prefix)
	}
	js, err := jetstream.New(conn)
	return &cluster{opts: opts, conn: conn, js: js, probing: make(chan struct{}, 1)}, err
}

func connect(ctx context.Context, conn *nats.Conn, opts Options, create bool) (*cluster, error) {
	c, err := newCluster(conn, opts)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	c.events, err = c.stream(ctx, streamEvents, create)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	c.blobs, err = c.stream(ctx, streamFiles, create)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	return c, nil
}

// The streams of a cluster, by what their names end with: events and files of records, the values of cells,
// and published skills.
const (
	streamEvents = "events"
	streamFiles  = "files"
	streamState  = "state"
	streamSkills = "skills"
)

// streams are all of them.
var streams = []string{streamEvents, streamFiles, streamState, streamSkills}

// config returns what a stream is to be like.
func (c *cluster) config(name string) jetstream.StreamConfig {
	want := jetstream.StreamConfig{Name: c.opts.Prefix + "-" + name, Replicas: c.opts.Replicas,
		Storage: jetstream.FileStorage, DenyDelete: true,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld} // the earlier message of the subject
	switch name {
	case streamEvents:
		want.Subjects = []string{c.subject("ev", "*")}
		want.MaxMsgsPerSubject, want.Discard = 0, jetstream.DiscardNew
	case streamFiles:
		want.Subjects = []string{c.subject("blob", ">"), c.subject("file", ">"), c.subject("long", ">"),
			c.subject("claim", "*")}
	case streamState:
		want.Subjects, want.AllowMsgTTL = []string{c.subject("st", "*")}, true
	case streamSkills:
		want.Subjects = []string{c.subject(shelfSkills, ">"), c.subject("skills")}
	}
	return want
}

// stream returns a stream of streams, which it makes if it may.
func (c *cluster) stream(ctx context.Context, name string, create bool) (stream jetstream.Stream, err error) {
	want := c.config(name)
	defer func() {
		if err != nil {
			err = fmt.Errorf("stream %s: %w", want.Name, err)
		}
	}()
	err = c.ask(ctx, func(ctx context.Context) error {
		stream, err = c.js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) && create {
			stream, err = c.js.CreateStream(ctx, want)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// With direct reads any replica answers, and one that lags answers wrongly.
	most := cmp.Or(want.MaxMsgsPerSubject, -1)
	switch has := stream.CachedInfo().Config; {
	case has.AllowDirect, has.MirrorDirect:
		return nil, fmt.Errorf("%w: it allows direct reads", provenance.ErrInvalid)
	case has.Replicas < want.Replicas:
		return nil, fmt.Errorf("%w: it has %d replicas, not %d", provenance.ErrInvalid, has.Replicas,
			want.Replicas)
	case want.AllowMsgTTL && !has.AllowMsgTTL:
		return nil, fmt.Errorf("%w: its messages cannot expire", provenance.ErrInvalid)
	case has.Retention != jetstream.LimitsPolicy, has.MaxAge != 0, has.MaxMsgsPerSubject != most,
		has.Storage != jetstream.FileStorage, has.Discard != want.Discard:
		return nil, fmt.Errorf("%w: it does not keep what it has acknowledged", provenance.ErrInvalid)
	}
	return stream, nil
}

// subject returns a subject of the prefix. A dot ends a part of a subject, so those of ids and names are
// replaced by a character that these cannot have.
func (c *cluster) subject(parts ...string) string {
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], ".", "~")
	}
	return c.opts.Prefix + "." + strings.Join(parts, ".")
}

func (c *cluster) subjectOf(session string) string { return c.subject("ev", session) }

// ask calls do until it succeeds or its error is final: jetstream.ErrMsgNotFound, jetstream.ErrStreamNotFound
// or provenance.ErrTaken.
//
// Errors: these, provenance.ErrUnavailable, or the error of ctx.
func (c *cluster) ask(ctx context.Context, do func(ctx context.Context) error) error {
	end, hopeless := c.probe()
	if hopeless {
		return provenance.ErrSilent
	}
	defer end()
	for begin := time.Now(); ; time.Sleep(pause) {
		try, cancel := context.WithTimeout(ctx, attempt)
		err := do(try)
		cancel()
		switch {
		case err == nil, errors.Is(err, jetstream.ErrMsgNotFound),
			errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, provenance.ErrTaken):
			c.heard()
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case refused(err):
			return fmt.Errorf("%w: %w", provenance.ErrUnavailable, err)
		case c.spent(begin):
			return fmt.Errorf("%w: %w", provenance.ErrSilent, err)
		}
		c.nudge(begin)
	}
}

// noPeers is the code of the error for a stream that is to be on more servers than run, as while they start.
const noPeers = 10005

// refused reports whether the cluster has said that it will not do what it was asked to, as opposed to not
// now.
func refused(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code == 400 && api.ErrorCode != noPeers && !wrongLast(err)
}

// wrongLast reports whether another message came first, which may be one of the same writer that is still on
// its way.
func wrongLast(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// heard notes that the cluster has answered.
func (c *cluster) heard() {
	c.answered.Store(time.Now().UnixNano())
	c.failing.Store(0)
}

// spent reports whether an operation that began at a time, and whose attempt failed, has waited for as long
// as it may. Those that begin when nothing was answered for that long have one attempt.
func (c *cluster) spent(begin time.Time) bool {
	c.failing.CompareAndSwap(0, begin.UnixNano())
	return c.conn.IsClosed() || time.Since(begin) > c.opts.Patience || !c.Answers()
}

// probe begins an operation; end ends it. When nothing was answered for long, one tries, and those that begin
// meanwhile have no hope unless it succeeds soon: a connection that looks for a server lets nobody ask.
func (c *cluster) probe() (end func(), hopeless bool) {
	if c.Answers() {
		return func() {}, false
	}
	select {
	case c.probing <- struct{}{}:
	case <-time.After(attempt / 2):
		return nil, true
	}
	end = func() { <-c.probing }
	if c.Answers() {
		end()
		end = func() {}
	}
	return end, false
}

// silent returns for how long attempts have failed.
func (c *cluster) silent() time.Duration {
	if failing := c.failing.Load(); failing != 0 {
		return time.Since(time.Unix(0, failing))
	}
	return 0
}

// Answers reports whether operations have a chance: the cluster has not been silent for longer than they
// wait.
func (c *cluster) Answers() bool { return c.silent() <= c.opts.Patience }

// nudge gives up the connection if the cluster has answered nothing for long, to find another server.
func (c *cluster) nudge(begin time.Time) {
	long := time.Now().Add(-deaf).UnixNano()
	moved := c.moved.Load()
	if begin.UnixNano() < long && c.answered.Load() < long && moved < long &&
		c.moved.CompareAndSwap(moved, time.Now().UnixNano()) {
		_ = c.conn.ForceReconnect() // a connection that is closed is noticed by who asks
	}
}

// last returns the last message of a subject, as its leader has it.
//
// Errors: as ask.
func (c *cluster) last(
	ctx context.Context, s jetstream.Stream, subject string,
) (m *jetstream.RawStreamMsg, err error) {
	err = c.ask(ctx, func(ctx context.Context) (err error) {
		m, err = s.GetLastMsgForSubject(ctx, subject)
		return err
	})
	return m, err
}

// put publishes a message that may be published twice.
//
// Errors: as ask.
func (c *cluster) put(ctx context.Context, m *nats.Msg) error {
	return c.ask(ctx, func(ctx context.Context) error {
		_, err := c.js.PublishMsg(ctx, m)
		return err
	})
}

// create publishes the first message of a subject of the files.
//
// Errors: as ask; provenance.ErrTaken if another one came first.
func (c *cluster) create(ctx context.Context, subject string) error {
	made, err := c.swap(ctx, c.blobs, &nats.Msg{Subject: subject}, 0, 0)
	if err != nil {
		return err
	}
	if !made {
		err = provenance.ErrTaken
	}
	return err
}
