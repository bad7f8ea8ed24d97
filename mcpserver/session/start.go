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
	"github.com/skillsd/skillsd/provenance/cfharness"
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
			s.cfg.Logger.WarnContext(ctx, "allowlisted skill is not there", slog.String("skill", entry.Skill),
				slog.String("path", entry.Path))
			continue
		}
		if err := s.pin(ctx, sk, entry); err != nil {
			s.cfg.Logger.WarnContext(ctx, "allowlisted script cannot be prepared",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path), tint.Err(err))
		}
	}
	return nil
}

// pin notes the tree an entry approves and stores it: these are the bytes that run later.
func (s *Sessions) pin(ctx context.Context, sk *skills.Skill, entry policy.Entry) error {
	index, err := sk.Index(ctx)
	if err != nil {
		return err
	}
	if index.Resource(entry.Path) == nil {
		s.cfg.Logger.WarnContext(ctx, "allowlisted script is not there", slog.String("skill", entry.Skill),
			slog.String("path", entry.Path))
	}
	if _, done := s.pins[sk.Path]; done {
		return nil
	}
	s.pins[sk.Path] = index.TreeDigest
	_, err = sk.Stage(ctx, s.cfg.Trees)
	return err
}

// Preloaded returns the skills every session starts with, in the order given. It must not be called before
// Start has returned.
func (s *Sessions) Preloaded() []*skills.Skill { return s.preload }

// start writes the first events of the session, each once: that it started, under which policy, and what
// was preloaded. If writing fails, the next call tries again. The snapshots of the registry and of the
// machine follow as soon as they are known.
func (s *Session) start(ctx context.Context) error {
	s.sequence.Lock()
	defer s.sequence.Unlock()
	return s.startLocked(ctx)
}

// startLocked is start with sequence held.
func (s *Session) startLocked(ctx context.Context) error {
	if s.stop != nil {
		return nil
	}
	if !s.began {
		if err := s.begin(ctx); err != nil {
			return err
		}
		s.began = true
	}
	visible := s.Visible(s.principal, s.profile)
	for ; s.preloads < len(s.preload); s.preloads++ {
		sk := s.preload[s.preloads]
		if visible.Skill(sk.Path) == nil {
			continue
		}
		if err := s.preloadSkill(ctx, sk); err != nil {
			return err
		}
	}
	s.recordInBackground()
	return nil
}

// begin writes that the session started.
func (s *Session) begin(ctx context.Context) error {
	mode := s.cfg.Policy.Mode(s.raised.raise(0))
	detail := "mode " + mode.String()
	if s.clientID != "" {
		detail += ", session of the client: " + strconv.Quote(s.clientID)
	}
	info := provenance.SessionInfo{Server: provenance.Server{Version: s.cfg.Version, Protocol: s.protocol},
		Mode: mode.String(), ClientSession: s.clientID, Profile: s.profile,
		KeepsShown: s.cfg.Facts.KeepsShown}
	files, err := s.putSnapshots(ctx, mode, &info)
	if err != nil {
		return err
	}
	return s.write(ctx, &provenance.Event{Kind: provenance.KindSessionStarted, Detail: detail,
		Row: encode(info), Files: files})
}

// recordInBackground records the snapshots of the registry and of the machine while the session serves
// calls: hashing and probing take long.
func (s *Session) recordInBackground() {
	// Not the context of a call, whose values would stay in memory as long as the session.
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.awaited = stop, map[string]chan struct{}{}
	for name, describe := range map[string]func(context.Context) ([]byte, error){
		provenance.RegistryFile: s.describeRegistry, provenance.CapabilitiesFile: s.describeMachine,
	} {
		done := make(chan struct{})
		s.awaited[name] = done
		s.background.Go(func() {
			defer close(done)
			data, err := describe(ctx)
			var file provenance.File
			if err == nil {
				file, err = s.cfg.Records.Put(ctx, s.id, name, data)
			}
			if err == nil {
				err = s.write(ctx, &provenance.Event{Kind: provenance.KindRegistrySnapshot,
					Got: file.Digest.String(), Detail: name, Files: []provenance.File{file}})
			}
			if err != nil {
				s.cfg.Logger.WarnContext(ctx, "snapshot not recorded", slog.String("file", name),
					slog.String("session", s.id), tint.Err(err))
			}
		})
	}
}

// preloadSkill activates a skill the operator named; its instructions have not been sent yet. A skill that
// cannot be read, since it may have changed after the server started, is recorded as a failed load.
func (s *Session) preloadSkill(ctx context.Context, sk *skills.Skill) error {
	r := s.newRequest(Call{Method: "load_skill", Principal: s.principal}, policy.Read)
	fresh, index, err := s.current(ctx, sk)
	if outOfFiles(err) {
		return fmt.Errorf("preload %s: %w", sk.Path, err)
	}
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "skill not preloaded", slog.String("skill", sk.Path),
			slog.String("session", s.id), tint.Err(err))
		return s.write(ctx, loadFailure(sk.Path, readError(err, sk.File)))
	}
	_, given := s.activate(fresh, index)
	grant := policy.Grant{Decision: policy.Allowed, RuleID: "operator_preload"}
	loaded := &Loaded{Skill: fresh, Index: index, Handle: given.handle, Until: given.until}
	return s.write(ctx, s.activationEvent(r, loaded, grant, cfharness.SourcePreload))
}

// End records the end of every session that began, and waits for what is still being recorded. Runs that
// wait for a slot end as canceled.
func (s *Sessions) End(ctx context.Context) error {
	s.queue.Close()
	s.caches.Close()
	s.endThose(func(*Session) bool { return true })
	s.ending.Wait()
	if ses := s.Current(); ses != nil {
		return ses.end(ctx)
	}
	return nil
}
