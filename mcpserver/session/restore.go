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
	"github.com/skillsd/skillsd/skills/policy"
)

const (
	// maxPast is how many past sessions of one principal are looked through for activations, the newest
	// first: as many as are open at once.
	maxPast = maxRemoteEach

	// pastEvery is how often the records are looked through again: handles that nobody gave out must
	// cost little.
	pastEvery = 2 * time.Second
)

// past is a session whose activations can be gone on with: one of an earlier process of the server, or
// one that this process has ended.
type past struct {
	id          string
	principal   string
	profile     string      // what the session was narrowed to
	mode        policy.Mode // the strictest it was in
	activations []cfharness.Activation
	at          time.Time // of the last of them
	live        *Session  // of this process, while its end is being recorded
	open        bool      // the record went on, or could, when it was read
}

// strictness is the strictest mode the session was in, also in calls whose record is still to come.
func (p *past) strictness() policy.Mode {
	if p.live == nil {
		return p.mode
	}
	return p.mode.Stricter(policy.Mode(p.live.raised.Load()))
}

// expired reports whether no handle of the session is good any more.
func (p *past) expired(now time.Time) bool {
	return !slices.ContainsFunc(p.activations, func(row cfharness.Activation) bool {
		_, good := sumOf(row, now)
		return good
	})
}

// earlier finds past sessions by what a client can show of them. It is safe for concurrent use.
type earlier struct {
	mu       sync.Mutex
	looked   time.Time // when the records were looked through last; zero: never
	byHandle map[handleSum]*past
	byClient map[sessionKey]*past // the latest of each

	noting  sync.Mutex
	changed map[string]change // sessions of this process that are not read as they are now, by id
	missed  bool              // there were too many of them
}

// change is what is known of such a session beside its record.
type change struct {
	live *Session // nil once it has ended
	mode policy.Mode
}

// maxChanged bounds the sessions that are noted until the next handle is looked for.
const maxChanged = 1_000

// note has the record of a session that ends, or has ended, read before the next handle is looked for.
func (e *earlier) note(ses *Session, over bool) {
	e.noting.Lock()
	defer e.noting.Unlock()
	if e.missed = e.missed || len(e.changed) >= maxChanged; e.missed {
		e.changed = nil
		return
	}
	if e.changed == nil {
		e.changed = map[string]change{}
	}
	c := change{live: ses, mode: policy.Mode(ses.raised.Load())}
	if over {
		c.live = nil
	}
	e.changed[ses.id] = c
}

// restoreHandle gives a session back what was active under the handle of a call whose session has
// ended, and returns it; nil when there was no such handle of the principal's. What is active under a
// handle is so for those alone who show it, and narrowed as it was, so a session that other calls share,
// or that is narrowed otherwise, gives way to one that the handle finds.
func (s *Sessions) restoreHandle(ctx context.Context, ses *Session, call Call) *Session {
	p := s.earlier.find(ctx, s, func(e *earlier) *past { return e.byHandle[sha256.Sum256([]byte(call.Handle))] })
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
	if !ses.owns(call.Handle) {
		return nil
	}
	return ses
}

// goOn gives a session back, before its first call is served, what was active when the client's own
// session of that name was last served. A child session inherits nothing, from another one of its
// parent's either.
func (s *Session) goOn(ctx context.Context, call Call) {
	s.first.Do(func() {
		if call.ClientSession == "" || call.Parent != "" {
			return
		}
		key := keyOf(Call{Principal: call.Principal, Profile: call.Profile}, "client", call.ClientSession)
		if p := s.earlier.find(ctx, s.Sessions, func(e *earlier) *past { return e.byClient[key] }); p != nil {
			s.restore(ctx, p)
		}
	})
}

// find looks for a past session in what the records say now: those of other processes are looked
// through again when that was not done for pastEvery. What was read while its session was open does not
// count.
func (e *earlier) find(ctx context.Context, s *Sessions, lookup func(*earlier) *past) *past {
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	e.noting.Lock()
	changed, missed := e.changed, e.missed
	e.changed, e.missed = nil, false
	e.noting.Unlock()
	if missed {
		e.looked = time.Time{}
	}
	now := s.cfg.Now()
	if e.looked.IsZero() || now.Sub(e.looked) >= pastEvery {
		e.look(ctx, s, now)
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
	// The caller does not hold the lock.
	found := *p
	return &found
}

// read adds a session and reports whether it could be read.
func (e *earlier) read(ctx context.Context, s *Sessions, id string, c change, open bool, now time.Time) bool {
	err := e.add(ctx, s, id, c, open, now)
	if err != nil && !errors.Is(err, provenance.ErrNotFound) {
		s.cfg.Logger.WarnContext(ctx, "earlier session cannot be read", slog.String("session", id), tint.Err(err))
	}
	return err == nil
}

// look reads the records of sessions that ended since it last did so, and no longer ago than a handle
// lives.
func (e *earlier) look(ctx context.Context, s *Sessions, now time.Time) {
	// File systems tell the time less exactly than clocks do.
	since := e.looked.Add(-pastEvery)
	if e.looked.IsZero() {
		since = now.Add(-HandleLife)
		e.byHandle, e.byClient = map[handleSum]*past{}, map[sessionKey]*past{}
	}
	e.looked = now
	maps.DeleteFunc(e.byHandle, func(_ handleSum, p *past) bool { return p.expired(now) })
	maps.DeleteFunc(e.byClient, func(_ sessionKey, p *past) bool { return p.expired(now) })
	each := map[string]int{}
	for found, err := range s.cfg.Records.Sessions(ctx, since) {
		if err == nil && found.Counts.Activations == 0 {
			continue
		}
		if each[found.Principal]++; each[found.Principal] > maxPast {
			continue
		}
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "earlier session cannot be read", slog.String("session", found.ID), tint.Err(err))
			continue
		}
		e.read(ctx, s, found.ID, change{}, found.State == provenance.StateOpen, now)
	}
}

// add notes a session whose handles are good, so that what shows one of them finds it.
func (e *earlier) add(ctx context.Context, s *Sessions, id string, c change, open bool, now time.Time) error {
	found, err := cfharness.Recall(ctx, s.cfg.Records, id)
	if err != nil {
		return err
	}
	p := &past{id: id, principal: found.Principal, profile: found.Profile, mode: strictest(found.Modes).Stricter(c.mode), live: c.live, open: open}
	for _, row := range found.Activations {
		if _, ok := sumOf(row, now); ok {
			p.activations = append(p.activations, row)
			if row.ActivatedAt.After(p.at) {
				p.at = row.ActivatedAt.Time
			}
		}
	}
	for _, row := range p.activations {
		sum, _ := sumOf(row, now)
		e.byHandle[sum] = latestOf(e.byHandle[sum], p)
	}
	if found.ClientSession == "" || len(p.activations) == 0 {
		return nil
	}
	var of Call
	of.Principal.Name, of.Profile = found.Principal, found.Profile
	key := keyOf(of, "client", found.ClientSession)
	e.byClient[key] = latestOf(e.byClient[key], p)
	return nil
}

// latestOf is the one to go on with of two sessions that the same thing finds: the later, or what was
// read later of one. It is as strict as the other was.
func latestOf(before, p *past) *past {
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

// strictest is the strictest of some modes, by their names.
func strictest(names []string) (mode policy.Mode) {
	for _, name := range names {
		if parsed, err := policy.ParseMode(name); err == nil {
			mode = mode.Stricter(parsed)
		}
	}
	return mode
}

// sumOf is the hash of the handle of an activation that is still good.
func sumOf(row cfharness.Activation, now time.Time) (sum handleSum, ok bool) {
	x := row.Skillsd
	if x == nil || x.ExpiresAt == nil || !now.Before(x.ExpiresAt.Time) || x.HandleDigest.Validate() != nil || x.HandleDigest.Algorithm() != digest.SHA256 {
		return sum, false
	}
	raw, err := hex.DecodeString(x.HandleDigest.Encoded())
	return handleSum(raw), err == nil
}

// restore makes active again what was active in a past session and has not expired, as far as the
// files are the same. It is recorded as that of this session, whose parent is the other one.
func (s *Session) restore(ctx context.Context, p *past) {
	s.restoring.Lock()
	defer s.restoring.Unlock()
	if s.restored[p.id] || p.id == s.id {
		return
	}
	s.restored[p.id] = true
	s.raise(p.strictness())
	s.starting.Lock()
	if !s.began && s.parent == "" {
		s.parent = p.id
	}
	s.starting.Unlock()
	for _, row := range p.activations {
		if err := s.restoreActivation(ctx, p, row); err != nil {
			s.cfg.Logger.WarnContext(ctx, "activation not restored", slog.String("session", p.id), slog.String("skill", row.Skillsd.Path), tint.Err(err))
		}
	}
}

func (s *Session) restoreActivation(ctx context.Context, p *past, row cfharness.Activation) error {
	x := *row.Skillsd
	sum, ok := sumOf(row, s.cfg.Now())
	if !ok {
		return nil
	}
	got := ""
	sk := s.Visible(s.principal, s.profile).Skill(x.Path)
	if sk != nil {
		index, err := sk.Index(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		if got = index.TreeDigest.String(); got == x.TreeDigest.String() {
			row.RunID, row.ActivatedAt, x.TaskID = s.id, provenance.Stamp(s.cfg.Now()), ""
			row.Skillsd = &x
			err := s.append(ctx, &provenance.Event{Kind: provenance.KindSkillActivated, Skill: x.Path, Path: sk.File, Got: got,
				Detail: string(row.Source) + ", restored from " + p.id, Row: encode(row)})
			if err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.secrets[sum] = x.ExpiresAt.Time
			s.active[x.Path] = &activation{skill: sk, index: index, at: s.cfg.Now()}
			return nil
		}
	}
	err := s.append(ctx, &provenance.Event{Kind: provenance.KindDriftDetected, Skill: x.Path, Want: x.TreeDigest.String(), Got: got,
		Detail: "not restored from " + p.id + ": the skill is not the one that was loaded"})
	if err == nil {
		// The handle stays good, so that what is said is that the skill is not loaded.
		s.mu.Lock()
		s.secrets[sum] = x.ExpiresAt.Time
		s.mu.Unlock()
	}
	return err
}
