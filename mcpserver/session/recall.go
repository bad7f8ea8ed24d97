package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"slices"
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

	// maxChanged bounds the sessions that are noted until the next handle is looked for.
	maxChanged = 1_000
)

// earlierSession is a session whose activations can be restored: one of an earlier process of the server,
// or one that this process has ended.
type earlierSession struct {
	id          string
	principal   string
	profile     string      // what the session was narrowed to
	mode        policy.Mode // the strictest it was in
	activations []cfharness.Activation
	at          time.Time // of the last of them
	live        *Session  // of this process, while its end is being recorded
	open        bool      // the record was, or could be, continued after it was read
}

// strictness returns the strictest mode the session was in, also by calls that are not recorded yet.
func (p *earlierSession) strictness() policy.Mode {
	if p.live == nil {
		return p.mode
	}
	return p.mode.Stricter(p.live.strictest())
}

// expired reports whether no handle of the session is good any more.
func (p *earlierSession) expired(now time.Time) bool {
	return !slices.ContainsFunc(p.activations, func(row cfharness.Activation) bool {
		_, good := sumOf(row, now)
		return good
	})
}

// earlierSessions finds earlier sessions by what a client can show of them. It is safe for concurrent use.
type earlierSessions struct {
	mu       sync.Mutex
	scanned  time.Time // when the records were looked through last; zero: never
	byHandle map[handleSum]*earlierSession
	byClient map[sessionKey]*earlierSession // the latest of each

	noting  sync.Mutex        // taken last of all; mu is held while records are read
	changed map[string]change // sessions of this process that are not read as they are now, by id
	missed  bool              // there were too many of them
}

// change is the state of a session that has ended, or is ending, which its record does not hold yet.
type change struct {
	live *Session // nil once it has ended
	mode policy.Mode
}

// note makes the next search read the record of a session that ends, or has ended.
func (e *earlierSessions) note(ses *Session, over bool) {
	c := change{live: ses, mode: ses.strictest()}
	if over {
		c.live = nil
	}
	e.noting.Lock()
	defer e.noting.Unlock()
	if e.missed = e.missed || len(e.changed) >= maxChanged; e.missed {
		e.changed = nil
		return
	}
	if e.changed == nil {
		e.changed = map[string]change{}
	}
	e.changed[ses.id] = c
}

// find looks for an earlier session in the records as they are now: the records of other processes are
// scanned again after scanEvery, and what was read while its session was open is read again.
func (e *earlierSessions) find(
	ctx context.Context, s *Sessions, lookup func(*earlierSessions) *earlierSession,
) *earlierSession {
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	e.noting.Lock()
	changed, missed := e.changed, e.missed
	e.changed, e.missed = nil, false
	e.noting.Unlock()
	if missed {
		e.scanned = time.Time{}
	}
	now := s.cfg.Now()
	if e.scanned.IsZero() || now.Sub(e.scanned) >= scanEvery {
		e.scan(ctx, s, now)
	}
	for id, c := range changed {
		e.read(ctx, s, id, c, c.live != nil, now)
	}
	p := lookup(e)
	if p != nil && p.open {
		if !e.read(ctx, s, p.id, change{live: p.live, mode: p.mode}, true, now) {
			return nil
		}
		p = lookup(e)
	}
	if p == nil {
		return nil
	}
	// A copy: the caller does not hold the lock.
	found := *p
	return &found
}

// scan reads the records of sessions that were written since the last scan, or within the life of a handle.
func (e *earlierSessions) scan(ctx context.Context, s *Sessions, now time.Time) {
	// The times of files are less exact than clocks.
	since := e.scanned.Add(-scanEvery)
	if e.scanned.IsZero() {
		since = now.Add(-HandleLife)
		e.byHandle, e.byClient = map[handleSum]*earlierSession{}, map[sessionKey]*earlierSession{}
	}
	e.scanned = now
	maps.DeleteFunc(e.byHandle, func(_ handleSum, p *earlierSession) bool { return p.expired(now) })
	maps.DeleteFunc(e.byClient, func(_ sessionKey, p *earlierSession) bool { return p.expired(now) })
	each := map[string]int{}
	for found, err := range s.cfg.Records.Sessions(ctx, since) {
		if err == nil && found.Counts.Activations == 0 {
			continue
		}
		if each[found.Principal]++; each[found.Principal] > maxEarlier {
			continue
		}
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "earlier session cannot be read", slog.String("session", found.ID),
				tint.Err(err))
			continue
		}
		e.read(ctx, s, found.ID, change{}, found.State == provenance.StateOpen, now)
	}
}

// read adds a session by its handles that are still good and by its client, and reports whether it could be
// read.
func (e *earlierSessions) read(
	ctx context.Context, s *Sessions, id string, c change, open bool, now time.Time,
) bool {
	found, err := cfharness.Recall(ctx, s.cfg.Records, id)
	if err != nil {
		if !errors.Is(err, provenance.ErrNotFound) {
			s.cfg.Logger.WarnContext(ctx, "earlier session cannot be read", slog.String("session", id),
				tint.Err(err))
		}
		return false
	}
	p := &earlierSession{
		id: id, principal: found.Principal, profile: found.Profile,
		mode: strictest(found.Modes).Stricter(c.mode), live: c.live, open: open,
	}
	var handles []handleSum
	for _, row := range found.Activations {
		if sum, ok := sumOf(row, now); ok {
			handles = append(handles, sum)
			p.activations = append(p.activations, row)
			if row.ActivatedAt.After(p.at) {
				p.at = row.ActivatedAt.Time
			}
		}
	}
	for _, sum := range handles {
		e.byHandle[sum] = latestOf(e.byHandle[sum], p)
	}
	if found.ClientSession != "" && len(handles) > 0 {
		key := clientKey(found.Principal, found.Profile, found.ClientSession)
		e.byClient[key] = latestOf(e.byClient[key], p)
	}
	return true
}

// clientKey returns the key of the session that a client of a principal names, narrowed to a profile.
func clientKey(principal, profile, clientSession string) sessionKey {
	call := Call{Principal: policy.Principal{Name: principal}, Profile: profile}
	return keyOf(call, "client", clientSession)
}

// latestOf returns which of two sessions with the same handle or client to restore: the later, or of one
// session what was read later. Both become as strict as the stricter.
func latestOf(before, p *earlierSession) *earlierSession {
	if before == nil || before == p {
		return p
	}
	mode := before.mode.Stricter(p.mode)
	before.mode, p.mode = mode, mode
	if before.id != p.id && before.at.After(p.at) {
		return before
	}
	if before.id == p.id && p.open && p.live == nil {
		p.live = before.live
	}
	return p
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
// out the handle has ended and belonged to the call's principal. It returns the session, or nil if it did not
// restore the handle. A session that other calls share, or that has another profile, is replaced by one that
// only the handle finds: a caller without the handle must gain nothing from it.
func (s *Sessions) restoreHandle(ctx context.Context, ses *Session, call Call) *Session {
	sum := handleSum(sha256.Sum256([]byte(call.Handle)))
	p := s.earlier.find(ctx, s, func(e *earlierSessions) *earlierSession { return e.byHandle[sum] })
	if p == nil || p.principal != call.Principal.Name {
		return nil
	}
	if ses.keyed != nil && ses.keyed.shared || ses.profile != p.profile {
		var err error
		call.Profile = p.profile
		if ses, err = s.enter(ctx, call, "restored", p.id); err != nil {
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
		if call.ClientSession == "" || call.Parent != "" {
			return
		}
		key := clientKey(call.Principal.Name, call.Profile, call.ClientSession)
		p := s.earlier.find(ctx, s.Sessions,
			func(e *earlierSessions) *earlierSession { return e.byClient[key] })
		if p != nil {
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
	s.raise(p.strictness())
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
	if err := s.startLocked(ctx); err != nil {
		return recordError(err)
	}
	x, got := *row.Skillsd, ""
	if sk != nil {
		got = index.TreeDigest.String()
	}
	same := sk != nil && index.TreeDigest == x.TreeDigest
	e := &provenance.Event{
		Kind: provenance.KindDriftDetected, Skill: x.Path, Want: x.TreeDigest.String(), Got: got,
		Detail: "not restored from " + from + ": the skill is not the one that was loaded",
	}
	if same {
		x.TaskID = ""
		row.RunID, row.ActivatedAt, row.Skillsd = s.id, provenance.Stamp(s.cfg.Now()), &x
		e = &provenance.Event{
			Kind: provenance.KindSkillActivated, Skill: x.Path, Path: sk.File, Got: got,
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
		s.active[x.Path] = &activation{skill: sk, index: index, at: s.cfg.Now()}
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
	if err != nil {
		return nil, nil, err
	}
	return sk, index, nil
}
