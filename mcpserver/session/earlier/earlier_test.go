package earlier

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills/policy"
)

// counted counts the records that are opened in a store.
type counted struct {
	provenance.Reader
	lists, records atomic.Int64
	listing        func() // called during each list; may be nil
}

func (c *counted) Sessions(ctx context.Context, since time.Time) iter.Seq2[provenance.Session, error] {
	c.lists.Add(1)
	if c.listing != nil {
		c.listing()
	}
	return c.Reader.Sessions(ctx, since)
}

func (c *counted) Events(ctx context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	c.records.Add(1)
	return c.Reader.Events(ctx, q)
}

// bench is an index of the sessions of a store, at a time that the test sets.
type bench struct {
	*Index
	t     *testing.T
	store provenance.Store
	reads *counted
	now   time.Time
	open  map[string]bool
}

func newBench(t *testing.T) *bench {
	store, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &bench{t: t, store: store, reads: &counted{Reader: store}, now: time.Now()}
	b.Index = New(b.reads, slog.New(slog.DiscardHandler), func() time.Time { return b.now }, func() map[string]bool { return b.open })
	return b
}

// record records a session that a client of a principal named; with a handle, if it is not empty.
func (b *bench) record(id, principal string, info provenance.SessionInfo, handle string) {
	b.t.Helper()
	add := func(kind provenance.Kind, row any) {
		raw, err := provenance.Encode(row)
		if err != nil {
			b.t.Fatal(err)
		}
		if err := b.store.Append(b.t.Context(), &provenance.Event{Session: id, Principal: principal,
			Kind: kind, Skill: "demo", Row: raw}); err != nil {
			b.t.Fatal(err)
		}
	}
	add(provenance.KindSessionStarted, info)
	if handle != "" {
		until := provenance.Stamp(b.now.Add(Life))
		add(provenance.KindSkillActivated, cfharness.Activation{Name: "demo", RunID: id,
			Source: cfharness.SourceModel, ActivatedAt: provenance.Stamp(b.now),
			Skillsd: &cfharness.ActivationExtension{Path: "demo", HandleDigest: digest.FromString(handle),
				ExpiresAt: &until}})
	}
}

// TestNamed: a name that a client gave its session finds it for the same principal, whether or not
// something is active in it; of two that have a name, the one written last.
func TestNamed(t *testing.T) {
	b := newBench(t)
	b.record("one", "alice", provenance.SessionInfo{ClientSession: "c1"}, "")
	b.record("narrow", "alice", provenance.SessionInfo{ClientSession: "c2", Profile: "notes"}, "")
	b.record("child", "alice", provenance.SessionInfo{ClientSession: "c3", Child: true}, "")
	for _, c := range []struct{ name, principal, want string }{
		{"c1", "alice", "one"}, {"c1", "bob", ""}, {"c2", "alice", ""}, {"c3", "alice", ""},
		{"", "alice", ""}, {"one", "alice", ""},
	} {
		if got := b.Named(t.Context(), c.name, c.principal); got != c.want {
			t.Errorf("%s of %s names %q, want %q", c.name, c.principal, got, c.want)
		}
	}
	b.record("two", "alice", provenance.SessionInfo{ClientSession: "c1"}, "")
	b.now = b.now.Add(2 * ScanEvery)
	if got := b.Named(t.Context(), "c1", "alice"); got != "two" {
		t.Errorf("the name leads to %q, not to the session written last", got)
	}
	b.now = b.now.Add(Life + time.Hour)
	if got := b.Named(t.Context(), "c1", "alice"); got != "" || len(b.names) != 0 {
		t.Errorf("after its life the name leads to %q; %d names are known", got, len(b.names))
	}
}

// TestIsOf: what a session is follows from its first event.
func TestIsOf(t *testing.T) {
	b := newBench(t)
	b.record("one", "alice", provenance.SessionInfo{}, "")
	for _, c := range []struct {
		id, principal string
		want          bool
	}{{"one", "alice", true}, {"one", "bob", false}, {"two", "alice", false}, {"..", "alice", false}, {"", "", false}} {
		if got := b.IsOf(t.Context(), c.id, c.principal); got != c.want {
			t.Errorf("%q of %s: %v", c.id, c.principal, got)
		}
	}
}

// TestGuessesCostLittle: names and handles that nothing has cost no look through the records each.
func TestGuessesCostLittle(t *testing.T) {
	b := newBench(t)
	for i := range MaxEach + 20 {
		b.record(fmt.Sprintf("s%d", i), "alice", provenance.SessionInfo{ClientSession: fmt.Sprint(i)}, "")
	}
	for i := range 50 {
		if id := b.Named(t.Context(), fmt.Sprintf("guess%d", i), "alice"); id != "" {
			t.Errorf("found %s", id)
		}
		if p := b.By(t.Context(), HandleKey("alice", Sum(fmt.Sprint(i)))); p != nil {
			t.Errorf("found %+v", p)
		}
	}
	if b.reads.lists.Load() != 1 || b.reads.records.Load() != MaxEach {
		t.Errorf("50 guesses read %d lists and %d records", b.reads.lists.Load(), b.reads.records.Load())
	}
	b.now = b.now.Add(2 * ScanEvery)
	b.Named(t.Context(), "guess", "alice")
	if b.reads.lists.Load() != 2 {
		t.Errorf("%d lists were read", b.reads.lists.Load())
	}
}

// TestForgotten: what nobody can continue any more is not remembered.
// Calls that waited for a scan do not scan again, however long it took: it began after they came.
func TestCallsShareAScan(t *testing.T) {
	b := newBench(t)
	b.record("s1", "alice", provenance.SessionInfo{ClientSession: "c"}, "")
	asked, found := make(chan bool), make(chan string)
	var calls, passed atomic.Int64
	x := New(b.reads, slog.New(slog.DiscardHandler), func() time.Time {
		if calls.Add(1) == 3 { // the first call asked twice
			defer close(asked)
		}
		return b.now.Add(time.Duration(passed.Load()))
	}, func() map[string]bool { return nil })
	b.reads.listing = func() {
		go func() { found <- x.Named(t.Context(), "c", "alice") }()
		<-asked
		passed.Add(int64(2 * ScanEvery))
	}
	if id := x.Named(t.Context(), "c", "alice"); id != "s1" {
		t.Errorf("Named = %q", id)
	}
	if id := <-found; id != "s1" || b.reads.lists.Load() != 1 {
		t.Errorf("the call that waited found %q, %d lists were read", id, b.reads.lists.Load())
	}
}

// The long records of sessions that this process has open are not read for each call that may be of an earlier
// one.
func TestOpenSessionsAreNotRead(t *testing.T) {
	b := newBench(t)
	b.record("s1", "alice", provenance.SessionInfo{ClientSession: "c1"}, "")
	b.record("s2", "alice", provenance.SessionInfo{ClientSession: "c2"}, "")
	b.open = map[string]bool{"s1": true}
	if id := b.Named(t.Context(), "c2", "alice"); id != "s2" {
		t.Errorf("Named = %q", id)
	}
	if read := b.reads.records.Load(); read != 2 { // the first event, when it is found and when it is named
		t.Errorf("%d records were read", read)
	}
}

func TestForgotten(t *testing.T) {
	b := newBench(t)
	b.record("one", "alice", provenance.SessionInfo{ClientSession: "c1"}, "H")
	p := b.By(t.Context(), HandleKey("alice", Sum("H")))
	if p == nil || p.ID != "one" || len(p.Activations) != 1 || len(p.Keys) != 2 {
		t.Fatalf("the handle finds %+v, want the session by its handle and its name", p)
	}
	b.now = b.now.Add(Life + time.Hour)
	if p := b.By(t.Context(), HandleKey("alice", Sum("H"))); p != nil || len(b.known) != 0 {
		t.Errorf("an expired handle finds %+v; %d sessions are known", p, len(b.known))
	}
}

// However many sessions end, a bounded number is known.
func TestKnownAreBounded(t *testing.T) {
	b := newBench(t)
	for i := range maxKnown + 9 {
		id := strconv.Itoa(i)
		b.Add(&Session{ID: id, Until: b.now.Add(Life)})
		b.AddName(ClientKey("alice", "", "", id), id)
	}
	if len(b.known) > maxKnown || len(b.names) > maxKnown {
		t.Errorf("%d sessions and %d names are known", len(b.known), len(b.names))
	}
}

// Of two sessions that a handle finds the later is continued, as strictly as either, in whatever order they
// are read.
func TestLatestIsAsStrictAsAll(t *testing.T) {
	at := time.Now()
	for _, swap := range []bool{false, true} {
		first, last := &Session{ID: "z", at: at, Mode: policy.EnforceStrict},
			&Session{ID: "a", at: at.Add(time.Second), Mode: policy.Observe}
		one, two := first, last
		if swap {
			one, two = last, first
		}
		if p := latestOf(latestOf(nil, one), two); p != last || p.Mode != policy.EnforceStrict {
			t.Errorf("%s is continued in mode %s", p.ID, p.Mode)
		}
	}
}
