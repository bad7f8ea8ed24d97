package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/policy"
)

var alice, bob = policy.Principal{Name: "alice"}, policy.Principal{Name: "bob"}

// remote is a call of a client over the network, one that loads a skill when opens says so.
func remote(p policy.Principal, opens bool, protocol, client, handle string) Call {
	call := Call{Method: "read_skill_resource", Principal: p, Remote: true, ProtocolSession: protocol, ClientSession: client, Handle: handle, Opens: opens}
	if opens {
		call.Method = "load_skill"
	}
	return call
}

// enter opens the session of a call that lasts until leave.
func (b *bench) enter(call Call) (ses *Session, leave func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	ses, err := b.Open(ctx, call)
	if err != nil {
		b.t.Fatalf("Open(%+v): %v", call, err)
	}
	if ses.keyed == nil {
		return ses, cancel
	}
	busy := func() int {
		b.table.mu.Lock()
		defer b.table.mu.Unlock()
		return ses.keyed.busy
	}
	before := busy()
	return ses, func() {
		for cancel(); busy() >= before; {
			runtime.Gosched()
		}
	}
}

func (b *bench) session(call Call) *Session {
	b.t.Helper()
	ses, leave := b.enter(call)
	leave()
	return ses
}

// kinds are the kinds of a session's events, but for the registry, which comes when it is hashed.
func (b *bench) kinds(ses *Session) (kinds []provenance.Kind) {
	b.t.Helper()
	for e, err := range b.records.Events(b.t.Context(), provenance.Query{Session: ses.ID()}) {
		if err != nil {
			b.t.Fatal(err)
		}
		if e.Kind != provenance.KindRegistrySnapshot {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

func TestRemoteSessionKeys(t *testing.T) {
	b := newBench(t, benchOptions{})
	load := func(call Call) (ses *Session, handle string) {
		t.Helper()
		ses = b.session(call)
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		return ses, loaded.Handle
	}
	byProtocol, handle := load(remote(alice, true, "p1", "", ""))
	byClient, _ := load(remote(alice, true, "p1", "c1", ""))
	byHandle, own := load(remote(alice, true, "", "", ""))
	shared := b.session(remote(alice, false, "", "", ""))
	all := []*Session{byProtocol, byClient, byHandle, shared}
	for _, tt := range []struct {
		name string
		call Call
		want *Session // nil: another one
	}{
		{"protocol session", remote(alice, false, "p1", "", ""), byProtocol},
		{"client's id before the protocol session", remote(alice, false, "p1", "c1", ""), byClient},
		{"client's id alone", remote(alice, false, "", "c1", ""), byClient},
		{"handle before everything", remote(alice, true, "p2", "c1", handle), byProtocol},
		{"handle alone", remote(alice, false, "", "", own), byHandle},
		{"none", remote(alice, false, "", "", ""), shared},
		{"none, loading", remote(alice, true, "", "", ""), nil},
		{"a client's id that equals a protocol session's", remote(alice, false, "", "p1", ""), nil},
		{"other principal, protocol session", remote(bob, false, "p1", "", ""), nil},
		{"other principal, client's id", remote(bob, false, "", "c1", ""), nil},
		{"other principal, none", remote(bob, false, "", "", ""), nil},
		{"principal and id that read the same", remote(policy.Principal{Name: "aliceclient:"}, false, "", "c1", ""), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := b.session(tt.call)
			if tt.want != nil && got != tt.want {
				t.Errorf("session %s, want %s", got.ID(), tt.want.ID())
			}
			for _, other := range all {
				if tt.want == nil && got == other {
					t.Errorf("session %s is not the call's own", got.ID())
				}
			}
			if got.principal.Name != tt.call.Principal.Name {
				t.Errorf("session of %s", got.principal.Name)
			}
		})
	}
}

// A handle is worth nothing to anyone else, nor after its time, and that is recorded with whoever
// tried, not with its owner.
func TestRemoteHandles(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	var offset atomic.Int64
	b.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	call := remote(alice, true, "", "", "")
	owner := b.session(call)
	loaded, err := owner.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(name string, call Call) {
		t.Helper()
		ses, err := b.Open(t.Context(), call)
		if code(err) != string(policy.CodeActivationUnknown) {
			t.Errorf("%s: Open = %v, %v", name, ses, err)
		}
	}
	before := len(b.kinds(owner))
	refused("bob, reading", remote(bob, false, "", "", loaded.Handle))
	refused("bob, loading", remote(bob, true, "", "", loaded.Handle))
	refused("bob, with a session", remote(bob, true, "p", "c", loaded.Handle))
	refused("guess", remote(alice, false, "", "", loaded.Handle+"A"))
	if after := len(b.kinds(owner)); after != before {
		t.Errorf("the owner's record grew by %d events", after-before)
	}
	if kinds := b.kinds(b.session(remote(bob, false, "", "", ""))); !slices.Contains(kinds, provenance.KindPolicyDenied) {
		t.Errorf("bob's record = %v", kinds)
	}
	opened := 0
	for _, ses := range b.table.keyed {
		if ses.principal.Name == "bob" {
			opened++
		}
	}
	if opened != 2 { // one for "c", one for the rest
		t.Errorf("guessing opened %d sessions", opened)
	}
	run := func(p policy.Principal, handle string) string {
		call := remote(p, false, "", "", handle)
		call.Method = "run_skill_script"
		ses, err := b.Open(t.Context(), call)
		if err == nil {
			_, err = ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute})
		}
		return code(err)
	}
	if got := run(alice, loaded.Handle); got != "" {
		t.Errorf("a run with the handle: %s", got)
	}
	if got := run(alice, ""); got != string(policy.CodeSkillNotActivated) {
		t.Errorf("a run without: %s", got)
	}
	if got := run(bob, ""); got != string(policy.CodeSkillNotActivated) {
		t.Errorf("bob's run: %s", got)
	}
	offset.Store(int64(earlier.Life + time.Minute))
	refused("too late", remote(alice, false, "", "", loaded.Handle))
}

// However many sessions clients open, a bounded number stays; the rest are ended in the record.
func TestRemoteSessionsBounded(t *testing.T) {
	b := newBench(t, benchOptions{})
	busy, leave := b.enter(remote(alice, false, "busy", "", ""))
	kept := b.session(remote(bob, false, "kept", "", ""))
	first := b.session(remote(alice, false, "first", "", ""))
	if _, err := first.Activate(t.Context(), ActivateRequest{Call: remote(alice, true, "first", "", ""), Skill: "demo"}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxRemoteEach {
		b.session(remote(alice, false, fmt.Sprint(i), "", ""))
	}
	b.table.recording.Wait()
	if got := len(b.table.keyed); got != maxRemoteEach+1 {
		t.Errorf("%d sessions are open", got)
	}
	if got := b.session(remote(alice, false, "busy", "", "")); got != busy {
		t.Error("a session in use made room")
	}
	if got := b.session(remote(bob, false, "kept", "", "")); got != kept {
		t.Error("another principal's session made room")
	}
	if kinds := b.kinds(first); kinds[len(kinds)-1] != provenance.KindSessionEnded {
		t.Errorf("the oldest session's record = %v", kinds)
	}
	leave()
}

// A session that made room is continued in its own record, by its key and by its handle, as it was. One that
// ended for good is not.
func TestRestingSessions(t *testing.T) {
	b := newBench(t, benchOptions{})
	load := func(call Call) (ses *Session, handle string) {
		t.Helper()
		ses = b.session(call)
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		return ses, loaded.Handle
	}
	crowd := func() {
		for range 2 * maxRemoteEach {
			b.session(remote(alice, true, "", "", ""))
		}
	}
	protocol := remote(alice, true, "p", "", "")
	byKey, _ := load(protocol)
	byHandle, handle := load(remote(alice, true, "", "", ""))
	ended, endedHandle := load(remote(alice, true, "over", "", ""))
	crowd()
	b.EndProtocolSession("over")
	if len(b.table.keyed) != maxRemoteEach {
		t.Fatalf("%d sessions are open", len(b.table.keyed))
	}
	read := remote(alice, false, "", "", handle)
	for range 2 {
		if b.session(protocol) != byKey || b.session(read) != byHandle {
			t.Fatal("a session that made room has another record")
		}
		if _, err := byHandle.ReadResource(t.Context(), ReadRequest{Call: read, Skill: "demo", Path: "notes.md", MaxBytes: 10}); err != nil {
			t.Fatal(err)
		}
		crowd()
	}
	if got := b.session(remote(alice, false, "", "", endedHandle)); got == ended {
		t.Error("a session that ended with its protocol session goes on")
	}
	if _, err := b.Open(t.Context(), remote(bob, false, "", "", handle)); code(err) != string(policy.CodeActivationUnknown) {
		t.Errorf("bob with the handle of alice: %v", err)
	}
	b.table.recording.Wait()
	for _, ses := range []*Session{byKey, byHandle} {
		want := []provenance.Kind{provenance.KindSessionStarted, provenance.KindSkillActivated}
		for range 2 {
			want = append(want, provenance.KindSessionEnded, provenance.KindSessionResumed)
			if ses == byHandle {
				want = append(want, provenance.KindResourceRead)
			}
		}
		if got := b.kinds(ses); !slices.Equal(got, append(want, provenance.KindSessionEnded)) {
			t.Errorf("record = %v", got)
		}
		if report, err := b.records.Verify(t.Context(), ses.ID()); err != nil || len(report.Unrecorded) > 0 {
			t.Errorf("Verify = %+v, %v", report, err)
		}
	}
	if err := b.End(t.Context()); err != nil {
		t.Error(err)
	}
}

// Records are deleted although their clients may come back: of those that nobody uses. Whoever comes back has
// a session anew, and no record has two beginnings or none.
func TestSessionsGivenUp(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	var offset atomic.Int64
	b.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	load := func(call Call) (ses *Session, handle string) {
		t.Helper()
		ses = b.session(call)
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		return ses, loaded.Handle
	}
	run := func(call Call) string {
		t.Helper()
		call.Method = "run_skill_script"
		ses, err := b.Open(t.Context(), call)
		if err == nil {
			_, err = ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh"})
		}
		return code(err)
	}
	deleted := func(opts provenance.CollectOptions) (ids []string) {
		t.Helper()
		opts.Total = 1
		all, err := b.records.Collect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if c.Err == nil {
				ids = append(ids, c.ID)
			} else if !errors.Is(c.Err, provenance.ErrHeld) {
				t.Errorf("%s: %v", c.ID, c.Err)
			}
		}
		return ids
	}
	own := provenance.CollectOptions{Release: b.GiveUp}

	process := b.session(Call{Principal: alice})
	if err := process.ensureStarted(t.Context()); err != nil {
		t.Fatal(err)
	}
	named := remote(alice, true, "p", "", "")
	first, _ := load(named)
	second, handle := load(remote(alice, true, "", "", ""))
	asked := remote(alice, true, "asked", "", "")
	if got := deleted(own); len(got) > 0 {
		t.Fatalf("deleted within the life of a question: %q", got)
	}
	offset.Store(int64(AskLife))
	load(asked)
	busy, leave := b.enter(remote(alice, true, "busy", "", ""))
	if err := busy.ensureStarted(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := deleted(provenance.CollectOptions{}); len(got) > 0 {
		t.Fatalf("deleted while they are open: %q", got)
	}
	if got, want := deleted(own), []string{second.ID(), first.ID()}; !slices.Equal(got, want) {
		t.Fatalf("deleted %q, want those that nobody uses, %q", got, want)
	}
	if got := run(named); got != string(policy.CodeSkillNotActivated) {
		t.Errorf("a run where the session was deleted: %q", got)
	}
	if again, _ := load(named); again == first || run(named) != "" {
		t.Error("the client does not get a session anew")
	}
	for range 2 {
		if got := run(remote(alice, false, "", "", handle)); got != string(policy.CodeActivationUnknown) {
			t.Errorf("a run by the handle of a session that was deleted: %q", got)
		}
	}
	leave()

	// A session that made room is not open: another process may delete it.
	resting, restingHandle := load(remote(alice, true, "", "", ""))
	byName, _ := load(remote(alice, true, "rests", "", ""))
	for range 2 * maxRemoteEach {
		b.session(remote(alice, true, "", "", ""))
	}
	b.table.recording.Wait()
	if got := deleted(provenance.CollectOptions{}); !slices.Contains(got, resting.ID()) || !slices.Contains(got, byName.ID()) {
		t.Fatalf("another process deleted %q, want %s and %s too", got, resting.ID(), byName.ID())
	}
	if got := run(remote(alice, false, "", "", restingHandle)); got != string(policy.CodeActivationUnknown) {
		t.Errorf("a run by the handle of a session that another process deleted: %q", got)
	}
	if got := run(remote(alice, false, "rests", "", "")); got != string(policy.CodeSkillNotActivated) {
		t.Errorf("a run in a session that another process deleted: %q", got)
	}
	if again, _ := load(remote(alice, true, "rests", "", "")); again == byName {
		t.Error("the client of a session that another process deleted has no session anew")
	}
	if err := b.End(t.Context()); err != nil {
		t.Error(err)
	}
	all, err := provenance.ListSessions(t.Context(), b.records)
	if err != nil {
		t.Fatal(err)
	}
	for _, ses := range all {
		if ses.ID == resting.ID() || ses.ID == byName.ID() || ses.ID == first.ID() {
			t.Errorf("%s has a record again", ses.ID)
		}
		if _, err := b.records.Verify(t.Context(), ses.ID); err != nil {
			t.Errorf("verify %s: %v", ses.ID, err)
		}
	}
	if len(b.table.keyed) > 0 || len(b.table.unended) > 0 {
		t.Errorf("left are %d sessions, %d of which have no end", len(b.table.keyed), len(b.table.unended))
	}
}

func TestRemoteSessionsAllBusy(t *testing.T) {
	b := newBench(t, benchOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := remote(alice, true, "over", "", "")
	loaded, err := b.session(over).Activate(ctx, ActivateRequest{Call: over, Skill: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	b.EndProtocolSession("over")
	b.table.recording.Wait()
	// One of them is the session that calls without a name share.
	if _, err := b.Open(ctx, remote(alice, false, "", "", "")); err != nil {
		t.Fatal(err)
	}
	for i := range maxRemoteEach - 1 {
		if _, err := b.Open(ctx, remote(alice, false, fmt.Sprint(i), "", "")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Open(ctx, remote(alice, false, "more", "", "")); code(err) != string(fault.CodeServerBusy) {
		t.Errorf("Open = %v", err)
	}
	if _, err := b.Open(ctx, remote(alice, false, "", "", loaded.Handle)); code(err) != string(fault.CodeServerBusy) {
		t.Errorf("Open with a good handle = %v: it must not be taken for an unknown one", err)
	}
	if _, err := b.Open(ctx, remote(bob, false, "more", "", "")); err != nil {
		t.Errorf("bob: %v", err)
	}
}

// A protocol session that ends takes its session with it, one that nobody uses ends after an hour,
// and at the end of the server all do.
func TestRemoteSessionsEnd(t *testing.T) {
	b := newBench(t, benchOptions{})
	var offset atomic.Int64
	b.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	read := func(call Call) *Session {
		t.Helper()
		ses := b.session(call)
		if _, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10}); err != nil {
			t.Fatal(err)
		}
		return ses
	}
	ended := func(ses *Session) bool {
		b.table.recording.Wait()
		kinds := b.kinds(ses)
		return kinds[len(kinds)-1] == provenance.KindSessionEnded
	}
	protocol, client := read(remote(alice, false, "p1", "", "")), read(remote(alice, false, "p1", "c1", ""))
	b.EndProtocolSession("p1")
	b.EndProtocolSession("")
	if !ended(protocol) || ended(client) {
		t.Errorf("protocol session ended: %v, client's own: %v", ended(protocol), ended(client))
	}
	late := remote(alice, false, "p1", "", "")
	if _, err := protocol.RunScript(t.Context(), RunRequest{Call: late, Skill: "demo", Path: "scripts/ok.sh"}); code(err) != string(fault.CodeProvenanceUnavailable) || !ended(protocol) {
		t.Errorf("a run in a session that has ended: %v", err)
	}
	call := remote(alice, true, "", "", "")
	holder := b.session(call)
	if _, err := holder.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"}); err != nil {
		t.Fatal(err)
	}
	offset.Store(int64(2 * time.Hour))
	b.EndIdle()
	if !ended(client) || ended(holder) {
		t.Errorf("idle session ended: %v, one with a handle: %v", ended(client), ended(holder))
	}
	if err := b.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !ended(holder) {
		t.Error("a session outlives the server")
	}
}

// Sessions come and go under the race detector.
func TestRemoteSessionsAtOnce(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			who := policy.Principal{Name: fmt.Sprint("p", i%3)}
			for n := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				call := remote(who, true, fmt.Sprint(n%4), "", "")
				ses, err := b.Open(ctx, call)
				if err != nil {
					t.Error(err)
				} else if _, err := ses.Activate(ctx, ActivateRequest{Call: call, Skill: "demo"}); err != nil {
					t.Error(err)
				} else {
					call.Method = "run_skill_script"
					if _, err := ses.RunScript(ctx, RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute}); err != nil {
						t.Error(err)
					}
				}
				cancel()
				if n%5 == 0 {
					b.EndIdle()
				}
			}
		})
	}
	group.Wait()
	if err := b.End(t.Context()); err != nil {
		t.Error(err)
	}
}

// A session that is ending has its files open, so another one is opened when its end is recorded; and when
// one in use is left.
func TestEndingSessionsCount(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.table.most = 2
	b.table.places = admit.NewQuota(2, 2)
	unused := b.session(remote(alice, false, "a", "", ""))
	_, leave := b.enter(remote(bob, false, "b", "", ""))
	open := func(ctx context.Context, name string) <-chan error {
		opened := make(chan error, 1)
		go func() {
			_, err := b.Open(ctx, remote(policy.Principal{Name: name}, false, name, "", ""))
			opened <- err
		}()
		for {
			each, _ := b.table.places.Wanted(func() map[string]int { return map[string]int{} }, 0)
			if each[name] > 0 || len(opened) > 0 {
				return opened
			}
			runtime.Gosched()
		}
	}
	unused.runs.Lock() // its end waits
	carol := open(t.Context(), "carol")
	if len(carol) > 0 {
		t.Fatalf("a session more than may be open: %v", <-carol)
	}
	unused.runs.Unlock()
	if err := <-carol; err != nil {
		t.Fatalf("after the end of another: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := open(ctx, "late")
	cancel()
	if err := <-late; code(err) != string(fault.CodeServerBusy) || !strings.Contains(err.Error(), "files open") {
		t.Errorf("while all are in use = %v", err)
	}
	dave := open(t.Context(), "dave")
	leave()
	if err := <-dave; err != nil {
		t.Errorf("after another was left: %v", err)
	}
}

// The record of a session that made room may be deleted. A client that comes back then has a new session, in
// which the old handle is unknown.
func TestRestingSessionsCollected(t *testing.T) {
	b := newBench(t, benchOptions{})
	load := func(call Call) (*Session, string) {
		t.Helper()
		ses := b.session(call)
		loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		return ses, loaded.Handle
	}
	protocol := remote(alice, true, "p", "", "")
	byKey, _ := load(protocol)
	_, handle := load(remote(alice, true, "", "", ""))
	for range 2 * maxRemoteEach {
		b.session(remote(alice, true, "", "", ""))
	}
	b.table.recording.Wait()
	if _, err := b.records.Collect(t.Context(), provenance.CollectOptions{Total: 1}); err != nil {
		t.Fatal(err)
	}
	if again, _ := load(protocol); again.ID() == byKey.ID() {
		t.Error("a session whose record was deleted goes on")
	}
	read := remote(alice, false, "", "", handle)
	if _, err := b.Open(t.Context(), read); code(err) != string(policy.CodeActivationUnknown) {
		t.Errorf("the handle of a session whose record was deleted: %v", err)
	}
	if err := b.End(t.Context()); err != nil {
		t.Error(err)
	}
	for ses, err := range b.records.Sessions(t.Context(), time.Time{}) {
		if err == nil {
			_, err = b.records.Verify(t.Context(), ses.ID)
		}
		if err != nil {
			t.Errorf("%s: %v", ses.ID, err)
		}
	}
}
