package session

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/skills/policy"
)

// What is restored is what a session was when it ended, whenever its record was read before: neither is
// a mode that it was raised to lost, nor what it loaded later, nor what was gone on with elsewhere.
func TestRestoredAsItEnded(t *testing.T) {
	look := func(b *bench) { _, _ = b.Open(b.t.Context(), remote(bob, false, "", "", "unknown")) }
	for _, looks := range []bool{false, true} {
		b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
		var offset atomic.Int64
		b.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
		first := remote(alice, true, "p1", "", "")
		ses := b.session(first)
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: first, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		if looks {
			look(b)
		}
		raised := first
		raised.Mode = policy.EnforceExplicit
		if _, err := ses.Activate(t.Context(), ActivateRequest{Call: raised, Skill: "narrow"}); err != nil {
			t.Fatal(err)
		}
		b.EndProtocolSession("p1")
		b.table.recording.Wait()
		for i, protocol := range []string{"p2", "p3"} {
			again := b.session(remote(alice, false, protocol, "", loaded.Handle))
			if again == ses || again.activated("demo") == nil || again.activated("narrow") == nil {
				t.Errorf("looked before: %v: restored %v", looks, again.active)
			}
			want := []policy.Mode{policy.EnforceExplicit, policy.EnforceStrict}[i]
			if mode := again.raise(again.rules.Load(), 0); mode != want {
				t.Errorf("looked before: %v: the mode was lowered to %s, want %s", looks, mode, want)
			}
			stricter := remote(alice, false, protocol, "", loaded.Handle)
			stricter.Mode = policy.EnforceStrict
			if _, err := again.ReadResource(t.Context(), ReadRequest{Call: stricter, Skill: "demo", Path: "notes.md", MaxBytes: 10}); code(err) != string(policy.CodeDirectCommandRequired) {
				t.Fatal(err)
			}
			b.EndProtocolSession(protocol)
			b.table.recording.Wait()
			offset.Add(int64(2 * earlier.ScanEvery))
		}
	}
}

// A session whose end waits for a run is as strict as the call that runs, which the record does not tell
// of yet.
func TestRestoredAsStrictAsCallsUnderWay(t *testing.T) {
	for _, looks := range []int{0, 1, 2} {
		b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
		var offset atomic.Int64
		b.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
		call := remote(alice, true, "p1", "", "")
		ses := b.session(call)
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		ses.runs.RLock()
		release := ses.runs.RUnlock
		defer release()
		b.EndProtocolSession("p1")
		for range looks {
			_, _ = b.Open(t.Context(), remote(bob, false, "", "", "unknown"))
			offset.Add(int64(2 * earlier.ScanEvery))
		}
		ses.raise(ses.rules.Load(), policy.EnforceStrict)
		again := b.session(remote(alice, false, "p2", "", loaded.Handle))
		if again == ses || again.activated("demo") == nil || again.raise(again.rules.Load(), 0) != policy.EnforceStrict {
			t.Errorf("looked %d times: restored in %s with mode %s", looks, again.ID(), again.raise(again.rules.Load(), 0))
		}
	}
}

// A session that another process has open is restored as it is then, and not as it was when the records
// were looked through.
func TestOpenElsewhereIsReadAgain(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
	call := remote(alice, true, "p1", "", "")
	ses := b.session(call)
	loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	other, cfg, now := *b, b.cfg, time.Now()
	cfg.Now = func() time.Time { return now }
	other.Sessions = New(cfg)
	_, _ = other.Open(t.Context(), remote(bob, false, "", "", "unknown"))
	call.Mode = policy.EnforceExplicit
	if _, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "narrow"}); err != nil {
		t.Fatal(err)
	}
	again := other.session(remote(alice, false, "p2", "", loaded.Handle))
	if again.activated("demo") == nil || again.activated("narrow") == nil || again.raise(again.rules.Load(), 0) != policy.EnforceExplicit {
		t.Errorf("restored with mode %s: %v", again.raise(again.rules.Load(), 0), again.active)
	}
	if err := other.End(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client's own session goes on also right after the records were looked through.
func TestClientSessionGoesOnAtOnce(t *testing.T) {
	b := newBench(t, benchOptions{})
	now := time.Now()
	b.cfg.Now = func() time.Time { return now }
	b.session(remote(alice, true, "", "c0", ""))
	call := remote(alice, true, "", "c1", "")
	ses := b.session(call)
	if _, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"}); err != nil {
		t.Fatal(err)
	}
	b.table.mu.Lock()
	b.table.drop(ses)
	b.table.mu.Unlock()
	b.table.recording.Wait()
	if again := b.session(call); again == ses || again.activated("demo") == nil {
		t.Errorf("active in %s: %v", again.ID(), again.active)
	}
}
