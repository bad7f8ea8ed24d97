package session

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// restart is the server started again on the same records and skills.
func (b *bench) restart() *bench { return b.restartLater(0) }

// restartLater is that, with a clock that has gone on.
func (b *bench) restartLater(by time.Duration) *bench {
	b.t.Helper()
	if err := b.End(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	again, cfg := *b, b.cfg
	cfg.Registry = skills.NewRegistry(slices.Clone(b.cfg.Registry.Snapshot().Roots), nil)
	if _, err := cfg.Registry.Rescan(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	cfg.Now = func() time.Time { return time.Now().Add(by) }
	again.Sessions = New(cfg)
	if err := again.Start(b.t.Context(), nil); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { again.End(context.Background()) })
	return &again
}

// started is the first event of a session.
func (b *bench) started(id string) *provenance.Event {
	b.t.Helper()
	for e, err := range b.records.Events(b.t.Context(), provenance.Query{Session: id}) {
		if err != nil {
			b.t.Fatal(err)
		}
		return e
	}
	b.t.Fatalf("%s has no events", id)
	return nil
}

// A handle opens, after the server was restarted, what it opened before: for its principal, while it
// lives, as far as the skills are the same.
func TestHandlesSurviveRestart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  Call
		change func(b *bench)
		later  time.Duration // of the restart
		then   Call          // the handle is added
		active bool
		known  bool
	}{
		{name: "on stdio", first: Call{Principal: local}, then: Call{Principal: local}, active: true, known: true},
		{name: "over the network, without any session", first: remote(alice, true, "", "", ""), then: remote(alice, false, "", "", ""), active: true, known: true},
		{name: "in another protocol session", first: remote(alice, true, "p1", "", ""), then: remote(alice, false, "p2", "", ""), active: true, known: true},
		{name: "another principal", first: remote(alice, true, "", "", ""), then: remote(bob, false, "", "", "")},
		{name: "too late", first: remote(alice, true, "", "", ""), then: remote(alice, false, "", "", ""),
			later: earlier.Life + time.Minute},
		{name: "of a skill that changed", first: remote(alice, true, "", "", ""), then: remote(alice, false, "", "", ""), known: true,
			change: func(b *bench) {
				if err := os.WriteFile(filepath.Join(b.root, "demo", "scripts", "ok.sh"), []byte("#!/bin/sh\nrm -r .\n"), 0o644); err != nil {
					b.t.Fatal(err)
				}
			}},
		{name: "of a skill that is gone", first: remote(alice, true, "", "", ""), then: remote(alice, false, "", "", ""), known: true,
			change: func(b *bench) {
				if err := os.RemoveAll(filepath.Join(b.root, "demo")); err != nil {
					b.t.Fatal(err)
				}
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, benchOptions{})
			tt.first.Method = "load_skill"
			old := b.session(tt.first)
			loaded, err := old.Activate(t.Context(), ActivateRequest{Call: tt.first, Skill: "demo"})
			if err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(b)
			}
			b = b.restartLater(tt.later)
			tt.then.Method, tt.then.Handle = "run_skill_script", loaded.Handle
			ses, err := b.Open(t.Context(), tt.then)
			if known := err == nil; known != tt.known {
				t.Fatalf("Open: %v", err)
			}
			if !tt.known {
				return
			}
			if active := ses.activated("demo") != nil; active != tt.active {
				t.Errorf("active: %v", active)
			}
			if ses.ID() == old.ID() || b.started(ses.ID()).Parent != old.ID() {
				t.Errorf("session %s of %s: first event %+v", ses.ID(), old.ID(), b.started(ses.ID()))
			}
			want := provenance.KindSkillActivated
			if !tt.active {
				want = provenance.KindDriftDetected
			}
			if kinds := b.kinds(ses); !slices.Contains(kinds, want) {
				t.Errorf("recorded %v", kinds)
			}
			// Without the handle nothing is active.
			tt.then.Handle = ""
			if tt.then.Remote && tt.then.ProtocolSession == "" && b.session(tt.then).activated("demo") != nil {
				t.Error("the skill is active for calls without the handle")
			}
		})
	}
}

// A second restart finds what the first restored.
func TestHandlesSurviveTwoRestarts(t *testing.T) {
	b := newBench(t, benchOptions{})
	call := remote(alice, true, "", "", "")
	loaded, err := b.session(call).Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b = b.restart()
		again := remote(alice, false, "", "", loaded.Handle)
		if ses := b.session(again); ses.activated("demo") == nil {
			t.Fatal("not restored")
		}
	}
}

// A client that goes on with its own session finds its skills active after a restart, and nobody else.
func TestClientSessionGoesOn(t *testing.T) {
	for _, first := range []Call{{Principal: local, ClientSession: "c1"}, remote(alice, true, "", "c1", "")} {
		b := newBench(t, benchOptions{})
		first.Method = "load_skill"
		if _, err := b.session(first).Activate(t.Context(), ActivateRequest{Call: first, Skill: "demo"}); err != nil {
			t.Fatal(err)
		}
		other := first
		other.ClientSession = "c2"
		if b := b.restart(); b.session(other).activated("demo") != nil {
			t.Error("another session of the client has the skill")
		}
		if b := b.restart(); b.session(first).activated("demo") == nil {
			t.Error("the client's session lost the skill")
		}
		if !first.Remote {
			continue
		}
		foreign := first
		foreign.Principal = bob
		if b := b.restart(); b.session(foreign).activated("demo") != nil {
			t.Error("another principal has the skill")
		}
	}
}

// Approvals end with the process.
func TestApprovalsDoNotSurvive(t *testing.T) {
	b := newBench(t, benchOptions{allow: []string{"demo:scripts/ok.sh"}})
	loaded := b.load("demo")
	ses, call := b.call("run_skill_script")
	ses.approved[approval.Key{Skill: "demo", Path: "scripts/ok.sh", Tree: ses.activated("demo").index.TreeDigest}] = true
	b = b.restart()
	call.Handle = loaded.Handle
	again, err := b.Open(t.Context(), call)
	if err != nil || again.activated("demo") == nil || len(again.approved) != 0 {
		t.Errorf("Open: %v, approved %v", err, again.approved)
	}
}

// Handles that nobody gave out do not make the server read its records each time.
func TestGuessedHandlesAreCheap(t *testing.T) {
	b := newBench(t, benchOptions{})
	call := remote(alice, true, "", "", "")
	if _, err := b.session(call).Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"}); err != nil {
		t.Fatal(err)
	}
	b = b.restart()
	before := b.records.listed
	for i := range 100 {
		guess := remote(alice, false, "", "", strings.Repeat("A", 20+i))
		if _, err := b.Open(t.Context(), guess); err == nil {
			t.Fatal("a guess is a handle")
		}
	}
	if n := b.records.listed - before; n > 3 {
		t.Errorf("the records were listed %d times", n)
	}
}

// A call that narrows itself, or names a parent, has a session of its own that names its parent; it
// inherits nothing.
func TestChildSessions(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Profiles: []policy.Profile{{Name: "notes", Skills: []string{"narrow"}}}}})
	b.load("demo")
	parent, call := b.call("load_skill")
	call.Profile = "notes"
	child := b.session(call)
	if child == parent || child.activated("demo") != nil {
		t.Fatal("the child shares its parent's session")
	}
	loaded, err := child.Activate(t.Context(), ActivateRequest{Call: call, Skill: "narrow"})
	if err != nil {
		t.Fatal(err)
	}
	if e := b.started(child.ID()); e.Parent != parent.ID() || !strings.Contains(string(e.Row), `"profile":"notes"`) {
		t.Errorf("the child began with %+v", e)
	}
	if parent.activated("narrow") != nil {
		t.Error("the parent has what the child loaded")
	}
	// The handle leads to the child, narrowed, also when the call does not say so.
	call.Profile, call.Handle = "", loaded.Handle
	if found := b.session(call); found != child {
		t.Errorf("the handle leads to %s", found.ID())
	}
	for _, name := range []string{"demo", "there-is-none"} {
		if _, err := child.Activate(t.Context(), ActivateRequest{Call: call, Skill: name}); code(err) != string(policy.CodeProfileExcludes) {
			t.Errorf("load %s: %v", name, err)
		}
	}
	foreign := remote(bob, true, "", "", "")
	foreign.Parent = parent.ID()
	if ses, err := b.Open(t.Context(), foreign); code(err) != string(fault.CodeInvalidArguments) {
		t.Errorf("a session of another principal is the parent: %v, %v", ses, err)
	}
}

// What is preloaded is so for those alone who may see it.
func TestPreloadIsNarrowed(t *testing.T) {
	b := newBench(t, benchOptions{preload: []string{"demo"}, policy: policy.Config{Profiles: []policy.Profile{{Name: "notes", Skills: []string{"narrow"}}}}})
	_, call := b.call("load_skill")
	if b.Current().activated("demo") == nil {
		t.Error("the session of the process has not what is preloaded")
	}
	call.Profile = "notes"
	if b.session(call).activated("demo") != nil {
		t.Error("a narrowed session has it")
	}
}

// A call that narrows itself shares no session with one that does not, whatever its client's id, and
// sees through no handle what its profile excludes.
func TestNarrowedCallsAreApart(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Profiles: []policy.Profile{{Name: "notes", Skills: []string{"narrow"}}}}})
	call := remote(alice, true, "p1", "c1", "")
	wide := b.session(call)
	loaded, err := wide.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	call.Profile = "notes"
	if b.session(call) == wide {
		t.Error("a narrowed call is in the session of the others")
	}
	if err := os.RemoveAll(filepath.Join(b.root, "demo")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	call.Handle = loaded.Handle
	if _, err := b.Open(t.Context(), call); code(err) != string(policy.CodeActivationUnknown) {
		t.Errorf("the handle of a session that is not narrowed: %v", err)
	}
	// Gone from the catalogue, demo stays with the session, but not for calls that exclude it.
	if sk, err := wide.lookup(wide.newRequest(call, policy.Read), "demo", false); err == nil {
		t.Errorf("found %s", sk.Path)
	}
	call.Profile = ""
	if _, err := wide.lookup(wide.newRequest(call, policy.Read), "demo", false); err != nil {
		t.Errorf("the session lost what it loaded: %v", err)
	}
}

// What is restored is no wider and no laxer than it was.
func TestRestoredAsNarrowAndStrict(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Disabled, Profiles: []policy.Profile{{Name: "notes", Skills: []string{"demo"}}}}})
	for _, first := range []Call{remote(alice, true, "", "", ""), {Method: "load_skill", Principal: local}} {
		first.Profile = "notes"
		narrow := b.session(first)
		loaded, err := narrow.Activate(t.Context(), ActivateRequest{Call: first, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		first.Profile, first.Handle = "", loaded.Handle
		raised := first
		raised.Mode = policy.EnforceExplicit
		if _, err := narrow.ReadResource(t.Context(), ReadRequest{Call: raised, Skill: "demo", Path: "notes.md", MaxBytes: 10}); err != nil {
			t.Fatal(err)
		}
		again := b.restart()
		ses := again.session(first)
		if ses == again.table.process || ses.profile != "notes" || ses.activated("demo") == nil {
			t.Errorf("restored in %s, narrowed to %q", ses.ID(), ses.profile)
		}
		if _, err := ses.Activate(t.Context(), ActivateRequest{Call: first, Skill: "narrow"}); code(err) != string(policy.CodeProfileExcludes) {
			t.Errorf("the profile was lost: %v", err)
		}
		if mode := ses.raise(ses.rules.Load(), 0); mode != policy.EnforceExplicit {
			t.Errorf("the mode was lowered to %s", mode)
		}
	}
}

// A child session begins with nothing, also after a restart.
func TestChildInheritsNothingAfterRestart(t *testing.T) {
	b := newBench(t, benchOptions{})
	parent := Call{Method: "load_skill", Principal: local, ClientSession: "c1"}
	if _, err := b.session(parent).Activate(t.Context(), ActivateRequest{Call: parent, Skill: "demo"}); err != nil {
		t.Fatal(err)
	}
	child := parent
	child.Parent = "c1"
	if _, err := b.session(child).Activate(t.Context(), ActivateRequest{Call: child, Skill: "narrow"}); err != nil {
		t.Fatal(err)
	}
	b = b.restart()
	if ses := b.session(child); ses.activated("demo") != nil || ses.activated("narrow") != nil {
		t.Errorf("the child has %v", ses.active)
	}
	if ses := b.session(parent); ses.activated("demo") == nil || ses.activated("narrow") != nil {
		t.Errorf("the parent has %v", ses.active)
	}
}

// However many sessions one principal had, the handles of another are found.
func TestHandlesOfOthersAreFound(t *testing.T) {
	b := newBench(t, benchOptions{})
	load := func(p policy.Principal) string {
		call := remote(p, true, "", "", "")
		loaded, err := b.session(call).Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Handle
	}
	handle := load(alice)
	for range earlier.MaxEach + 10 {
		load(bob)
	}
	b = b.restart()
	if ses := b.session(remote(alice, false, "", "", handle)); ses.activated("demo") == nil {
		t.Error("the handle is forgotten")
	}
}
