// Package jetstream stores the provenance of sessions in three streams of a NATS JetStream cluster, so that
// several processes can serve the same sessions and the loss of one machine loses nothing.
//
// The record of a session is the messages of one subject. A message is a batch of lines of an events.jsonl,
// and is published with the sequence number of the previous message; the cluster refuses it if another writer
// was faster. A header has the session state after the batch, so that the next writer reads only one message.
// Readers of events read the lines and check their chain.
//
// Some messages have a checkpoint in a header: the state folded from all earlier events. [Store.Recall]
// therefore reads at most the last 1,000 events, and checks only their chain. A checkpoint has up to 48 KiB
// compressed and 1 MiB uncompressed, which is enough for some 600 loads. In a longer session, Recall reads
// all events after the last checkpoint.
//
// # Turns
//
// [Store.Take] takes a session over from any other writer. The other writer notices at its next event, which
// is not recorded and fails with provenance.ErrLost. Events and messages name their turn, so equal bytes of
// two writers are never confused.
//
// # Durability
//
// An acknowledged event is on most servers of the cluster. It is on their disks if the servers are configured
// with "sync_interval: always"; without that, a power failure can lose it. An append waits for an election,
// but at most for [Options.Patience]. After that it fails with provenance.ErrUnavailable, and its events may
// or may not be recorded later; an event that is appended again in the same turn is recorded only once in
// either case.
//
// Reads are answered by the leaders of the streams. The bytes of files are compared with their digests.
//
// # Limits
//
// The outputs and texts of a session are limited only by the streams. Nothing is signed, and there is no
// register of sessions. Bytes that no session names are deleted at least a day after they were written, by
// the next Collect that deletes a session. A client that may publish to the streams can forge a consistent
// record.
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
	// Prefix begins the names of streams and subjects; "" means "skillsd". Stores with different prefixes
	// share nothing.
	Prefix string
	// Replicas is the number of servers with a copy of each stream; zero means 3.
	Replicas int
	// Node begins the names of a [Store]'s turns; "" means a random name.
	Node string
	// Address is the address that [Store.Holder] of other stores returns for the sessions of this one.
	Address string
	// Patience is how long an operation waits for the cluster; zero means 15 s, which is longer than an
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
	// attempt limits one request to the cluster; pause is the time between two.
	attempt = 2 * time.Second
	pause   = 20 * time.Millisecond

	// deaf is how long the cluster may be silent before the client reconnects: a client stays connected to a
	// server that is cut off from the others.
	deaf = 4 * time.Second
)

// Store is a provenance.Store in a cluster. It is safe for concurrent use.
type Store struct {
	reader
	name    string // of this store, without a dot; begins the names of its turns
	alive   []*nats.Subscription
	packers sync.Pool // of *gzip.Writer: creating one costs as much as ten checkpoints

	mu     sync.Mutex
	closed bool
	turns  map[string]*turn
	took   int                         // number of turns begun by this store
	known  map[digest.Digest]time.Time // until this time, the cluster is known to keep the bytes
}

// cluster is a connection to the streams.
type cluster struct {
	opts   Options
	conn   *nats.Conn
	js     jetstream.JetStream
	events jetstream.Stream
	blobs  jetstream.Stream
	shelf  string // part of the subjects of blobs; empty for records

	answered, moved atomic.Int64  // when the cluster last answered, and when nudge last reconnected
	failing         atomic.Int64  // start of the first failed attempt since the last answer; 0 for none
	probing         chan struct{} // full while one operation tries whether the cluster answers again
}

// Open returns the Store of a cluster, and creates its streams if they do not exist. The caller owns the
// connection, which must stay open until Close.
//
// Errors: the errors of creating the streams; provenance.ErrInvalid for a stream with a configuration that
// could lose records.
func Open(ctx context.Context, conn *nats.Conn, opts *Options) (*Store, error) {
	c, err := connect(ctx, conn, opts.withDefaults(), true)
	if err != nil {
		return nil, err
	}
	// In a subject, these characters separate parts or match any part.
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
		// If the answer is lost, the caller asks again.
		_ = m.Respond(answer)
	}
	for subject, answer := range map[string]nats.MsgHandler{c.subject("holds", st.name): holds,
		c.subject("nodes"): st.present} {
		alive, failed := conn.Subscribe(subject, answer)
		st.alive, err = append(st.alive, alive), errors.Join(err, failed)
	}
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	// Other stores may ask for this one from now on, so its subscriptions must have reached the servers.
	if err := c.ask(ctx, conn.FlushWithContext); err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	return st, nil
}

// OpenReader returns a Reader of the sessions in a cluster. It creates no streams. The caller owns the
// connection.
//
// Errors: the error of finding the streams.
func OpenReader(ctx context.Context, conn *nats.Conn, opts *Options) (provenance.Reader, error) {
	c, err := connect(ctx, conn, opts.withDefaults(), false)
	if err != nil {
		return nil, err
	}
	return &reader{cluster: c, own: func(string) bool { return false }}, nil
}

// newCluster returns a cluster without its streams.
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

// The streams of a cluster, by the end of their names: events and files of records, the values of cells, and
// published skills.
const (
	streamEvents = "events"
	streamFiles  = "files"
	streamState  = "state"
	streamSkills = "skills"
)

// streams lists all streams.
var streams = []string{streamEvents, streamFiles, streamState, streamSkills}

// config returns the required configuration of a stream.
func (c *cluster) config(name string) jetstream.StreamConfig {
	want := jetstream.StreamConfig{Name: c.opts.Prefix + "-" + name, Replicas: c.opts.Replicas,
		Storage: jetstream.FileStorage, DenyDelete: true,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld} // keeps only the last message of a subject
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

// stream returns a stream, and creates it if create is set and it does not exist.
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
	// With direct reads any replica may answer, and one that lags gives a wrong answer.
	most := cmp.Or(want.MaxMsgsPerSubject, -1)
	switch has := stream.CachedInfo().Config; {
	case has.AllowDirect, has.MirrorDirect:
		return nil, fmt.Errorf("%w: it allows direct reads", provenance.ErrInvalid)
	case has.Replicas < want.Replicas:
		return nil, fmt.Errorf("%w: it has %d replicas, not %d", provenance.ErrInvalid, has.Replicas,
			want.Replicas)
	case want.AllowMsgTTL && !has.AllowMsgTTL:
		return nil, fmt.Errorf("%w: it does not allow messages to expire", provenance.ErrInvalid)
	case has.Retention != jetstream.LimitsPolicy, has.MaxAge != 0, has.MaxMsgsPerSubject != most,
		has.Storage != jetstream.FileStorage, has.Discard != want.Discard:
		return nil, fmt.Errorf("%w: its configuration can lose acknowledged messages", provenance.ErrInvalid)
	}
	return stream, nil
}

// subject returns a subject with the prefix. Dots separate the parts of a subject, so dots in IDs and names
// are replaced by a character that these cannot contain.
func (c *cluster) subject(parts ...string) string {
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], ".", "~")
	}
	return c.opts.Prefix + "." + strings.Join(parts, ".")
}

func (c *cluster) subjectOf(session string) string { return c.subject("ev", session) }

// ask calls do until it succeeds or fails with a final error: jetstream.ErrMsgNotFound,
// jetstream.ErrStreamNotFound or provenance.ErrTaken.
//
// Errors: the final errors, provenance.ErrUnavailable, or the error of ctx.
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
		// These errors are answers of the cluster too, so it is not silent.
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

// noPeers is the error code for a stream with more replicas than there are running servers, as during
// startup.
const noPeers = 10005

// refused reports whether the cluster refused a request permanently.
func refused(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code == 400 && api.ErrorCode != noPeers && !wrongLast(err)
}

// wrongLast reports whether another message came first. That may be an earlier message of the same writer
// whose answer is still on its way.
func wrongLast(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// heard records that the cluster has answered.
func (c *cluster) heard() {
	c.answered.Store(time.Now().UnixNano())
	c.failing.Store(0)
}

// spent reports whether an operation that began at the given time, and whose last attempt failed, must stop
// waiting. If the cluster has been silent for that long already, each operation gets one attempt.
func (c *cluster) spent(begin time.Time) bool {
	c.failing.CompareAndSwap(0, begin.UnixNano())
	return c.conn.IsClosed() || time.Since(begin) > c.opts.Patience || !c.Answers()
}

// probe begins an operation; end ends it. After a long silence, one operation tries, and later ones are
// hopeless unless it succeeds soon.
func (c *cluster) probe() (end func(), hopeless bool) {
	if c.Answers() {
		return func() {}, false
	}
	select {
	case c.probing <- struct{}{}:
	// Requests block while the connection looks for a server.
	case <-time.After(attempt / 2):
		return nil, true
	}
	end = func() { <-c.probing }
	// The operation before this one may have found that the cluster answers again.
	if c.Answers() {
		end()
		end = func() {}
	}
	return end, false
}

// silent returns how long attempts have been failing.
func (c *cluster) silent() time.Duration {
	if failing := c.failing.Load(); failing != 0 {
		return time.Since(time.Unix(0, failing))
	}
	return 0
}

// Answers reports whether operations can succeed: the cluster has not been silent for longer than they wait.
func (c *cluster) Answers() bool { return c.silent() <= c.opts.Patience }

// nudge reconnects, to find another server, if the cluster has been silent for long.
func (c *cluster) nudge(begin time.Time) {
	long := time.Now().Add(-deaf).UnixNano()
	// If several operations fail at once, only one of them reconnects.
	moved := c.moved.Load()
	if begin.UnixNano() < long && c.answered.Load() < long && moved < long &&
		c.moved.CompareAndSwap(moved, time.Now().UnixNano()) {
		// If the connection is closed, the next request reports that.
		_ = c.conn.ForceReconnect()
	}
}

// last returns the last message of a subject, from the leader of the stream.
//
// Errors: see ask.
func (c *cluster) last(
	ctx context.Context, s jetstream.Stream, subject string,
) (m *jetstream.RawStreamMsg, err error) {
	err = c.ask(ctx, func(ctx context.Context) (err error) {
		m, err = s.GetLastMsgForSubject(ctx, subject)
		return err
	})
	return m, err
}

// tryLast returns the last message of a subject, from the leader of the stream, in one attempt.
func tryLast(ctx context.Context, s jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	try, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return s.GetLastMsgForSubject(try, subject)
}

// put publishes a message that may be published twice.
//
// Errors: see ask.
func (c *cluster) put(ctx context.Context, m *nats.Msg) error {
	return c.ask(ctx, func(ctx context.Context) error {
		_, err := c.js.PublishMsg(ctx, m)
		return err
	})
}

// purge deletes the messages of a subject.
//
// Errors: see ask.
func (c *cluster) purge(
	ctx context.Context, s jetstream.Stream, subject string, opts ...jetstream.StreamPurgeOpt,
) error {
	opts = append(opts, jetstream.WithPurgeSubject(subject))
	return c.ask(ctx, func(ctx context.Context) error { return s.Purge(ctx, opts...) })
}

// create publishes the first message of a subject in the stream of files.
//
// Errors: see ask; provenance.ErrTaken if another message came first.
func (c *cluster) create(ctx context.Context, subject string) error {
	made, err := c.swap(ctx, c.blobs, &nats.Msg{Subject: subject}, 0, 0)
	if err != nil {
		return err
	}
	if !made {
		return provenance.ErrTaken
	}
	return nil
}
