// Package storetest checks that an implementation of provenance.Store keeps its contract.
//
// It checks both halves, Writer and Reader, through the interface only. Crashes and full disks are left to
// the tests of the implementation.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Run checks stores made by open, which must be empty and independent of each other. Run closes them.
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
		"follow":      testFollow,
		"collect":     testCollect,
		"unused":      testCollectUnused,
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
		events = append(events, appendEvent(t, st, Event(session, k, i+1)))
	}
	return events
}

func appendEvent(t *testing.T, st provenance.Store, e *provenance.Event) *provenance.Event {
	t.Helper()
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatalf("Append(%s) = %v", e.Kind, err)
	}
	return e
}

// Read returns a file of a session and fails the test if it cannot be read.
func Read(t *testing.T, st provenance.Store, session, name string) []byte {
	t.Helper()
	r, err := st.Artifact(t.Context(), session, name)
	return readAll(t, name, r, err)
}

func readAll(t *testing.T, name string, r io.ReadCloser, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return data
}

// readSession returns the content of session.json.
func readSession(t *testing.T, st provenance.Store) (s provenance.Session) {
	t.Helper()
	if err := json.Unmarshal(Read(t, st, "s", provenance.SessionFile), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// wantError checks that an operation failed with the error want.
func wantError(t *testing.T, doing string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want the error %q", doing, got, want)
	}
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

// hammer calls do from many workers concurrently, each time with another number.
func hammer(workers, each int, do func(worker, i int)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				do(w, i)
			}
		})
	}
	wg.Wait()
}

func testConcurrent(t *testing.T, st provenance.Store) {
	const workers, each, sessions = 50, 20, 3
	kinds := []provenance.Kind{provenance.KindResourceRead, provenance.KindScriptRequested,
		provenance.KindSkillActivated}
	var last [workers]uint64
	hammer(workers, each, func(w, i int) {
		session := fmt.Sprintf("s%d", w%sessions)
		e := Event(session, kinds[(w+i)%len(kinds)], i)
		if err := st.Append(t.Context(), e); err != nil || e.Seq <= last[w] {
			t.Errorf("Append = %v, seq %d after %d", err, e.Seq, last[w])
		}
		last[w] = e.Seq
		if i == each/2 {
			Read(t, st, session, provenance.SessionFile)
		}
	})
	total := 0
	for i := range sessions {
		session := fmt.Sprintf("s%d", i)
		sc := provenance.NewScanner(bytes.NewReader(Read(t, st, session, provenance.EventsFile)))
		for _, err := range sc.All() {
			if err != nil {
				t.Fatalf("%s:%d: %v", session, sc.Line, err)
			}
			total++
		}
	}
	if total != workers*each {
		t.Errorf("recorded %d events, want %d", total, workers*each)
	}
}

// testEnding checks that sessions can end and be resumed while other goroutines append to them.
func testEnding(t *testing.T, st provenance.Store) {
	const workers, each = 16, 12
	kinds := []provenance.Kind{provenance.KindResourceRead, provenance.KindSessionEnded,
		provenance.KindScriptRequested, provenance.KindSessionResumed}
	Append(t, st, "s", provenance.KindSessionStarted)
	hammer(workers, each, func(w, i int) {
		if err := st.Append(t.Context(), Event("s", kinds[(w+i)%len(kinds)], i)); err != nil {
			t.Errorf("Append = %v", err)
		}
		if _, err := st.Put(t.Context(), "s", fmt.Sprintf("outputs/%d.%d", w, i), nil); err != nil {
			t.Errorf("Put = %v", err)
		}
		if i%4 == 0 {
			Read(t, st, "s", provenance.SessionFile)
		}
	})
	if got := collect(t, st, provenance.Query{Session: "s"}); len(got) != 1+workers*each {
		t.Errorf("recorded %d events, want %d", len(got), 1+workers*each)
	}
}

// testClaims checks that only one caller can claim an ID, and that a session starts only once.
func testClaims(t *testing.T, st provenance.Store) {
	var got atomic.Int64
	hammer(20, 1, func(int, int) {
		if err := st.Claim(t.Context(), "job"); err == nil {
			got.Add(1)
		} else {
			wantError(t, "claim", err, provenance.ErrTaken)
		}
	})
	if got.Load() != 1 {
		t.Errorf("an id was claimed %d times", got.Load())
	}
	Append(t, st, "job", provenance.KindSessionStarted)
	wantError(t, "claim of a session", st.Claim(t.Context(), "job"), provenance.ErrTaken)
	wantError(t, "claim of an impossible id", st.Claim(t.Context(), "../job"), provenance.ErrInvalid)
	if err := st.Append(t.Context(), Event("job", provenance.KindSessionStarted, 2)); err == nil {
		t.Error("a session started twice")
	}
	other := Event("job", provenance.KindSkillActivated, 3)
	other.Principal = "mallory"
	if err := st.Append(t.Context(), other); err == nil {
		t.Error("another principal wrote into a session")
	}
	if _, err := st.Put(t.Context(), "gone", provenance.PolicySnapshotFile, []byte("{}")); err != nil {
		t.Error(err)
	}
	resumed := st.Append(t.Context(), Event("gone", provenance.KindSessionResumed, 1))
	wantError(t, "resumption of a session without a record", resumed, provenance.ErrNotFound)
	if list, err := provenance.ListSessions(t.Context(), st); err != nil || len(list) != 1 {
		t.Errorf("after that there are %+v, %v", list, err)
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
	appendEvent(t, st, e)
	_, err = st.Put(t.Context(), "s", name, []byte("other"))
	wantError(t, "Put of a recorded output", err, provenance.ErrInvalid)
	for range 2 {
		if _, err := st.Put(t.Context(), "s", provenance.RegistryFile, data); err != nil {
			t.Errorf("Put of a snapshot = %v", err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "../x", "/etc/passwd", "a/b", "outputs/", "outputs/../x", "outputs/a/b", ".hidden",
		`a\b`, "outputs/.tmp-1", "events.jsonl", "session.json", "lock", "policy-trace.json", "outputs",
		"a\x00b",
		provenance.ShownName(f.Digest), strings.Repeat("a", 300),
	} {
		_, err := st.Put(t.Context(), "s", name, data)
		wantError(t, "Put of "+name, err, provenance.ErrInvalid)
	}
	for _, name := range []string{"../s/events.jsonl", "/etc/passwd", "outputs/../../x",
		provenance.ShownDir + "/../events.jsonl"} {
		if r, err := st.Artifact(t.Context(), "s", name); err == nil {
			t.Errorf("Artifact(%q) was opened", name)
			r.Close()
		}
	}
}

// testEqualContent puts the same content into several sessions, concurrently and repeatedly. Each session
// must have it, and replacing it in one must not change the others.
func testEqualContent(t *testing.T, st provenance.Store) {
	for _, size := range []int{0, 100, 100_000} {
		data := bytes.Repeat([]byte{'x'}, size)
		other := append(bytes.Clone(data), '!')
		id := func(i int) string { return fmt.Sprintf("s%d-%d", size, i) }
		put := func(i int, data []byte) {
			f, err := st.Put(t.Context(), id(i), provenance.RegistryFile, data)
			want := provenance.File{Name: provenance.RegistryFile, Size: int64(len(data)),
				Digest: digest.FromBytes(data)}
			if err != nil || f != want {
				t.Errorf("Put of %d bytes in session %d = %+v, %v, want %+v", len(data), i, f, err, want)
			}
		}
		wantFiles := func(changed int) {
			t.Helper()
			for i := range 4 {
				want := data
				if i == changed {
					want = other
				}
				if got := Read(t, st, id(i), provenance.RegistryFile); !bytes.Equal(got, want) {
					t.Errorf("session %d has %d bytes, want %d", i, len(got), len(want))
				}
			}
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { put(i, data) })
		}
		wg.Wait()
		wantFiles(-1)
		put(2, data)
		wantFiles(-1)
		for i := range 4 {
			put(i, other)
			wantFiles(i)
			put(i, data)
		}
		wantFiles(-1)
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
			e.Files = []provenance.File{{Name: "../x", Digest: digest.FromString("")}}
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
	err := st.Append(ctx, Event("s", provenance.KindResourceRead, 1))
	wantError(t, "Append with a cancelled context", err, context.Canceled)
	if got := collect(t, st, provenance.Query{Session: "s"}); len(got) != 1 {
		t.Errorf("refused events left %d events, want 1", len(got))
	}
}

func testResumed(t *testing.T, st provenance.Store) {
	Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSessionEnded)
	if s := readSession(t, st); s.State != provenance.StateEnded || s.EndedAt == nil {
		t.Errorf("session.json after the end is %+v", s)
	}
	if e := Append(t, st, "s", provenance.KindSessionResumed)[0]; e.Seq != 3 {
		t.Errorf("session.resumed has seq %d, want 3", e.Seq)
	}
	if s := readSession(t, st); s.State != provenance.StateOpen || s.EndedAt != nil {
		t.Errorf("session.json after resuming is %+v", s)
	}
}

func testClosed(t *testing.T, st provenance.Store) {
	Append(t, st, "s", provenance.KindSessionStarted)
	for range 2 {
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	err := st.Append(t.Context(), Event("s", provenance.KindResourceRead, 1))
	wantError(t, "Append after Close", err, provenance.ErrClosed)
	_, err = st.Put(t.Context(), "s", "x", nil)
	wantError(t, "Put after Close", err, provenance.ErrClosed)
}

// testForeignText checks that invalid UTF-8 from a client does not make a record unreadable.
func testForeignText(t *testing.T, st provenance.Store) {
	bad := "\xff\u2028\x00\x1b\ufffd<\xc3"
	e := Event("s", provenance.KindSessionStarted, 1)
	e.Parent, e.Principal, e.Client, e.Skill, e.Path, e.Want, e.Got, e.Detail = bad, bad, bad, bad, bad, bad,
		bad, bad
	appendEvent(t, st, e)
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

func testKeep(t *testing.T, st provenance.Store) {
	Append(t, st, "s", provenance.KindSessionStarted)
	text := []byte("instructions\n")
	for _, id := range []string{"s", "s", "other"} {
		d, err := st.Keep(t.Context(), id, text)
		if err != nil || d != digest.FromBytes(text) {
			t.Fatalf("Keep = %s, %v", d, err)
		}
		if got := Read(t, st, id, provenance.ShownName(d)); !bytes.Equal(got, text) {
			t.Errorf("kept %q, want %q", got, text)
		}
	}
	_, err := st.Keep(t.Context(), "../s", text)
	wantError(t, "Keep in session ../s", err, provenance.ErrInvalid)
}

var epoch = time.Date(2026, 11, 21, 8, 0, 0, 123456789, time.UTC)

// Event returns an event of kind k of a session, with the row and the decision that a server would record; n
// distinguishes events.
func Event(session string, k provenance.Kind, n int) *provenance.Event {
	e := &provenance.Event{
		Time: epoch.Add(time.Duration(n) * time.Second), Kind: k, Session: session,
		Principal: "local", Detail: fmt.Sprintf("number %d <&>", n),
	}
	at := provenance.Stamp(e.Time)
	output := fmt.Sprintf("%s:tool:%d", session, n)
	switch k {
	case provenance.KindSessionStarted:
		e.Row = encode(provenance.SessionInfo{
			Server: provenance.Server{Version: "v1", Protocol: "2025-11-25"}, Mode: "enforce-explicit",
		})
	case provenance.KindSkillActivated:
		e.Row = encode(cfharness.Activation{Name: "pdf", Source: cfharness.SourceModel, RunID: session,
			ActivatedAt: at, CFCPromptRole: cfharness.PromptRoleContext})
	case provenance.KindResourceRead:
		e.Row = encode(cfharness.ResourceRead{Type: cfharness.TypeResourceRead, OutputID: output,
			RunID: session, Status: cfharness.StatusRead, ReadAt: at})
		e.Decision = decision(session, at, n, provenance.DecisionAllowed)
	case provenance.KindScriptExecuted:
		e.Row = encode(cfharness.ScriptExecution{Type: cfharness.TypeScriptExecution, OutputID: output,
			RunID: session, Status: cfharness.StatusExecuted, ExecutedAt: at, Args: []string{"<a>"}})
	case provenance.KindPolicyDenied:
		e.Decision = decision(session, at, n, provenance.DecisionDenied)
	}
	return e
}

// Long records n reads of one file in a session. Each is as long as one of a real server, and every hundred
// contain a load and a run.
func Long(tb testing.TB, st provenance.Store, session string, n int) {
	tb.Helper()
	sum, size, yes, no, most := digest.FromString("a"), int64(11), true, false, int64(64_000)
	dir := "/home/user/skills/pdf"
	facts := cfharness.FileFacts{SandboxResourcePath: "/workspace/skills/pdf/references/a.md",
		RegistryDigest: sum,
		ObservedDigest: sum, DigestMatchesRegistry: &yes, RegistrySizeBytes: &size, ObservedSizeBytes: &size}
	for i := range n {
		kind, tool := provenance.KindResourceRead, "read_skill_resource"
		switch {
		case i == 0:
			kind = provenance.KindSessionStarted
		case i%100 == 1:
			kind, tool = provenance.KindSkillActivated, "load_skill"
		case i%100 == 2:
			kind, tool = provenance.KindScriptExecuted, "run_skill_script"
		}
		e := Event(session, kind, i)
		e.Skill, e.Path, e.Client = "pdf", "references/a.md", "claude-code 2.1.0"
		at, output := provenance.Stamp(e.Time), fmt.Sprintf("%s:%s:%d", session, tool, i)
		decided := cfharness.PolicyDecision{
			Type: cfharness.TypePolicyDecision, Sequence: i, RunID: session, At: at, ToolActivitySequence: i,
			ToolCallID: fmt.Sprint(i), ToolID: tool, EffectClass: "read", Mode: "enforce-explicit",
			Decision: provenance.DecisionAllowed, ReasonCodes: []string{"cfc_enforce_explicit_read"},
			PromptSlot: json.RawMessage(`{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound",` +
				`"source":{"type":"cf-harness.cli-input","surface":"cli"},"role":"direct-command",` +
				`"kernelName":"skillsd","surface":"cli"}`),
		}
		switch kind {
		case provenance.KindResourceRead:
			e.Detail, e.Want, e.Got = "read", sum.String(), sum.String()
			e.Row = encode(cfharness.ResourceRead{
				Type: cfharness.TypeResourceRead, OutputID: output, RunID: session, SkillName: "pdf",
				Path: e.Path, Status: cfharness.StatusRead, ReadAt: at,
				CFCPromptRole: cfharness.PromptRoleContext,
				Kind:          "reference", ResourcePath: dir + "/" + e.Path, FileFacts: facts,
				ContentKind: "text",
				MaxBytes:    &most, Truncated: &no,
				Skillsd: &cfharness.ReadExtension{Via: tool, Path: "pdf", TreeDigest: sum, Offset: new(int64),
					Bytes: &size},
			})
			e.Decision = encode(decided)
		case provenance.KindScriptExecuted:
			stream := cfharness.StreamSummary{Bytes: size, Digest: sum,
				Shown: &cfharness.ShownText{Digest: sum, Bytes: size}}
			e.Row = encode(cfharness.ScriptExecution{
				Type: cfharness.TypeScriptExecution, OutputID: output, RunID: session, SkillName: "pdf",
				Path:   e.Path,
				Status: cfharness.StatusExecuted, ExecutedAt: at,
				Argv:      []string{"/usr/bin/bash", "/skill/" + e.Path},
				FileFacts: facts, Skillsd: &cfharness.RunExtension{Outcome: cfharness.OutcomeExited,
					Stdout: stream, Stderr: stream},
			})
			e.Decision = encode(decided)
			e.Invocation = encode(map[string]any{"type": "cf-harness.cfc-invocation-context", "version": 1,
				"sequence": i})
		}
		if err := st.Append(tb.Context(), e); err != nil {
			tb.Fatal(err)
		}
	}
}

func decision(session string, at provenance.Timestamp, n int, outcome string) json.RawMessage {
	return encode(cfharness.PolicyDecision{
		Type: cfharness.TypePolicyDecision, Sequence: n, RunID: session, At: at, ToolID: "run_skill_script",
		Mode: "enforce-explicit", Decision: outcome, ReasonCodes: []string{"tool_not_allowed"},
	})
}

func encode(v any) json.RawMessage {
	raw, err := provenance.Encode(v)
	if err != nil {
		panic("storetest: " + err.Error())
	}
	return raw
}
