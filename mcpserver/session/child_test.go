package session

import (
	"strings"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/skills/policy"
)

// named is a call of a client that names its session and, if it is a child, the parent.
func named(p policy.Principal, name, parent string) Call {
	return Call{Method: "load_skill", Principal: p, Remote: p.Name != local.Name, Opens: true, Named: name,
		Parent: parent}
}

func (b *bench) activate(call Call, skill string) (*Session, *Loaded) {
	b.t.Helper()
	ses := b.session(call)
	loaded, err := ses.Activate(b.t.Context(), ActivateRequest{Call: call, Skill: skill})
	if err != nil {
		b.t.Fatal(err)
	}
	return ses, loaded
}

// A session that its client names is one of its own, wherever the client is.
func TestNamedSessions(t *testing.T) {
	for _, who := range []policy.Principal{local, alice} {
		t.Run(who.Name, func(t *testing.T) {
			b := newBench(t, benchOptions{preload: []string{"narrow"}})
			first, loaded := b.activate(named(who, "p1", ""), "demo")
			other, _ := b.activate(named(who, "p1.subagent.1", ""), "narrow")
			if first == other || first == b.Current() || first.ID() == other.ID() ||
				other.activated("demo") != nil {
				t.Errorf("sessions %s and %s", first.ID(), other.ID())
			}
			if b.session(named(who, "p1", "")) != first {
				t.Error("the name does not lead to its session")
			}
			// Neither is a child, so both have what the operator preloads.
			for _, ses := range []*Session{first, other} {
				if ses.activated("narrow") == nil || b.started(ses.ID()).Parent != "" {
					t.Errorf("%s began with %+v", ses.ID(), b.started(ses.ID()))
				}
			}
			// A handle leads to no other session than the named one, also when it has ended.
			for _, when := range []string{"open", "ended"} {
				call := named(who, "p1.subagent.1", "")
				call.Handle = loaded.Handle
				if ses, err := b.Open(t.Context(), call); code(err) != string(policy.CodeActivationUnknown) {
					t.Errorf("%s, the handle of another session: %v, %v", when, ses, err)
				}
				call.Named = "p1"
				if ses := b.session(call); ses.activated("demo") == nil {
					t.Errorf("%s, the session's own handle: not active", when)
				}
				b = b.restart()
			}
		})
	}
}

// The session of the process has the names that its client has for it.
func TestProcessIsNamed(t *testing.T) {
	b := newBench(t, benchOptions{})
	process, _ := b.activate(Call{Method: "load_skill", Principal: local, ClientSession: "c1"}, "demo")
	for _, name := range []string{"c1", process.ID()} {
		if got := b.session(named(local, name, "")); got != process {
			t.Errorf("%s names %s", name, got.ID())
		}
	}
	first, _ := b.activate(named(local, "p1", ""), "demo")
	b = b.restart()
	if err := b.Resume(t.Context(), first.ID(), local, false); err != nil {
		t.Fatal(err)
	}
	if got := b.session(named(local, "p1", "")); got != b.Current() || got.ID() != first.ID() {
		t.Errorf("the session that is resumed is not found by its name: %s", got.ID())
	}
}

// Nothing of a parent reaches its child: neither what the operator preloads nor what its handle opens.
func TestChildStartsWithNothing(t *testing.T) {
	for _, who := range []policy.Principal{local, alice} {
		t.Run(who.Name, func(t *testing.T) {
			b := newBench(t, benchOptions{preload: []string{"narrow"}})
			parent, loaded := b.activate(named(who, "p1", ""), "demo")
			var own *Loaded
			for _, when := range []string{"open", "ended"} {
				for _, name := range []string{"p1", parent.ID()} {
					child := named(who, name+".1", name)
					ses := b.session(child)
					if len(ses.active) != 0 || ses == parent {
						t.Errorf("%s: the child starts with %v", when, ses.active)
					}
					child.Handle = loaded.Handle
					if ses, err := b.Open(t.Context(),
						child); code(err) != string(policy.CodeActivationUnknown) {
						t.Errorf("%s: the handle of the parent: %v, %v", when, ses, err)
					}
					if own != nil && name == "p1" {
						child.Handle = own.Handle
						if ses := b.session(child); ses.activated("demo") == nil ||
							ses.activated("narrow") != nil {
							t.Errorf("%s: the child's own handle opens %v", when, ses.active)
						}
					}
				}
				_, own = b.activate(named(who, "p1.1", "p1"), "demo")
				child := b.session(named(who, "p1.1", "p1"))
				e := b.started(child.ID())
				if e.Parent != parent.ID() ||
					!strings.Contains(string(e.Row), `"child":true,"parentSession":"p1"`) {
					t.Errorf("%s: the child began with %+v", when, e)
				}
				b = b.restart()
			}
		})
	}
}

// A parent that is not a session of the principal is refused, and the record of one that is begins first.
func TestParentIsKnown(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Profiles: []policy.Profile{{Name: "notes",
		Skills: []string{"narrow"}}}}})
	owner, _ := b.activate(named(bob, "p1", ""), "demo")
	for _, name := range []string{"p1", owner.ID(), "..", "ses_x", "p1.1"} {
		for _, who := range []policy.Principal{local, alice} {
			if ses, err := b.Open(t.Context(),
				named(who, "p1.1", name)); code(err) != string(fault.CodeInvalidArguments) {
				t.Errorf("%s, the parent %s: %v, %v", who.Name, name, ses, err)
			}
		}
	}
	call := Call{Method: "load_skill", Principal: local, ClientSession: "c1", Profile: "notes"}
	child, _ := b.activate(call, "narrow")
	process := b.Current()
	if process == nil || b.started(child.ID()).Parent != process.ID() ||
		b.started(process.ID()).Parent != "" ||
		process.profile != "" || process.clientID != "c1" {
		t.Errorf("a narrowed call that comes first has the parent %+v", process)
	}
}
