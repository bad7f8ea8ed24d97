// Package storetest checks that an implementation of provenance.Store keeps its contract.
//
// It checks both halves, Writer and Reader, as far as the interface shows them. Crashes and full disks are
// for the tests of the implementation.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Run checks stores made by open, which must be empty and independent of each other. Run closes
// them.
func Run(t *testing.T, open func(t *testing.T) provenance.Store) {
	for name, test := range map[string]func(*testing.T, provenance.Store){
		"chain":       testChain,
		"concurrent":  testConcurrent,
		"query":       testQuery,
		"views":       testViews,
		"put":         testPut,
		"equal":       testEqualContent,
		"refused":     testRefused,
		"foreign":     testForeignText,
		"resumed":     testResumed,
		"ending":      testEnding,
		"closed":      testClosed,
		"sessions":    testSessions,
		"reader":      testReader,
		"collect":     testCollect,
		"recall":      testRecall,
		"keep":        testKeep,
		"claims":      testClaims,
		"invocations": testInvocations,
	} {
		t.Run(name, func(t *testing.T) {
			st := open(t)
			t.Cleanup(func() {
				if err := st.Close(); err != nil {
					t.Errorf("Close() = %v", err)
				}
			})
			test(t, st)
		})
	}
}

// Append records an event of each kind in order and fails the test if one is refused.
func Append(t *testing.T, st provenance.Store, session string, kinds ...provenance.Kind) []*provenance.Event {
	t.Helper()
	var events []*provenance.Event
	for i, k := range kinds {
		e := Event(session, k, i+1)
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatalf("Append(%s) = %v", k, err)
		}
		events = append(events, e)
	}
	return events
}

// Read returns a file of a session and fails the test if it cannot be read.
func Read(t *testing.T, st provenance.Store, session, name string) []byte {
	t.Helper()
	r, err := st.Artifact(t.Context(), session, name)
	if err != nil {
		t.Fatalf("Artifact(%s) = %v", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return data
}

func collect(t *testing.T, st provenance.Store, q provenance.Query) []*provenance.Event {
	t.Helper()
	var events []*provenance.Event
	for e, err := range st.Events(t.Context(), q) {
		if err != nil {
			t.Fatalf("Events(%+v) = %v", q, err)
		}
		events = append(events, e)
	}
	return events
}

func testChain(t *testing.T, st provenance.Store) {
	sent := Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSkillActivated,
		provenance.KindScriptRequested, provenance.KindScriptExecuted)
	prev := provenance.FirstPrev
	for i, e := range sent {
		if e.Seq != uint64(i+1) || e.Prev != prev || len(e.Hash) != 64 {
			t.Errorf("event %d has seq %d, prev %q, hash %q", i, e.Seq, e.Prev, e.Hash)
		}
		if want := e.Time.Truncate(time.Millisecond); !e.Time.Equal(want) {
			t.Errorf("event %d has time %v, want milliseconds", i, e.Time)
		}
		prev = e.Hash
	}
	got := collect(t, st, provenance.Query{Session: "s"})
	if len(got) != len(sent) {
		t.Fatalf("Events gave %d events, want %d", len(got), len(sent))
	}
	for i := range got {
		a, errA := provenance.EncodeLine(got[i])
		b, errB := provenance.EncodeLine(sent[i])
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("event %d is %s, sent %s (%v, %v)", i, a, b, errA, errB)
		}
	}
	e := Event("s", provenance.KindSkillDiscovered, 9)
	e.Time = time.Time{}
	if err := st.Append(t.Context(), e); err != nil || e.Time.IsZero() || e.Time.Location() != time.UTC {
		t.Errorf("Append of an event without time = %v, time %v", err, e.Time)
	}
}

func testQuery(t *testing.T, st provenance.Store) {
	Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSkillActivated,
		provenance.KindResourceRead, provenance.KindSkillActivated)
	for _, tc := range []struct {
		name string
		q    provenance.Query
		want []uint64
	}{
		{"all", provenance.Query{Session: "s"}, []uint64{1, 2, 3, 4}},
		{"from", provenance.Query{Session: "s", From: 3}, []uint64{3, 4}},
		{"kinds", provenance.Query{Session: "s", Kinds: []provenance.Kind{provenance.KindSkillActivated}},
			[]uint64{2, 4}},
		{"both", provenance.Query{Session: "s", From: 3,
			Kinds: []provenance.Kind{provenance.KindSkillActivated}}, []uint64{4}},
	} {
		var got []uint64
		for _, e := range collect(t, st, tc.q) {
			got = append(got, e.Seq)
		}
		if fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: Events gave %v, want %v", tc.name, got, tc.want)
		}
	}
	for _, err := range st.Events(t.Context(), provenance.Query{Session: "other"}) {
		if !errors.Is(err, provenance.ErrNotFound) {
			t.Errorf("Events of an unknown session = %v, want ErrNotFound", err)
		}
	}
	for e := range st.Events(t.Context(), provenance.Query{Session: "s"}) {
		if e.Seq != 1 {
			t.Errorf("first event has seq %d", e.Seq)
		}
		break
	}
}

// View returns a view of events.
func View(t *testing.T, name string, events []*provenance.Event) []byte {
	t.Helper()
	var out bytes.Buffer
	err := cfharness.WriteView(&out, name, func() iter.Seq2[*provenance.Event, error] {
		return func(yield func(*provenance.Event, error) bool) {
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func testViews(t *testing.T, st provenance.Store) {
	sent := Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSkillActivated)
	if _, err := st.Artifact(t.Context(), "s", provenance.ScriptExecutionsFile); !errors.Is(err,
		provenance.ErrNotFound) {
		t.Errorf("Artifact of a view without rows = %v, want ErrNotFound", err)
	}
	kinds := []provenance.Kind{provenance.KindResourceRead, provenance.KindScriptExecuted,
		provenance.KindPolicyDenied}
	sent = append(sent, Append(t, st, "s", kinds...)...)
	for _, name := range provenance.ViewNames() {
		want := View(t, name, sent)
		if got := Read(t, st, "s", name); !bytes.Equal(got, want) {
			t.Errorf("%s is\n%s, want\n%s", name, got, want)
		}
	}
	var s provenance.Session
	if err := json.Unmarshal(Read(t, st, "s", provenance.SessionFile), &s); err != nil {
		t.Fatal(err)
	}
	last := sent[len(sent)-1]
	want := provenance.Session{
		ID: "s", CreatedAt: provenance.Stamp(sent[0].Time), Principal: "local",
		Server: provenance.Server{Version: "v1", Protocol: "2025-11-25"},
		Head:   provenance.Head{Seq: last.Seq, Hash: last.Hash},
		Counts: provenance.Counts{Activations: 1, Reads: 1, Runs: 1, Denials: 1}, State: provenance.StateOpen,
	}
	if s != want {
		t.Errorf("session.json is %+v, want %+v", s, want)
	}
}

func testPut(t *testing.T, st provenance.Store) {
	data := []byte("<stream>\x00")
	name := provenance.OutputName("s:run_skill_script:1", "stdout")
	f, err := st.Put(t.Context(), "s", "outputs/s:run_skill_script:1.stdout", data)
	want := provenance.File{Name: name, Size: int64(len(data)), Digest: digest.FromBytes(data)}
	if err != nil || f != want {
		t.Fatalf("Put = %+v, %v, want %+v", f, err, want)
	}
	if got := Read(t, st, "s", name); !bytes.Equal(got, data) {
		t.Errorf("read back %q, want %q", got, data)
	}
	if _, err := st.Put(t.Context(), "s", name, data); err != nil {
		t.Errorf("Put of an output that no event names = %v", err)
	}
	e := Event("s", provenance.KindScriptExecuted, 1)
	e.Files = []provenance.File{f}
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Put(t.Context(), "s", name, []byte("other")); !errors.Is(err, provenance.ErrInvalid) {
		t.Errorf("Put of a recorded output = %v, want ErrInvalid", err)
	}
	for range 2 {
		if _, err := st.Put(t.Context(), "s", provenance.RegistryFile, data); err != nil {
			t.Errorf("Put of a snapshot = %v", err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "../x", "/etc/passwd", "a/b", "outputs/", "outputs/../x", "outputs/a/b", ".hidden",
		`a\b`,
		"outputs/.tmp-1", "events.jsonl", "session.json", "lock", "policy-trace.json", "outputs", "a\x00b",
		strings.Repeat("a", 300),
	} {
		if _, err := st.Put(t.Context(), "s", name, data); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("Put(%q) = %v, want ErrInvalid", name, err)
		}
	}
	for _, name := range []string{"../s/events.jsonl", "/etc/passwd", "outputs/../../x"} {
		if r, err := st.Artifact(t.Context(), "s", name); err == nil {
			t.Errorf("Artifact(%q) was opened", name)
			r.Close()
		}
	}
}

func testRefused(t *testing.T, st provenance.Store) {
	Append(t, st, "s", provenance.KindSessionStarted)
	for name, change := range map[string]func(*provenance.Event){
		"kind":     func(e *provenance.Event) { e.Kind = "skill.invented" },
		"session":  func(e *provenance.Event) { e.Session = "../s" },
		"row":      func(e *provenance.Event) { e.Row = json.RawMessage("[1]") },
		"json":     func(e *provenance.Event) { e.Row = json.RawMessage(`{"a":}`) },
		"utf-8":    func(e *provenance.Event) { e.Row = json.RawMessage("{\"a\":\"\xff\"}") },
		"decision": func(e *provenance.Event) { e.Decision = json.RawMessage(`{"decision":"maybe"}`) },
		"file": func(e *provenance.Event) {
			e.Files = []provenance.File{{Name: "../x",
				Digest: digest.FromString("")}}
		},
		"digest": func(e *provenance.Event) { e.Files = []provenance.File{{Name: "x", Digest: "sha256:x"}} },
		"size":   func(e *provenance.Event) { e.Detail = strings.Repeat("x", provenance.MaxLine) },
	} {
		e := Event("s", provenance.KindResourceRead, 1)
		change(e)
		if err := st.Append(t.Context(), e); !errors.Is(err, provenance.ErrInvalid) || e.Seq != 0 {
			t.Errorf("%s: Append = %v, seq %d, want ErrInvalid, 0", name, err, e.Seq)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Append(ctx, Event("s", provenance.KindResourceRead, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Append with a cancelled context = %v", err)
	}
	if got := collect(t, st, provenance.Query{Session: "s"}); len(got) != 1 {
		t.Errorf("refused events left %d events, want 1", len(got))
	}
}

func testResumed(t *testing.T, st provenance.Store) {
	Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSessionEnded)
	var s provenance.Session
	if err := json.Unmarshal(Read(t, st, "s", provenance.SessionFile), &s); err != nil ||
		s.State != provenance.StateEnded || s.EndedAt == nil {
		t.Errorf("session.json after the end is %+v, %v", s, err)
	}
	e := Append(t, st, "s", provenance.KindSessionResumed)[0]
	if e.Seq != 3 {
		t.Errorf("session.resumed has seq %d, want 3", e.Seq)
	}
	s = provenance.Session{}
	if err := json.Unmarshal(Read(t, st, "s", provenance.SessionFile), &s); err != nil ||
		s.State != provenance.StateOpen || s.EndedAt != nil {
		t.Errorf("session.json after resuming is %+v, %v", s, err)
	}
}

func testClosed(t *testing.T, st provenance.Store) {
	Append(t, st, "s", provenance.KindSessionStarted)
	for range 2 {
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Append(t.Context(), Event("s", provenance.KindResourceRead, 1)); !errors.Is(err,
		provenance.ErrClosed) {
		t.Errorf("Append after Close = %v, want ErrClosed", err)
	}
	if _, err := st.Put(t.Context(), "s", "x", nil); !errors.Is(err, provenance.ErrClosed) {
		t.Errorf("Put after Close = %v, want ErrClosed", err)
	}
}

// Text of a client that is not UTF-8 must not make a record that cannot be read back.
func testForeignText(t *testing.T, st provenance.Store) {
	bad := "\xff\u2028\x00\x1b\ufffd<\xc3"
	e := Event("s", provenance.KindSessionStarted, 1)
	e.Parent, e.Principal, e.Client, e.Skill, e.Path, e.Want, e.Got, e.Detail = bad, bad, bad, bad, bad, bad,
		bad, bad
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	got := collect(t, st, provenance.Query{Session: "s"})
	if len(got) != 1 || got[0].Client != e.Client || got[0].Detail != "\ufffd\u2028\x00\x1b\ufffd<\ufffd" {
		t.Errorf("read back %+v", got)
	}
	var tally provenance.Tally
	if err := tally.Add(got[0]); err != nil {
		t.Fatal(err)
	}
	want, err := provenance.EncodePretty(tally.Session)
	if err != nil {
		t.Fatal(err)
	}
	if got := Read(t, st, "s", provenance.SessionFile); !bytes.Equal(got, want) {
		t.Errorf("session.json is %s, want %s", got, want)
	}
}
