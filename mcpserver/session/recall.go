package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

const (
	// maxEarlier is how many earlier sessions of one principal are looked through for activations, the
	// newest first: as many as are open at once.
	maxEarlier = maxRemoteEach

	// scanEvery is the shortest time between two scans of the records: guessed handles must cost little.
	scanEvery = 2 * time.Second

	// maxKnown bounds the index of earlier sessions. If there are more, any of them is forgotten.
	maxKnown = 100_000
)

// earlierSession is a session whose activations can be restored: one that another process recorded, or one
// that this process has ended.
type earlierSession struct {
	id          string
	profile     string                 // what the session was narrowed to
	parent      string                 // id of the session it belonged to, if it was a child, or continued
	child       bool                   // it belonged to parent
	parentName  string                 // the parent as the client named it
	mode        policy.Mode            // the strictest it was in, by its record
	activations []cfharness.Activation // not in the index
	at          time.Time              // of the last of them

	keys   map[sessionKey]bool // of its handles and of its client
	until  time.Time           // when the last of its handles expires
	raised *raisedMode         // nil for a session of another process
}

// earlierSessions is an index of earlier sessions by what a client can show of them. It is safe for
// concurrent use.
type earlierSessions struct {
	scanning sync.Mutex // held while the records are looked through
	mu       sync.Mutex // taken last, and held only for a look
	scanned  time.Time  // when the records were looked through last; zero: never
	known    map[string]*earlierSession
}

// add makes a session known, if it has a handle that is still good.
func (e *earlierSessions) add(p *earlierSession, now time.Time) {
	if !now.Before(p.until) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if was := e.known[p.id]; was != nil {
		p.raised = cmp.Or(p.raised, was.raised)
	} else if len(e.known) >= maxKnown {
		for other := range e.known {
			delete(e.known, other)
			break
		}
	}
	if e.known == nil {
		e.known = map[string]*earlierSession{}
	}
	e.known[p.id] = p
}

// earlierBy returns the latest session that a key finds, as its record is now, or nil. It is as strict as the
// strictest that the key finds.
func (s *Sessions) earlierBy(ctx context.Context, key sessionKey) (latest *earlierSession) {
	// A canceled call must not leave out a session whose mode is stricter.
	ctx = context.WithoutCancel(ctx)
	s.scan(ctx)
	e := &s.earlier
	var found []*earlierSession
	e.mu.Lock()
	for _, p := range e.known {
		if p.keys[key] {
			found = append(found, p)
		}
	}
	e.mu.Unlock()
	for _, known := range found {
		// Its record may have grown since the index was made.
		p := s.recall(ctx, known.id)
		if p == nil || !p.keys[key] {
			continue
		}
		if known.raised != nil {
			p.mode = p.mode.Stricter(known.raised.raise(0))
		}
		latest = latestOf(latest, p)
	}
	return latest
}

// scan adds the sessions to the index that were recorded since the last scan, or within the life of a handle.
func (s *Sessions) scan(ctx context.Context) {
	e, now := &s.earlier, s.cfg.Now()
	e.scanning.Lock()
	defer e.scanning.Unlock()
	e.mu.Lock()
	last := e.scanned
	due := last.IsZero() || now.Sub(last) >= scanEvery
	if due {
		e.scanned = now
		maps.DeleteFunc(e.known, func(_ string, p *earlierSession) bool { return !now.Before(p.until) })
	}
	e.mu.Unlock()
	if !due {
		return
	}
	since := now.Add(-HandleLife)
	if !last.IsZero() {
		since = last.Add(-scanEvery) // the times of files are less exact than clocks
	}
	each := map[string]int{}
	for found, err := range s.cfg.Records.Sessions(ctx, since) {
		if err == nil && found.Counts.Activations == 0 {
			continue
		}
		if each[found.Principal]++; each[found.Principal] > maxEarlier {
			continue
		}
		if err != nil {
			// A session that a call is opening has no record yet.
			if !errors.Is(err, provenance.ErrNotFound) {
				s.cfg.Logger.WarnContext(ctx, "earlier session cannot be read",
					slog.String("session", found.ID), tint.Err(err))
			}
			continue
		}
		if p := s.recall(ctx, found.ID); p != nil {
			p.activations = nil
			e.add(p, now)
		}
	}
}

// recall reads from the record of a session what can be restored of it, or returns nil.
func (s *Sessions) recall(ctx context.Context, id string) *earlierSession {
	found, err := cfharness.Recall(ctx, s.cfg.Records, id)
	if err != nil {
		if !errors.Is(err, provenance.ErrNotFound) {
			s.cfg.Logger.WarnContext(ctx, "earlier session cannot be read", slog.String("session", id),
				tint.Err(err))
		}
		return nil
	}
	p := &earlierSession{id: id, profile: found.Profile, mode: strictest(found.Modes),
		parent: found.Parent, child: found.Child, parentName: found.ParentSession,
		keys: map[sessionKey]bool{}}
	for _, row := range found.Activations {
		sum, ok := sumOf(row, s.cfg.Now())
		if !ok {
			continue
		}
		p.keys[handleKey(found.Principal, sum)] = true
		p.activations = append(p.activations, row)
		p.at = later(p.at, row.ActivatedAt.Time)
		p.until = later(p.until, row.Skillsd.ExpiresAt.Time)
	}
	if found.ClientSession != "" {
		p.keys[clientKey(found.Principal, found.Profile, p.parentName, found.ClientSession)] = true
	}
	return p
}

// remember makes a session known that is about to end.
func (s *Session) remember() {
	p := &earlierSession{id: s.id, keys: map[sessionKey]bool{}, raised: s.raised}
	if s.clientID != "" {
		p.keys[clientKey(s.principal.Name, s.profile, s.parentName, s.clientID)] = true
	}
	s.mu.Lock()
	for sum, until := range s.secrets {
		p.keys[handleKey(s.principal.Name, sum)] = true
		p.until = later(p.until, until)
	}
	s.mu.Unlock()
	s.earlier.add(p, s.cfg.Now())
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// handleKey returns the key of the sessions that gave a handle to a principal.
func handleKey(principal string, sum handleSum) sessionKey {
	return keyOf(Call{Principal: policy.Principal{Name: principal}}, "handle", string(sum[:]))
}

// clientKey returns the key of the session that a client of a principal names, narrowed to a profile and a
// child of the parent that the client names.
func clientKey(principal, profile, parentName, clientSession string) sessionKey {
	return keyOf(Call{Principal: policy.Principal{Name: principal}, Profile: profile, Parent: parentName},
		kindClient, clientSession)
}

// recordedFor reports whether a session of that id was recorded for a principal.
func (s *Sessions) recordedFor(ctx context.Context, id, principal string) bool {
	if !provenance.ValidSessionID(id) {
		return false
	}
	file, err := s.cfg.Records.Stored(ctx, id, provenance.SessionFile)
	if err != nil {
		return false
	}
	defer file.Close()
	var found provenance.Session
	err = json.NewDecoder(io.LimitReader(file, maxArtifact)).Decode(&found)
	return err == nil && found.ID == id && found.Principal == principal
}

// recordedAs returns the id of the session that a client of a principal named, neither narrowed nor a child,
// or "": the one written last, among as many as are looked through for activations. One without any counts.
func (s *Sessions) recordedAs(ctx context.Context, name, principal string) string {
	name = s.shortened(name)
	seen := 0
	for found, err := range s.cfg.Records.Sessions(ctx, s.cfg.Now().Add(-HandleLife)) {
		if err != nil || found.Principal != principal {
			continue
		}
		if seen++; seen > maxEarlier {
			break
		}
		for e, err := range s.cfg.Records.Events(ctx, provenance.Query{Session: found.ID}) {
			if err != nil {
				break
			}
			info, err := e.SessionInfo()
			if err == nil && info != nil && info.ClientSession == name && info.Profile == "" && !info.Child {
				return found.ID
			}
			break // only the first event says it
		}
	}
	return ""
}

// latestOf returns the later of two sessions, as strict as the stricter; before may be nil.
func latestOf(before, p *earlierSession) *earlierSession {
	if before == nil {
		return p
	}
	if before.at.After(p.at) {
		before, p = p, before
	}
	p.mode = p.mode.Stricter(before.mode)
	return p
}

// raisedMode is the strictest mode that clients have raised a session to, also by calls that are not recorded
// yet. It outlives its session.
type raisedMode struct {
	mu   sync.Mutex // taken last of all
	mode policy.Mode
}

// raise makes the mode at least as strict as another, and returns it.
func (r *raisedMode) raise(mode policy.Mode) policy.Mode {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode = r.mode.Stricter(mode)
	return r.mode
}

// strictest returns the strictest of some modes, by their names.
func strictest(names []string) (mode policy.Mode) {
	for _, name := range names {
		if parsed, err := policy.ParseMode(name); err == nil {
			mode = mode.Stricter(parsed)
		}
	}
	return mode
}

// sumOf returns the hash of the handle of an activation that is still good.
func sumOf(row cfharness.Activation, now time.Time) (sum handleSum, ok bool) {
	x := row.Skillsd
	if x == nil || x.ExpiresAt == nil || !now.Before(x.ExpiresAt.Time) || x.HandleDigest.Validate() != nil ||
		x.HandleDigest.Algorithm() != digest.SHA256 {
		return sum, false
	}
	raw, err := hex.DecodeString(x.HandleDigest.Encoded())
	return handleSum(raw), err == nil
}

// restoreHandle restores in a session what was active under the handle of a call, if the session that gave
// out the handle has ended and its handle counts for the call. It returns the session, or nil if it did not
// restore the handle. A session that other calls share, or that has another profile or parent, is replaced by
// one that only the handle finds: a caller without the handle must gain nothing from it.
func (s *Sessions) restoreHandle(ctx context.Context, ses *Session, call Call) *Session {
	sum := handleSum(sha256.Sum256([]byte(call.Handle)))
	p := s.earlierBy(ctx, handleKey(call.Principal.Name, sum))
	switch {
	case p == nil, !call.admits(p.profile, p.parentName):
		return nil
	case call.Named != "" &&
		!p.keys[clientKey(call.Principal.Name, call.Profile, policy.Clip(call.Parent), policy.Clip(call.Named))]:
		return nil
	case ses.keyed != nil && ses.keyed.shared, ses.profile != p.profile, ses.parentName != p.parentName:
		var err error
		call.Profile, call.Parent = p.profile, p.parentName
		if ses, err = s.enter(ctx, call, "restored", p.id, p); err != nil {
			return nil
		}
	}
	ses.restore(ctx, p)
	if !ses.ownsSum(sum) {
		return nil
	}
	return ses
}

// resumeClient restores in a session, before its first call is served, what was active when the client's own
// session of that id was last served. A child session inherits nothing, neither from its parent nor from
// another child of it.
func (s *Session) resumeClient(ctx context.Context, call Call) {
	s.first.Do(func() {
		if call.name() == "" || call.Parent != "" {
			return
		}
		key := clientKey(call.Principal.Name, call.Profile, "", policy.Clip(call.name()))
		if p := s.earlierBy(ctx, key); p != nil {
			s.restore(ctx, p)
		}
	})
}

// restore makes active again what was active in an earlier session and has not expired, if the files are
// the same. It is recorded in this session, whose parent is the other one.
func (s *Session) restore(ctx context.Context, p *earlierSession) {
	// No later call restores the session again, so a canceled call must not leave a part of it out.
	ctx = context.WithoutCancel(ctx)
	s.closing.RLock()
	defer s.closing.RUnlock()
	s.sequence.Lock()
	defer s.sequence.Unlock()
	if s.restored[p.id] || p.id == s.id {
		return
	}
	s.restored[p.id] = true
	// The mode first: nothing that is restored may be used in a more permissive one.
	s.raise(p.mode)
	if !s.began && s.parent == "" {
		s.parent = p.id
	}
	for _, row := range p.activations {
		if err := s.restoreActivation(ctx, p.id, row); err != nil {
			s.cfg.Logger.WarnContext(ctx, "activation not restored", slog.String("session", p.id),
				slog.String("skill", row.Skillsd.Path), tint.Err(err))
		}
	}
}

// restoreActivation is restore for one activation. s.sequence is held.
func (s *Session) restoreActivation(ctx context.Context, from string, row cfharness.Activation) error {
	sum, ok := sumOf(row, s.cfg.Now())
	if !ok {
		return nil
	}
	if s.ended.Load() {
		return recordError(errEnded)
	}
	sk, index, err := s.served(ctx, row)
	if err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return recordError(err)
	}
	x := *row.Skillsd
	e := &provenance.Event{
		Kind: provenance.KindDriftDetected, Skill: x.Path, Want: x.TreeDigest.String(),
		Detail: "not restored from " + from + ": the skill is not the one that was loaded",
	}
	if sk != nil {
		e.Got = index.TreeDigest.String()
	}
	same := sk != nil && index.TreeDigest == x.TreeDigest
	if same {
		x.TaskID = ""
		row.RunID, row.ActivatedAt, row.Skillsd = s.id, provenance.Stamp(s.cfg.Now()), &x
		e = &provenance.Event{
			Kind: provenance.KindSkillActivated, Skill: x.Path, Path: sk.File, Got: e.Got,
			Detail: string(row.Source) + ", restored from " + from, Row: encode(row),
		}
	}
	// The record comes first: nothing is active that no event explains.
	if err := s.write(ctx, e); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The handle stays good without its skill too, so that the answer is that the skill is not loaded.
	s.secrets[sum] = x.ExpiresAt.Time
	if same {
		s.active[x.Path] = &activation{skill: sk, index: index}
	}
	return nil
}

// served returns the skill of a recorded activation as it is now, nil if it is gone, and its index.
//
// Errors: the errors of reading the skill.
func (s *Session) served(
	ctx context.Context, row cfharness.Activation,
) (*skills.Skill, *skills.Index, error) {
	sk := s.Visible(s.principal, s.profile).Skill(row.Skillsd.Path)
	if sk == nil {
		return nil, nil, nil
	}
	index, err := sk.Index(ctx)
	return sk, index, err
}
