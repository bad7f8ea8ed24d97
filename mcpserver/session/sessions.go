package session

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
)

// RemoteIdle is the time after which an unused session without a valid handle is ended. An unused session of
// the protocol ends after the same time.
const RemoteIdle = time.Hour

// key returns the key of the session of a call. It covers the profile and the parent: calls that are narrowed
// differently share no session.
func (c *Call) key(kind, id string) earlier.Key {
	return earlier.KeyOf(c.Principal.Name, c.Profile, c.Parent, kind, id)
}

// find finds or opens the session of a call, and keeps it open until ctx ends. If the handle is invalid for
// the call or has expired, find returns the session that records the refusal or restores the skills.
func (s *Sessions) find(ctx context.Context, call Call) (ses *Session, err error) {
	if call.Handle != "" && call.Named == "" {
		ses := s.table.enter(ctx, func() *Session { return s.table.byHandle(call, s.table.keyed) })
		if ses != nil {
			return ses, nil
		}
		if state := s.table.restingOf(call); state != nil {
			return s.enter(ctx, call, state, nil)
		}
	}
	if s.cfg.Peers != nil && call.keyed() {
		if ses, err := s.locate(ctx, call); ses != nil || err != nil {
			return ses, err
		}
	}
	if !call.keyed() {
		return s.table.begin(func() (*Session, error) { return s.newSession(call, "") })
	}
	state, named := call.keyedState()
	ses, err = s.enter(ctx, call, state, nil)
	if err != nil {
		return ses, err
	}
	if named && s.cfg.Peers != nil {
		return s.claim(ctx, call, ses)
	}
	return ses, nil
}

// keyedState returns the state of a session that would be opened for the call, and whether the client named
// the session: other servers may then know it.
func (c *Call) keyedState() (_ *keyedState, named bool) {
	kind, id := c.ownKey()
	named = kind == kindClient || kind == kindProtocol
	switch {
	case kind != "":
	case c.Handle == "" && c.Alone != "":
		kind, id = kindAlone, c.Alone
	case c.Opens && c.Handle == "":
		// Only the handle finds this session again: its key must be unique.
		kind, id = "handle", rand.Text()
	default:
		kind = kindShared
	}
	state := &keyedState{key: c.key(kind, id), guessed: kind == kindAlone}
	state.shared = state.guessed || kind == kindShared
	if kind == kindProtocol {
		state.protocol = id
	}
	return state, named
}

// namesProcess reports whether a call names the session of the process: by its id, or by the id that its
// client uses, which a resumed session has from its record.
func (s *Sessions) namesProcess(call *Call) bool {
	return !call.Remote && call.Profile == "" && call.Parent == "" && s.table.current().named(call.Named)
}

// named reports whether name is the session's id or its client's id of it. A nil session has no name.
func (s *Session) named(name string) bool {
	return s != nil && name != "" && (name == s.id || name == s.clientID)
}

// parentOf returns the id of the parent of a new session of a call, or "". The record of the parent has
// begun. The call names the parent by its id or by the client's name of it; the parent is open or recorded,
// and belongs to the same principal. On stdio, a narrowed call without a parent gets the session of the
// process.
//
// Errors: *Error if the parent is unknown.
func (s *Sessions) parentOf(ctx context.Context, call Call) (string, error) {
	name := call.Parent
	switch {
	case name == "" && !call.Remote && call.Profile != "":
		process, err := s.Open(ctx, Call{Principal: call.Principal, Client: call.Client,
			Protocol: call.Protocol, ClientSession: call.ClientSession})
		if err != nil {
			return "", err
		}
		return process.id, process.ensureStarted(ctx)
	case name == "":
		return "", nil
	}
	key := earlier.KeyOf(call.Principal.Name, "", "", kindClient, name)
	parent := s.table.enter(ctx, func() *Session { return s.table.byName(call.Principal.Name, name, key) })
	if parent != nil {
		return parent.id, parent.ensureStarted(ctx)
	}
	if s.earlier.IsOf(ctx, name, call.Principal.Name) {
		return name, nil
	}
	var id string
	var err error
	if s.cfg.Peers != nil {
		id, err = s.cfg.Peers.Find(ctx, key, true)
	} else {
		id = s.earlier.Named(ctx, s.shortened(name), call.Principal.Name)
	}
	if err != nil || id != "" {
		return id, err
	}
	return "", fault.ParentUnknown.Because(nil, "{name}", fault.Quote(name))
}

const (
	kindShared   = "shared"   // the session of all calls that only their principal connects
	kindAlone    = "alone"    // the session of the conversation that seems to be its principal's only one
	kindClient   = "client"   // a session that its client names
	kindProtocol = "protocol" // the session of a protocol session
)

// ownKey returns the kind and the id of the key that a call itself has; both are empty if it has no key.
func (c *Call) ownKey() (kind, id string) {
	switch {
	case c.name() != "":
		return kindClient, c.name()
	case c.ProtocolSession != "":
		return kindProtocol, c.ProtocolSession
	}
	return "", ""
}

// enter returns the session with the key of state, and keeps it open until ctx ends. If the session is not
// open, enter opens one with that state. A session that replaces an earlier one, p, has the parent of p; p is
// nil for other sessions.
func (s *Sessions) enter(
	ctx context.Context, call Call, state *keyedState, p *earlier.Session,
) (*Session, error) {
	key := state.key
	if ses := s.table.enterKey(ctx, key); ses != nil {
		return ses, nil
	}
	var parent string
	var err error
	switch {
	case p == nil:
		parent, err = s.parentOf(ctx, call)
	case p.Child:
		parent = p.Parent
	}
	if err != nil {
		return nil, err
	}
	place, err := s.table.acquirePlace(ctx, call.Principal.Name)
	if err != nil {
		return nil, err
	}
	return s.table.seat(ctx, call.Principal.Name, key, place, func() (*Session, error) {
		ses, err := s.newSession(call, parent)
		if err != nil {
			return ses, err
		}
		ses.keyed = state
		return ses, nil
	})
}

// isGuessed reports whether the server only guesses that the calls of a session belong together.
func (s *Session) isGuessed() bool { return s.keyed != nil && s.keyed.guessed }

// EndProtocolSession ends the session of a protocol session that has ended. It does not wait for the record.
func (s *Sessions) EndProtocolSession(id string) {
	s.table.endWhere(func(ses *Session) bool { return ses.keyed.protocol == id && id != "" })
}

// EndIdle ends the sessions of remote clients that have not been used for [RemoteIdle] and have no valid
// handle. It retries to record the ends that could not be recorded.
func (s *Sessions) EndIdle() {
	now := s.cfg.Now()
	s.table.endWhere(func(ses *Session) bool {
		if ses.keyed.busy > 0 || !ses.keyed.used.Before(now.Add(-RemoteIdle)) {
			return false
		}
		if ses.keyed.guessed {
			// The next call may belong to another conversation. The handles of this one stay valid.
			return true
		}
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return !slices.ContainsFunc(slices.Collect(maps.Values(ses.handles)), now.Before)
	})
}

// GiveUp ends a session for good, so that its record can be deleted: a client that returns gets a new
// session, and its handle is unknown. It reports whether the record may be deleted. It may not while a call
// is being served, while a question may be open, if the end cannot be recorded, or if it is the session of
// the process.
func (s *Sessions) GiveUp(ctx context.Context, id string) bool {
	ses, over := s.table.giveUp(id, AskLife)
	return over && (ses == nil || ses.end(ctx) == nil)
}

const (
	// maxRemote is the most sessions of remote clients that are open at once, maxRemoteEach the most of one
	// principal. For one more, the session that was unused longest rests.
	maxRemote     = 1024
	maxRemoteEach = earlier.MaxEach

	// maxResting is the most resting sessions, which are continued in their own records. Of one more, the
	// session that was unused longest is dropped; its handle then restores its skills in another session.
	maxResting = 4 * maxRemote

	// maxShared is the number of decisions after which a shared session is replaced: no record may grow
	// without bound.
	maxShared = 20_000
)

var (
	errTooMany = errors.New("too many sessions in use")
	errEnded   = errors.New("the session has ended")
)

// table owns the sessions of a server and the lock of their states. The session of a stdio process is open
// from its first call to the end of the server. A session with a key is in one of these states:
//
//	state   | is in   | place | its record          | next
//	open    | keyed   | yes   | is open             | resting, if its place is wanted; ending
//	resting | resting | no    | has an end          | open, by a call with its key (Session.reopen)
//	ending  | -       | yes   | its end is written  | ended, or unended if writing fails
//	unended | unended | yes   | has no end          | ending, by the next endWhere
//	ended   | -       | no    | has an end          | its handle restores its skills in another session
//
// A session is busy while its calls are being served; a busy session neither rests nor ends by itself. All
// methods are safe for concurrent use, apart from those that are called with mu held.
type table struct {
	most      int  // sessions with a key that may be open at once
	peers     bool // other servers continue the sessions, so none rests here
	logger    *slog.Logger
	now       func() time.Time
	recording sync.WaitGroup // goroutines that record the end of a session

	mu      sync.Mutex
	process *Session                 // of the stdio process; nil before its first call
	keyed   map[earlier.Key]*Session // open
	resting map[earlier.Key]*Session // at most maxResting
	unended []*Session
	ending  int          // sessions whose end is being recorded
	places  *admit.Quota // one for each session with a key that has files open
}

// newTable returns an empty table for at most most sessions with a key; 0 and more than maxRemote mean
// maxRemote.
func newTable(most int, peers bool, logger *slog.Logger, now func() time.Time) *table {
	if most <= 0 || most > maxRemote {
		most = maxRemote
	}
	return &table{most: most, peers: peers, logger: logger, now: now, places: admit.NewQuota(most, most),
		keyed: map[earlier.Key]*Session{}, resting: map[earlier.Key]*Session{}}
}

// keyedState is the state of a session with a key; guarded by table.mu.
type keyedState struct {
	key      earlier.Key
	shared   bool   // only the principal connects the calls of the session
	guessed  bool   // shared by the calls of a conversation that seems to be the principal's only one
	protocol string // id of the protocol session with which it ends
	used     time.Time
	busy     int            // calls that are being served
	places   []*admit.Claim // held until its end is recorded: one for each time it was opened
	deleted  bool           // its record was deleted
}

// current returns the session of the process, or nil before its first call.
func (t *table) current() *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.process
}

// setCurrent makes ses the session of the process.
func (t *table) setCurrent(ses *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.process = ses
}

// begin returns the session of the process. The first call opens it with open.
func (t *table) begin(open func() (*Session, error)) (*Session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process != nil {
		return t.process, nil
	}
	ses, err := open()
	if err != nil {
		return nil, err
	}
	t.process = ses
	return ses, nil
}

// ids returns the ids of the sessions that are open.
func (t *table) ids() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := map[string]bool{}
	for _, ses := range t.keyed {
		ids[ses.id] = true
	}
	if t.process != nil {
		ids[t.process.id] = true
	}
	return ids
}

// taken reports whether an open session has an id. Upper and lower case are equal. t.mu is held.
func (t *table) taken(id string) bool {
	// File systems may ignore the case of names.
	if t.process != nil && strings.EqualFold(t.process.id, id) {
		return true
	}
	for _, ses := range t.keyed {
		if strings.EqualFold(ses.id, id) {
			return true
		}
	}
	return false
}

// all returns the sessions that are open or resting.
func (t *table) all() []*Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*Session
	if t.process != nil {
		all = append(all, t.process)
	}
	all = slices.AppendSeq(all, maps.Values(t.keyed))
	return slices.AppendSeq(all, maps.Values(t.resting))
}

// enter returns the open session that find returns, or nil. The session stays open at least until ctx ends; a
// context that cannot end keeps no session open. find is called with t.mu held.
func (t *table) enter(ctx context.Context, find func() *Session) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	ses := find()
	if ses != nil {
		t.keepOpen(ctx, ses)
	}
	return ses
}

// enterKey is enter for the session of a key.
func (t *table) enterKey(ctx context.Context, key earlier.Key) *Session {
	return t.enter(ctx, func() *Session { return t.keyed[key] })
}

// placePatience is how long a call waits for a place.
const placePatience = 10 * time.Second

// acquirePlace acquires a place for one more session, which holds it until its end is recorded, since its
// files are open until then. If there is no free place, acquirePlace waits for one.
//
// Errors: *Error if no place became free.
func (t *table) acquirePlace(ctx context.Context, principal string) (*admit.Claim, error) {
	place := t.places.Wait(ctx, principal, 1, placePatience, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.makeRoom()
	})
	switch {
	case place != nil:
		return place, nil
	// The limit of open files bounds the places.
	case t.most < maxRemote:
		return nil, fault.FilesExhausted.Because(errTooMany)
	}
	return nil, fault.SessionsInUse.Because(errTooMany)
}

// seat puts a session into a place that was acquired, and keeps it open until ctx ends: the resting session
// of the key, else the session that open returns. If a session with the key is open already, seat frees the
// place and returns that session.
//
// Errors: *Error if the principal has its share of sessions, all of them busy; the errors of open.
func (t *table) seat(
	ctx context.Context, principal string, key earlier.Key, place *admit.Claim, open func() (*Session, error),
) (*Session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ses := t.keyed[key]; ses != nil {
		// Another call has opened the session meanwhile.
		place.Release()
		t.keepOpen(ctx, ses)
		return ses, nil
	}
	if !t.withinShare(principal) {
		place.Release()
		return nil, fault.SessionsInUse.Because(errTooMany)
	}
	ses := t.resting[key]
	if ses == nil {
		var err error
		ses, err = open()
		if err != nil {
			place.Release()
			return nil, err
		}
	}
	ses.keyed.places = append(ses.keyed.places, place)
	t.keyed[key] = ses
	delete(t.resting, key)
	t.keepOpen(ctx, ses)
	return ses, nil
}

// keepOpen keeps a session open until ctx ends. t.mu is held.
func (t *table) keepOpen(ctx context.Context, ses *Session) {
	if ses.keyed == nil {
		// The session of the process stays open.
		return
	}
	ses.keyed.busy++
	// AfterFunc would never call leave.
	if ctx.Done() == nil {
		t.leave(ses)
		return
	}
	ses.keyed.used = t.now()
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.leave(ses)
	})
}

// leave ends a call of a session. t.mu is held.
func (t *table) leave(ses *Session) {
	k := ses.keyed
	k.used = t.now()
	k.busy--
	if !k.shared || ses.decisions.Load() < maxShared {
		// Another call may be waiting for the place of this session, which no call uses now.
		t.makeRoom()
		return
	}
	// The session is full: the next call of its key opens another, and the last call of this one ends it.
	if t.keyed[k.key] == ses {
		delete(t.keyed, k.key)
	}
	if k.busy == 0 {
		t.finish(ses)
	}
}

// byHandle returns the session that gave out the call's handle, if the handle is valid for the call, else
// nil. It looks at the sessions of the call's principal in of, and at the session of the process. t.mu is
// held.
func (t *table) byHandle(call Call, of map[earlier.Key]*Session) *Session {
	// Hashed once for all sessions: a client may send a long text as a handle.
	sum := earlier.Sum(call.Handle)
	if t.process != nil && !call.keyed() && t.process.ownsSum(sum) {
		return t.process
	}
	for _, ses := range of {
		if ses.principal.Name == call.Principal.Name && call.admits(ses.profile, ses.parentName) &&
			ses.ownsSum(sum) {
			return ses
		}
	}
	return nil
}

// byName returns the open session of a principal with a name: its id, the name that the client of the process
// gave, or the name of a client's session, whose key is key. t.mu is held.
func (t *table) byName(principal, name string, key earlier.Key) *Session {
	if t.process.named(name) && t.process.principal.Name == principal {
		return t.process
	}
	for _, ses := range t.keyed {
		if ses.id == name && ses.principal.Name == principal {
			return ses
		}
	}
	return t.keyed[key]
}

// restingOf returns the state of the resting session that gave out the call's handle, or nil.
func (t *table) restingOf(call Call) *keyedState {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ses := t.byHandle(call, t.resting); ses != nil {
		return ses.keyed
	}
	return nil
}

// state reports whether a session with a key is open, and whether its record was deleted.
func (t *table) state(ses *Session) (open, deleted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keyed[ses.keyed.key] == ses, ses.keyed.deleted
}

// forget ends a session whose record was deleted.
func (t *table) forget(ses *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ses.keyed.deleted = true
	t.dropOpen(ses)
}

// lose ends a session that another server continues, if it is still open here.
func (t *table) lose(ses *Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ses.keyed != nil {
		t.dropOpen(ses)
	}
}

// dropOpen drops a session if it is still the open one of its key. t.mu is held.
func (t *table) dropOpen(ses *Session) {
	if t.keyed[ses.keyed.key] == ses {
		t.drop(ses)
	}
}

// rest ends a session to free its place. The next call with its key continues its record, unless the session
// is shared. t.mu is held.
func (t *table) rest(ses *Session) {
	t.drop(ses)
	if ses.keyed.shared || t.peers {
		return
	}
	if len(t.resting) >= maxResting {
		longest := slices.MinFunc(slices.Collect(maps.Values(t.resting)), func(x, y *Session) int {
			return x.keyed.used.Compare(y.keyed.used)
		})
		delete(t.resting, longest.keyed.key)
	}
	t.resting[ses.keyed.key] = ses
}

// makeRoom makes an unused session rest if more calls wait for a place than sessions are ending. It chooses a
// session of the principal with the most sessions, which has at least as many as a waiting principal. t.mu is
// held.
func (t *table) makeRoom() {
	each, least := t.places.Wanted(t.held, t.ending)
	if least == 0 {
		return
	}
	// A principal that opens many sessions must not end a session of another.
	if ses := t.unused(each, least); ses != nil {
		t.rest(ses)
	}
}

// held returns the number of open sessions by principal. t.mu is held.
func (t *table) held() map[string]int {
	each := map[string]int{}
	for _, ses := range t.keyed {
		each[ses.principal.Name]++
	}
	return each
}

// withinShare makes a session of a principal rest if one more would exceed the principal's share. It returns
// false if that is necessary and all sessions of the principal are busy. t.mu is held.
func (t *table) withinShare(principal string) bool {
	n := t.held()[principal]
	// The limit of open files can leave few places, and one principal must not take more than half of them.
	if n < min(maxRemoteEach, max(1, t.most/2)) {
		return true
	}
	ses := t.unused(map[string]int{principal: n}, 1)
	if ses == nil {
		return false
	}
	t.rest(ses)
	return true
}

// unused returns the session that was unused longest, of the principal with the most sessions in each. It
// returns nil if no principal with an unused session has at least least. t.mu is held.
func (t *table) unused(each map[string]int, least int) (oldest *Session) {
	for _, ses := range t.keyed {
		n := each[ses.principal.Name]
		if ses.keyed.busy > 0 || n < least {
			continue
		}
		if oldest == nil || n > each[oldest.principal.Name] ||
			n == each[oldest.principal.Name] && ses.keyed.used.Before(oldest.keyed.used) {
			oldest = ses
		}
	}
	return oldest
}

// drop removes an open session from the table, and records its end in the background. t.mu is held.
func (t *table) drop(ses *Session) {
	delete(t.keyed, ses.keyed.key)
	t.finish(ses)
}

// finish records the end of a session in the background, and frees its place. If the end cannot be recorded,
// the session keeps its place until endWhere tries again. t.mu is held.
func (t *table) finish(ses *Session) {
	// A call with one of its handles may come before the end is recorded.
	ses.remember()
	t.ending++
	t.recording.Go(func() {
		err := ses.end(context.Background())
		// This is repeated, because calls that were being served may have loaded more skills.
		ses.remember()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ending--
		if err != nil {
			t.logger.Error("end of a session not recorded", slog.String("session", ses.id), tint.Err(err))
			t.unended = append(t.unended, ses)
			return
		}
		// If a call has reopened the session meanwhile, the other place is for that.
		if n := len(ses.keyed.places); n > 0 {
			ses.keyed.places[n-1].Release()
			ses.keyed.places = ses.keyed.places[:n-1]
		}
	})
}

// endWhere ends the sessions with a key for which over returns true; resting ones among them are not
// continued any more. It retries to record the ends that could not be recorded.
func (t *table) endWhere(over func(*Session) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	unended := t.unended
	t.unended = nil
	for _, ses := range unended {
		// If this is not so, a call has reopened the session.
		if t.keyed[ses.keyed.key] != ses {
			t.finish(ses)
		}
	}
	for _, ses := range t.keyed {
		if over(ses) {
			t.drop(ses)
		}
	}
	maps.DeleteFunc(t.resting, func(_ earlier.Key, ses *Session) bool { return over(ses) })
}

// giveUp ends the session with an id for good, unless a call used it within the last quiet. It returns the
// session, or nil if no session with a key has the id, and reports whether no session with the id is left.
func (t *table) giveUp(id string, quiet time.Duration) (found *Session, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range []map[earlier.Key]*Session{t.keyed, t.resting} {
		for key, ses := range of {
			if ses.id != id {
				continue
			}
			if ses.keyed.busy > 0 || t.now().Before(ses.keyed.used.Add(quiet)) {
				return ses, false
			}
			if t.keyed[key] == ses {
				t.drop(ses)
			} else {
				delete(t.resting, key)
			}
			return ses, true
		}
	}
	return nil, t.process == nil || t.process.id != id
}
