package storetest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

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
		wantError(t, "Events of an unknown session", err, provenance.ErrNotFound)
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
	all := func(yield func(*provenance.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
	err := cfharness.WriteView(&out, name, func() iter.Seq2[*provenance.Event, error] { return all })
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func testViews(t *testing.T, st provenance.Store) {
	sent := Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSkillActivated)
	_, err := st.Artifact(t.Context(), "s", provenance.ScriptExecutionsFile)
	wantError(t, "Artifact of a view without rows", err, provenance.ErrNotFound)
	sent = append(sent, Append(t, st, "s", provenance.KindResourceRead, provenance.KindScriptExecuted,
		provenance.KindPolicyDenied)...)
	for _, name := range provenance.ViewNames() {
		want := View(t, name, sent)
		if got := Read(t, st, "s", name); !bytes.Equal(got, want) {
			t.Errorf("%s is\n%s, want\n%s", name, got, want)
		}
	}
	last := sent[len(sent)-1]
	want := provenance.Session{
		ID: "s", CreatedAt: provenance.Stamp(sent[0].Time), Principal: "local",
		Server: provenance.Server{Version: "v1", Protocol: "2025-11-25"},
		Head:   provenance.Head{Seq: last.Seq, Hash: last.Hash},
		Counts: provenance.Counts{Activations: 1, Reads: 1, Runs: 1, Denials: 1}, State: provenance.StateOpen,
	}
	if s := readSession(t, st); s != want {
		t.Errorf("session.json is %+v, want %+v", s, want)
	}
}

// testInvocations checks that invocation contexts are a list of their own next to the decisions.
func testInvocations(t *testing.T, st provenance.Store) {
	var sent []*provenance.Event
	calls := 0
	for i, k := range []provenance.Kind{provenance.KindSessionStarted, provenance.KindScriptRequested,
		provenance.KindResourceRead, provenance.KindScriptRequested, provenance.KindPolicyDenied} {
		e := Event("s", k, i)
		if k == provenance.KindScriptRequested {
			e.Invocation = encode(map[string]any{"sequence": i, "text": "]\n  ["})
		}
		sent = append(sent, appendEvent(t, st, e))
		calls += len(e.Decision) + len(e.Invocation)
		if calls == 0 {
			continue
		}
		want := View(t, provenance.PolicyTraceFile, sent)
		if got := Read(t, st, "s", provenance.PolicyTraceFile); !bytes.Equal(got, want) {
			t.Errorf("after %d events policy-trace.json is\n%s\nwant\n%s", i+1, got, want)
		}
	}
}

// testReader checks that the Reader half finds what the Writer half recorded.
func testReader(t *testing.T, st provenance.Store) {
	ctx := t.Context()
	text, output := []byte("shown\n"), []byte("printed\n")
	Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSkillActivated)
	shown, err := st.Keep(ctx, "s", text)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := st.Put(ctx, "s", provenance.OutputName("s:run_skill_script:1", "stdout"), output)
	if err != nil {
		t.Fatal(err)
	}
	ran := Event("s", provenance.KindScriptExecuted, 3)
	ran.Files = []provenance.File{kept}
	appendEvent(t, st, ran)
	Append(t, st, "s", provenance.KindSessionEnded)
	Append(t, st, "open", provenance.KindSessionStarted)

	list, err := provenance.ListSessions(ctx, st)
	if err != nil || len(list) != 2 || list[0].ID != "s" && list[1].ID != "s" {
		t.Fatalf("ListSessions = %+v, %v", list, err)
	}
	checkFiles(t, st, "s", map[string][]byte{kept.Name: output, provenance.ShownName(shown): text})
	for id, events := range map[string]int{"s": 4, "open": 1} {
		found, err := st.Verify(ctx, id)
		if err != nil || found.Events != events || found.Session.ID != id {
			t.Errorf("Verify(%s) = %+v, %v, want %d events", id, found, err, events)
		}
	}
	_, err = st.Verify(ctx, "other")
	wantError(t, "Verify of an unknown session", err, provenance.ErrNotFound)
	unknown := digest.FromString("named nowhere")
	left := map[digest.Digest]bool{kept.Digest: true, unknown: true}
	if err := st.DropNamed(ctx, left); err != nil || len(left) != 1 || !left[unknown] {
		t.Errorf("DropNamed left %v, %v, want the digest that no session names", left, err)
	}
}

// checkFiles checks that a session has the given files besides its record and its views, and that no other
// session has them.
func checkFiles(t *testing.T, st provenance.Store, session string, files map[string][]byte) {
	ctx := t.Context()
	var names []string
	for name, err := range st.Files(ctx, session) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	for _, want := range append([]string{provenance.ActivationsFile, provenance.SessionFile},
		slices.Collect(maps.Keys(files))...) {
		if !slices.Contains(names, want) {
			t.Errorf("Files = %q, want %s in it", names, want)
		}
	}
	if slices.Contains(names, provenance.EventsFile) {
		t.Errorf("Files = %q, with the record", names)
	}
	for name, want := range files {
		file, err := st.Stored(ctx, session, name)
		if got := readAll(t, name, file, err); !bytes.Equal(got, want) {
			t.Errorf("Stored(%s) = %q, want %q", name, got, want)
		}
	}
	for _, name := range names {
		_, err := st.Stored(ctx, "other", name)
		wantError(t, "Stored of an unknown session", err, provenance.ErrNotFound)
	}
	for _, err := range st.Files(ctx, "other") {
		wantError(t, "Files of an unknown session", err, provenance.ErrNotFound)
	}
}

func testSessions(t *testing.T, st provenance.Store) {
	for _, err := range st.Sessions(t.Context(), time.Time{}) {
		t.Errorf("Sessions of an empty store gave %v", err)
	}
	for _, id := range []string{"a", "b", "c"} {
		Append(t, st, id, provenance.KindSessionStarted, provenance.KindSkillActivated)
	}
	Append(t, st, "b", provenance.KindSessionEnded)
	Append(t, st, "a", provenance.KindResourceRead)
	var ids []string
	for s, err := range st.Sessions(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatalf("Sessions = %v", err)
		}
		ids = append(ids, s.ID)
		want := provenance.StateOpen
		if s.ID == "b" {
			want = provenance.StateEnded
		}
		if s.State != want || s.Counts.Activations != 1 || s.Principal != "local" {
			t.Errorf("Sessions gave %+v, want state %s, 1 activation", s, want)
		}
	}
	if len(ids) != 3 {
		t.Errorf("Sessions gave %q, want each of 3 once", ids)
	}
	for s := range st.Sessions(t.Context(), time.Now().Add(time.Hour)) {
		t.Errorf("Sessions since an hour from now gave %s", s.ID)
	}
	for range st.Sessions(t.Context(), time.Time{}) {
		break // tests that an iteration can end early
	}
}

// testCollect checks that ended sessions are deleted completely, and open ones never.
func testCollect(t *testing.T, st provenance.Store) {
	ctx, later := t.Context(), time.Now().Add(time.Hour)
	for i := range 2 {
		Append(t, st, fmt.Sprint("ended", i), provenance.KindSessionStarted, provenance.KindSessionEnded)
	}
	Append(t, st, "open", provenance.KindSessionStarted)
	collect := func(opts provenance.CollectOptions) (deleted int) {
		t.Helper()
		all, err := st.Collect(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			switch {
			case c.ID == "open":
				wantError(t, "Collect of an open session", c.Err, provenance.ErrHeld)
			case c.Err != nil:
				t.Errorf("Collect of %s: %v", c.ID, c.Err)
			default:
				deleted++
			}
		}
		return deleted
	}
	if n := collect(provenance.CollectOptions{Before: time.Now().Add(-time.Hour)}); n != 0 {
		t.Errorf("Collect deleted %d sessions that were just written", n)
	}
	if n := collect(provenance.CollectOptions{Before: later, Keep: 3}); n != 0 {
		t.Errorf("Collect deleted %d of the sessions to keep", n)
	}
	for _, dry := range []bool{true, false} {
		if n := collect(provenance.CollectOptions{Before: later, DryRun: dry}); n != 2 {
			t.Errorf("Collect (dry run %t) deleted %d sessions, want 2", dry, n)
		}
	}
	if list, err := provenance.ListSessions(ctx, st); err != nil || len(list) != 1 || list[0].ID != "open" {
		t.Errorf("after Collect there are %+v, %v", list, err)
	}
	_, err := cfharness.Recall(ctx, st, "ended0")
	wantError(t, "Recall of a deleted session", err, provenance.ErrNotFound)
	checkRelease(t, st, later)
}

// checkRelease checks that the only session left, which is open, is deleted once it is released.
func checkRelease(t *testing.T, st provenance.Store, later time.Time) {
	ctx := t.Context()
	var asked []string
	all, err := st.Collect(ctx, provenance.CollectOptions{Before: later,
		Release: func(ctx context.Context, id string) bool {
			asked = append(asked, id)
			return st.Append(ctx, Event(id, provenance.KindSessionEnded, 2)) == nil
		}})
	if err != nil || len(all) != 1 || all[0].Err != nil || len(asked) != 1 {
		t.Errorf("Collect of a session that is released = %+v, %v, asked for %q", all, err, asked)
	}
}

// testCollectUnused checks that the sessions with the oldest last call are deleted first, regardless of when
// the server last wrote to them.
func testCollectUnused(t *testing.T, st provenance.Store) {
	for id, calls := range map[string][]int{"later": {1, 9}, "often": {2, 3, 4, 5, 6, 7}, "once": {5}} {
		Append(t, st, id, provenance.KindSessionStarted)
		for _, at := range calls {
			appendEvent(t, st, Event(id, provenance.KindResourceRead, at))
		}
	}
	for i, id := range []string{"later", "often", "once"} {
		big := Event(id, provenance.KindRegistrySnapshot, 20+i)
		big.Detail = strings.Repeat("x", i*70_000)
		appendEvent(t, st, big)
		appendEvent(t, st, Event(id, provenance.KindSessionEnded, 30+i))
	}
	for keep := 2; keep >= 0; keep-- {
		all, err := st.Collect(t.Context(), provenance.CollectOptions{Total: 1, Keep: keep})
		want := []string{"later", "often", "once"}[keep]
		if err != nil || len(all) != 1 || all[0].ID != want || all[0].Err != nil {
			t.Errorf("Collect of all but %d = %+v, %v", keep, all, err)
		}
	}
}

func testRecall(t *testing.T, st provenance.Store) {
	start := Event("s", provenance.KindSessionStarted, 1)
	start.Row = encode(provenance.SessionInfo{ClientSession: "theirs", Profile: "browser"})
	appendEvent(t, st, start)
	for i, path := range []string{"pdf", "xlsx", "pdf"} {
		e := Event("s", provenance.KindSkillActivated, i+2)
		e.Skill = path
		e.Row = encode(cfharness.Activation{Name: path, Source: cfharness.SourceModel,
			Skillsd: &cfharness.ActivationExtension{
				Path: path, TreeDigest: digest.FromString(string(rune('a' + i))),
				HandleDigest: digest.FromString("handle"),
			}})
		appendEvent(t, st, e)
	}
	appendEvent(t, st, Event("s", provenance.KindResourceRead, 9))
	got, err := cfharness.Recall(t.Context(), st, "s")
	if err != nil {
		t.Fatal(err)
	}
	if got.Principal != "local" || got.ClientSession != "theirs" || got.Profile != "browser" {
		t.Errorf("Recall = %+v", got)
	}
	if len(got.Activations) != 2 || got.Activations[0].Skillsd.TreeDigest != digest.FromString("c") ||
		got.Activations[1].Name != "xlsx" {
		t.Errorf("Recall gave activations %+v, want the last of each skill", got.Activations)
	}
	_, err = cfharness.Recall(t.Context(), st, "other")
	wantError(t, "Recall of an unknown session", err, provenance.ErrNotFound)
}

// testFollow checks that each event is yielded once it is recorded, and that the iteration ends with the
// session.
func testFollow(t *testing.T, st provenance.Store) {
	for _, err := range st.Follow(t.Context(), provenance.Query{Session: "s"}) {
		wantError(t, "Follow an unknown session", err, provenance.ErrNotFound)
	}
	Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSkillActivated)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type followed struct {
		next func() (*provenance.Event, error, bool)
		seq  uint64
	}
	want := func(f *followed) {
		t.Helper()
		e, err, ok := f.next()
		if !ok || err != nil || e.Seq != f.seq {
			t.Fatalf("Follow = %+v, %v, %v, want event %d", e, err, ok, f.seq)
		}
		f.seq++
	}
	wantEnd := func(f *followed) {
		t.Helper()
		if e, err, ok := f.next(); ok {
			t.Errorf("Follow = %+v, %v, want its end", e, err)
		}
	}
	var all []*followed
	for _, from := range []uint64{1, 2} {
		next, stop := iter.Pull2(st.Follow(ctx, provenance.Query{Session: "s", From: from}))
		defer stop()
		all = append(all, &followed{next, from})
	}
	want(all[0])
	for range 3 {
		for _, f := range all {
			want(f)
		}
		Append(t, st, "s", provenance.KindResourceRead)
	}
	cancel()
	// The event recorded last may still be yielded, but no error.
	if _, err, ok := all[0].next(); ok && err != nil {
		t.Errorf("Follow after its context ended = %v", err)
	}
	next, stop := iter.Pull2(st.Follow(t.Context(), provenance.Query{Session: "s"}))
	defer stop()
	again := &followed{next, 1}
	for range 5 {
		want(again)
	}
	Append(t, st, "s", provenance.KindSessionEnded)
	want(again)
	wantEnd(again)
}
