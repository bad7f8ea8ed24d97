package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// The outcome of a run that could not be recorded is recorded at the end, when it can be. It does not say
// that what the script printed was shown: the answer was withheld.
func TestOwedAtTheEnd(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	b.Current().background.Wait()
	b.records.noResult.Store(true)
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "provenance_unavailable" {
		t.Fatalf("run = %v", err)
	}
	b.records.noResult.Store(false)
	if err := b.End(t.Context()); err != nil {
		t.Errorf("End = %v", err)
	}
	if got, want := b.events(), "session.started activated script_requested script_executed session.ended"; got != want {
		t.Fatalf("events = %s, want %s", got, want)
	}
	if run := rows[cfharness.ScriptExecution](b, provenance.KindScriptExecuted)[0]; run.Skillsd.Stdout.Shown != nil || run.ResourcePath == "" {
		t.Errorf("output that was withheld is recorded as shown: %+v", run.Skillsd.Stdout)
	}
}

// A session ends once, however often it is told to.
func TestEndsOnce(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	for range 2 {
		if err := b.End(t.Context()); err != nil {
			t.Errorf("End = %v", err)
		}
	}
	if got, want := b.events(), "session.started activated session.ended"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
}

// A preloaded skill that cannot be read costs the session that skill and nothing else.
func TestPreloadUnreadable(t *testing.T) {
	b := newBench(t, benchOptions{preload: []string{"shy", "demo"}})
	if err := os.RemoveAll(filepath.Join(b.root, "shy")); err != nil {
		t.Fatal(err)
	}
	if loaded := b.load("demo"); string(loaded.Body) != "Do it.\n" {
		t.Errorf("load = %+v", loaded)
	}
	if b.Current().activated("shy") != nil {
		t.Error("a skill that cannot be read is active")
	}
	if err := b.End(t.Context()); err != nil {
		t.Errorf("End = %v", err)
	}
	if got, want := b.events(), "session.started activated activated activated session.ended"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
	if got := rows[cfharness.Activation](b, provenance.KindSkillActivated); len(got) != 2 || got[0].Name != "demo" {
		t.Errorf("activations = %+v, want two of demo", got)
	}
}

// The log has the cause of what cannot be recorded, however far from the edge that was.
func TestCauseOfNoRecord(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	wantCause := func(doing string, err error) {
		t.Helper()
		public, ok := errors.AsType[*Error](err)
		if !ok || public.Code != fault.CodeProvenanceUnavailable {
			t.Fatalf("%s = %v", doing, err)
		}
		if _, again := errors.AsType[*Error](public.Err); again || !errors.Is(public.Err, provenance.ErrUnavailable) {
			t.Errorf("%s: the cause is %v", doing, public.Err)
		}
	}
	b.records.broken.Store(true)
	wantCause("the start", b.session(Call{Principal: local}).ensureStarted(t.Context()))
	b.records.broken.Store(false)
	b.load("demo")
	b.Current().background.Wait()
	b.records.noResult.Store(true)
	_, err := b.run("demo", "scripts/ok.sh")
	wantCause("a run", err)
}

// What the start of a session could not record is recorded by the next call.
func TestStartIsCompleted(t *testing.T) {
	for failAt := 1; failAt <= 3; failAt++ {
		b := newBench(t, benchOptions{preload: []string{"shy", "demo"}})
		appends := 0
		b.records.onAppend = func() { appends++; b.records.broken.Store(appends == failAt) }
		if _, err := b.Open(t.Context(), Call{Method: "load_skill", Principal: local}); code(err) != "provenance_unavailable" {
			t.Errorf("Open = %v", err)
		}
		b.records.onAppend = nil
		b.records.broken.Store(false)
		b.load("demo")
		if err := b.End(t.Context()); err != nil {
			t.Errorf("End = %v", err)
		}
		if got, want := b.events(), "session.started activated activated activated session.ended"; got != want {
			t.Errorf("after a failure of event %d the events are %s, want %s", failAt, got, want)
		}
		for _, name := range []string{provenance.RegistryFile, provenance.CapabilitiesFile} {
			b.artifact(name)
		}
	}
}

// A session that could not be started whole ends too.
func TestEndOfHalfAStart(t *testing.T) {
	b := newBench(t, benchOptions{preload: []string{"demo"}})
	appends := 0
	b.records.onAppend = func() { appends++; b.records.broken.Store(appends == 2) }
	if _, err := b.Open(t.Context(), Call{Method: "load_skill", Principal: local}); code(err) != "provenance_unavailable" {
		t.Errorf("Open = %v", err)
	}
	if err := b.End(t.Context()); err != nil {
		t.Errorf("End = %v", err)
	}
	if got, want := b.events(), "session.started session.ended"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
}

// What a call records while its session is being ended stands before the end.
func TestNothingBehindTheEnd(t *testing.T) {
	b := newBench(t, benchOptions{})
	call := remote(alice, false, "p1", "", "")
	ses, leave := b.enter(call)
	defer leave()
	read := func() error {
		_, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10})
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	ses.background.Wait()
	var hooked atomic.Bool
	b.records.onAppend = func() {
		if hooked.Swap(true) {
			return
		}
		b.EndProtocolSession("p1")
		for i := 0; i < 10_000 && !ses.ended.Load(); i++ {
			runtime.Gosched()
		}
		if ses.ended.Load() {
			b.table.recording.Wait()
		}
	}
	if err := read(); err != nil {
		t.Errorf("a read that began before the end: %v", err)
	}
	b.table.recording.Wait()
	if kinds := b.kinds(ses); !slices.Equal(kinds, []provenance.Kind{
		provenance.KindSessionStarted, provenance.KindResourceRead, provenance.KindResourceRead, provenance.KindSessionEnded}) {
		t.Errorf("events = %v", kinds)
	}
	if err := read(); code(err) != "provenance_unavailable" {
		t.Errorf("a read after the end: %v", err)
	}
}

// countedRoom counts the reservations that are not released.
type countedRoom struct {
	provenance.Store
	held atomic.Int32
}

func (s *countedRoom) Reserve(context.Context, string, int64) (func(), error) {
	s.held.Add(1)
	return sync.OnceFunc(func() { s.held.Add(-1) }), nil
}

func (s *countedRoom) Append(ctx context.Context, e *provenance.Event) error {
	if e.Kind == provenance.KindPolicyWarned {
		panic("of a test")
	}
	return s.Store.Append(ctx, e)
}

// A panic, which does not end the server, releases the room for the outcome of the run and the run's slot.
func TestPanicReleasesRoom(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Observe}})
	b.load("demo")
	b.Current().background.Wait()
	records := &countedRoom{Store: b.records.Store}
	b.records.Store = records
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		b.run("demo", "scripts/ok.sh")
	}()
	if _, queue := b.Live(); records.held.Load() != 0 || queue.Principals != 0 {
		t.Errorf("%d reservations are left, runs of %d principals", records.held.Load(), queue.Principals)
	}
}

// What a run left in /out is in its record also when that is written later than the run ended.
func TestOwedOutFiles(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.runner.result.Out = []sandbox.OutFile{{Name: "report.txt", Data: []byte("report\n")}}
	b.load("demo")
	b.Current().background.Wait()
	b.records.unkept.Store(true)
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "provenance_unavailable" {
		t.Fatalf("run = %v", err)
	}
	b.records.unkept.Store(false)
	if err := b.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := rows[cfharness.ScriptExecution](b, provenance.KindScriptExecuted)[0]
	if out := run.Skillsd.Out; len(out) != 1 || out[0].Name != "report.txt" || out[0].Bytes != 7 || out[0].URI == "" {
		t.Errorf("the record names %+v", out)
	}
}

// The end of a session that could not be recorded is recorded when it can be, with the outcome of the run
// that is owed, and once.
func TestEndIsTriedAgain(t *testing.T) {
	for name, again := range map[string]func(*bench){
		"while the server lives on": func(b *bench) { b.EndIdle(); b.table.recording.Wait() },
		"at its end": func(b *bench) {
			if err := b.End(b.t.Context()); err != nil {
				b.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, benchOptions{policy: direct})
			call := remote(alice, true, "p1", "", "")
			ses, leave := b.enter(call)
			if _, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"}); err != nil {
				t.Fatal(err)
			}
			ses.background.Wait()
			b.records.noResult.Store(true)
			_, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute})
			if code(err) != "provenance_unavailable" {
				t.Fatalf("run = %v", err)
			}
			leave()
			b.EndProtocolSession("p1")
			b.table.recording.Wait()
			if last := b.kinds(ses); slices.Contains(last, provenance.KindSessionEnded) {
				t.Fatalf("recorded %v", last)
			}
			b.EndIdle()
			b.table.recording.Wait()
			// Then there is room for the outcome, but not for the end.
			b.records.noResult.Store(false)
			appends := 0
			b.records.onAppend = func() { appends++; b.records.broken.Store(appends == 2) }
			b.EndIdle()
			b.table.recording.Wait()
			b.records.onAppend = nil
			b.records.broken.Store(false)
			want := []provenance.Kind{provenance.KindScriptExecuted, provenance.KindSessionEnded}
			for _, last := range []func(*bench){again, func(b *bench) { b.EndIdle(); b.table.recording.Wait() }} {
				last(b)
				all := b.kinds(ses)
				if !slices.Equal(all[len(all)-2:], want) || slices.Index(all, provenance.KindSessionEnded) != len(all)-1 || len(b.table.unended) != 0 {
					t.Errorf("recorded %v, %d ends are open", all, len(b.table.unended))
				}
			}
		})
	}
}

// A server that ends before it has looked at all files records which skills there were.
func TestRegistryOfAServerThatEnds(t *testing.T) {
	b := newBench(t, benchOptions{})
	over, end := context.WithCancel(t.Context())
	end()
	b.patient = over
	b.load("demo")
	if err := b.End(t.Context()); err != nil {
		t.Errorf("End = %v", err)
	}
	var registry cfharness.SkillRegistry
	if err := json.Unmarshal([]byte(b.artifact(provenance.RegistryFile)), &registry); err != nil {
		t.Fatal(err)
	}
	if all := b.cfg.Registry.Snapshot().Skills; len(registry.Skills) != len(all) || len(all) < 3 {
		t.Errorf("the registry has %d of %d skills", len(registry.Skills), len(all))
	}
	for _, sk := range registry.Skills {
		says := strings.Contains(string(encode(sk)), "its files were not recorded: the server ended first")
		if sk.Digest == "" || sk.Skillsd.TreeDigest != "" || !says {
			t.Errorf("%s has the digests %q and %q, says that its files are not there: %v", sk.Name, sk.Digest, sk.Skillsd.TreeDigest, says)
		}
	}
	if _, err := b.records.Verify(t.Context(), b.Current().ID()); err != nil {
		t.Errorf("Verify = %v", err)
	}
}
