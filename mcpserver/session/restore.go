package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
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
	activations []provenance.Activation
}

// expired reports whether no handle of the session is good any more.
func (p *past) expired(now time.Time) bool {
	return !slices.ContainsFunc(p.activations, func(row provenance.Activation) bool {
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

// find looks for a past session, in the records again if it was not there when they were last looked
// through.
func (e *earlier) find(ctx context.Context, s *Sessions, lookup func(*earlier) *past) *past {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := lookup(e); p != nil {
		return p
	}
	now := s.cfg.Now()
	if !e.looked.IsZero() && now.Sub(e.looked) < pastEvery {
		return nil
	}
	e.look(context.WithoutCancel(ctx), s, now)
	return lookup(e)
}

// look reads the records of sessions that ended since it last did so, and no longer ago than a handle
// lives.
func (e *earlier) look(ctx context.Context, s *Sessions, now time.Time) {
	since := e.looked
	if since.IsZero() {
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
		if err == nil {
			err = e.add(ctx, s, found.ID, now)
		}
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "earlier session cannot be read", slog.String("session", found.ID), tint.Err(err))
		}
	}
}

// add notes a session whose handles are good, so that what shows one of them finds it.
func (e *earlier) add(ctx context.Context, s *Sessions, id string, now time.Time) error {
	found, err := provenance.Recall(ctx, s.cfg.Records, id)
	if err != nil {
		return err
	}
	p := &past{id: id, principal: found.Principal, profile: found.Profile, mode: strictest(found.Modes)}
	for _, row := range found.Activations {
		if sum, ok := sumOf(row, now); ok {
			p.activations = append(p.activations, row)
			if other := e.byHandle[sum]; other == nil || other.id <= id {
				e.byHandle[sum] = p
			}
		}
	}
	if found.ClientSession == "" || len(p.activations) == 0 {
		return nil
	}
	var of Call
	of.Principal.Name, of.Profile = found.Principal, found.Profile
	// Ids of sessions sort by their time.
	key := keyOf(of, "client", found.ClientSession)
	if other := e.byClient[key]; other == nil || other.id <= id {
		e.byClient[key] = p
	}
	return nil
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
func sumOf(row provenance.Activation, now time.Time) (sum handleSum, ok bool) {
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
	s.raise(p.mode)
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

func (s *Session) restoreActivation(ctx context.Context, p *past, row provenance.Activation) error {
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
