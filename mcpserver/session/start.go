package session

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// registryPatience is how long the end of a session waits for the hashing of a large catalogue; a
// session that ends sooner has no skill-registry.json.
const registryPatience = 2 * time.Second

// Start prepares what every session needs of the first snapshot: the trees of allowlisted skills
// are indexed, pinned and put into the store, and the skills to preload are looked up. It must
// return before the first call. An allowlist entry that names nothing is a warning.
//
// Errors: *skills.NotFoundError and *skills.AmbiguousError for a preload.
func (s *Sessions) Start(ctx context.Context, preload []string) error {
	snapshot := s.cfg.Registry.Snapshot()
	for _, name := range preload {
		sk, err := snapshot.Lookup(name)
		if err != nil {
			return err
		}
		if !slices.Contains(s.preload, sk) {
			s.preload = append(s.preload, sk)
		}
	}
	for _, entry := range s.cfg.Policy.Entries() {
		sk := snapshot.Skill(entry.Skill)
		if sk == nil {
			s.cfg.Logger.WarnContext(ctx, "allowlisted skill is not there", slog.String("skill", entry.Skill), slog.String("path", entry.Path))
			continue
		}
		if err := s.pin(ctx, sk, entry); err != nil {
			s.cfg.Logger.WarnContext(ctx, "allowlisted script cannot be prepared", slog.String("skill", entry.Skill), slog.String("path", entry.Path), tint.Err(err))
		}
	}
	return nil
}

// pin notes the tree an entry approves and stores it, so that what runs later are these bytes.
func (s *Sessions) pin(ctx context.Context, sk *skills.Skill, entry policy.Entry) error {
	index, err := sk.Index(ctx)
	if err != nil {
		return err
	}
	if index.Resource(entry.Path) == nil {
		s.cfg.Logger.WarnContext(ctx, "allowlisted script is not there", slog.String("skill", entry.Skill), slog.String("path", entry.Path))
	}
	if _, done := s.pins[sk.Path]; done {
		return nil
	}
	s.pins[sk.Path] = index.TreeDigest
	_, err = sk.Stage(ctx, s.cfg.Trees)
	return err
}

// Preloaded are the skills every session starts with, in the order given.
func (s *Sessions) Preloaded() []*skills.Skill { return s.preload }

// start writes the first events of the session, once: that it started, under which policy, and what
// was preloaded. The snapshots of the registry and of the machine follow as soon as they are known.
func (s *Session) start(ctx context.Context) error {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.began {
		return nil
	}
	mode := s.cfg.Policy.Mode(policy.Mode(s.raised.Load()))
	detail := "mode " + mode.String()
	if s.clientID != "" {
		detail += ", session of the client: " + strconv.Quote(s.clientID)
	}
	info := provenance.SessionInfo{Server: provenance.Server{Version: s.cfg.Version, Protocol: s.protocol}, Mode: mode.String(), ClientSession: s.clientID, Profile: s.profile, KeepsShown: s.cfg.Facts.KeepsShown}
	files, err := s.putSnapshots(ctx, mode, &info)
	if err != nil {
		return err
	}
	if err := s.write(ctx, &provenance.Event{Kind: provenance.KindSessionStarted, Detail: detail, Row: encode(info), Files: files}); err != nil {
		return err
	}
	s.began = true
	visible := s.Visible(s.principal, s.profile)
	for _, sk := range s.preload {
		if visible.Skill(sk.Path) == nil {
			continue
		}
		if err := s.preloadSkill(ctx, sk); err != nil {
			return err
		}
	}
	// Not of ctx: what a call's context holds would stay in memory as long as the session.
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.background.Go(func() { s.recordRegistry(background) })
	s.background.Go(func() { s.backgroundCapabilities(background) })
	return nil
}

// preloadSkill activates a skill the operator named; its instructions have not been sent yet.
func (s *Session) preloadSkill(ctx context.Context, sk *skills.Skill) error {
	req := s.newRequest(Call{Method: "load_skill", Principal: s.principal}, policy.Read)
	req.skill = sk
	fresh, index, err := s.current(ctx, sk)
	if err != nil {
		return fmt.Errorf("preload %s: %w", sk.Path, err)
	}
	_, handle, until := s.activate(fresh, index)
	grant := policy.Grant{Decision: policy.Allowed, RuleID: "operator_preload"}
	return s.write(ctx, s.activationEvent(req, &Loaded{Skill: fresh, Index: index, Handle: handle, Until: until}, grant, provenance.SourcePreload))
}

// End records the end of every session that began, and waits for what is still being recorded. Runs that
// wait for a slot end as canceled.
func (s *Sessions) End(ctx context.Context) error {
	s.queue.close()
	s.caches.close()
	s.endKeyed()
	if ses := s.Current(); ses != nil {
		return ses.end(ctx)
	}
	return nil
}
