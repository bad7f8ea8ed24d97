package session

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// registryPatience is how long the end of the server waits for the hashing of a large catalogue. The registry
// of a session that ends before lists only the SKILL.md of each skill. The end of a single session waits
// without a limit.
const registryPatience = 2 * time.Second

// Start looks up the skills to preload, and indexes, pins and stores the trees of allowlisted skills. It must
// return before the first call. It warns of an allowlist entry without a skill or a script.
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
	is := s.rules.Load()
	for _, profile := range is.Policy.Config().Profiles {
		for _, path := range profile.Activate {
			if snapshot.Skill(path) == nil {
				s.cfg.Logger.WarnContext(ctx, "skill that a profile activates is not there",
					slog.String("skill", path), slog.String("profile", profile.Name))
			}
		}
	}
	for _, entry := range is.Policy.Entries() {
		sk := snapshot.Skill(entry.Skill)
		if sk == nil {
			s.cfg.Logger.WarnContext(ctx, "allowed skill is not there", slog.String("skill", entry.Skill),
				slog.String("path", entry.Path))
			continue
		}
		if err := s.pin(ctx, is, sk, entry); err != nil {
			s.cfg.Logger.WarnContext(ctx, "allowed script cannot be prepared",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path), tint.Err(err))
		}
	}
	return nil
}

// Preloaded returns the skills that every session without a parent starts with, in the order given. It must
// not be called before Start has returned.
func (s *Sessions) Preloaded() []*skills.Skill { return s.preload }

// start writes the first events of the session, each once: the start with its policy, and the preloaded
// skills. If writing fails, the next call continues. The snapshots of the registry and of the machine follow
// in the background. After the rules were replaced, start writes the new policy. s.sequence is held.
func (s *Session) start(ctx context.Context) error {
	// recordInBackground is the last step of a start, so all other steps have succeeded.
	if s.awaited.Load() != nil {
		if s.under == s.rules.Load().number {
			return nil
		}
		// The session continues under the new policy, which the event names.
		return s.begin(ctx, provenance.KindSessionResumed)
	}
	if !s.began {
		s.initial = s.startsWith()
		if err := s.begin(ctx, provenance.KindSessionStarted); err != nil {
			return err
		}
	}
	for ; len(s.initial) > 0; s.initial = s.initial[1:] {
		if err := s.preloadSkill(ctx, s.initial[0]); err != nil {
			return err
		}
	}
	s.recordInBackground()
	return nil
}

// initialSkill is a skill that is active when a session starts.
type initialSkill struct {
	skill  *skills.Skill
	rule   string // of the decision
	source cfharness.Source
}

// startsWith returns the skills that are active when the session starts and that it may see: the skills that
// the operator preloads, unless the session is a child, and the skills that its profile activates.
func (s *Session) startsWith() (all []initialSkill) {
	visible := s.Visible(s.principal, s.profile)
	for _, sk := range s.preload {
		if !s.child && visible.Skill(sk.Path) != nil {
			all = append(all, initialSkill{sk, "operator_preload", cfharness.SourcePreload})
		}
	}
	source := cfharness.SourcePreload
	if s.child || s.profile != "" {
		source = cfharness.SourceInherited
	}
	for _, path := range s.rules.Load().Policy.Activates(s.principal, s.profile, s.child) {
		sk := visible.Skill(path)
		preloaded := func(initial initialSkill) bool { return initial.skill == sk }
		if sk != nil && !slices.ContainsFunc(all, preloaded) {
			all = append(all, initialSkill{sk, "profile_activate", source})
		}
	}
	return all
}

// startsActive reports whether startsWith can return a skill.
func (s *Session) startsActive() bool {
	return !s.child && len(s.preload) > 0 || len(s.rules.Load().Policy.Activates(s.principal, s.profile, s.child)) > 0
}

// begin writes the event that the session started or was resumed, after the policy snapshot and the run
// manifest that the event names.
func (s *Session) begin(ctx context.Context, kind provenance.Kind) error {
	is := s.rules.Load()
	mode, c := is.Policy.Mode(s.raised.Raise(0)), s.describe(ctx, is)
	info := provenance.SessionInfo{Server: provenance.Server{Version: s.cfg.Version, Protocol: s.protocol},
		Mode: mode.String(), ClientSession: s.clientID, Profile: s.profile,
		Child: s.child, Guessed: s.isGuessed(), ParentSession: s.parentName, RequestedRunID: s.wanted,
		KeepsShown: is.Facts.KeepsShown, PolicySnapshotPath: provenance.PolicySnapshotFile}
	start := snapshot.Start{ID: s.id, At: s.cfg.Now(), Mode: mode, Principal: s.principal, Profile: s.profile,
		Manifest: s.manifest}
	for _, initial := range s.startsWith() {
		start.Loaded = append(start.Loaded, snapshot.Loaded(ctx, initial.skill, initial.source))
	}
	compact := encode(c.source.PolicyOf(c.policy, start))
	var err error
	info.PolicySnapshotDigest, err = cfharness.CompactDigest(compact)
	if err != nil {
		return err
	}
	e := &provenance.Event{Kind: kind, Detail: "mode " + info.Mode, Row: encode(info)}
	if kind == provenance.KindSessionStarted && s.clientID != "" {
		e.Detail += ", session of the client: " + strconv.Quote(s.clientID)
	}
	if kind == provenance.KindSessionResumed && s.began && is.number != s.under {
		e.Detail += ", configuration changed: " + policy.Clip(is.changed)
	}
	if info.Guessed {
		e.Detail += ", of calls that name no session"
	}
	snapshot, err := s.cfg.Records.Put(ctx, s.id, provenance.PolicySnapshotFile, pretty(compact))
	if err != nil {
		return err
	}
	e.Files = append(e.Files, snapshot)
	if s.manifest != nil {
		text := s.Secrets().Bytes(pretty(s.manifest.Raw))
		manifest, err := s.cfg.Records.Put(ctx, s.id, provenance.RunManifestFile, text)
		if err != nil {
			return err
		}
		e.Files = append(e.Files, manifest)
	}
	err = s.write(ctx, e)
	if err != nil {
		return err
	}
	s.began, s.under = true, is.number
	return nil
}

// recordInBackground records the snapshots of the registry and of the machine while the session serves calls:
// hashing and probing take long. The registry is limited to what the session may see.
func (s *Session) recordInBackground() {
	files := map[string]chan struct{}{provenance.RegistryFile: make(chan struct{}),
		provenance.CapabilitiesFile: make(chan struct{})}
	// In a session that is continued, the outcome of a late run may have done this already.
	if !s.awaited.CompareAndSwap(nil, &files) {
		return
	}
	for name, put := range map[string]func(ctx context.Context, name string) (provenance.File, error){
		provenance.RegistryFile: func(ctx context.Context, name string) (provenance.File, error) {
			// The client can read the registry.
			return s.registry.Put(ctx, s.patient, s.cfg.Records, s.id, s.cfg.Registry.Snapshot(),
				s.Visible(s.principal, s.profile), &s.rules.Load().Facts)
		},
		provenance.CapabilitiesFile: func(ctx context.Context, name string) (provenance.File, error) {
			data, err := s.describeMachine(s.patient)
			if err != nil {
				return provenance.File{}, err
			}
			return s.cfg.Records.Put(ctx, s.id, name, data)
		},
	} {
		s.background.Go(func() {
			defer close(files[name])
			// The values of a call's context would stay in memory as long as the goroutine.
			ctx := context.Background()
			file, err := put(ctx, name)
			if err == nil {
				err = s.write(ctx, &provenance.Event{Kind: provenance.KindRegistrySnapshot,
					Got: file.Digest.String(), Detail: name, Files: []provenance.File{file}})
			}
			level := slog.LevelWarn
			// The server ended before the snapshots were complete, which is no fault.
			if s.patient.Err() != nil {
				level = slog.LevelDebug
			}
			if err != nil {
				s.cfg.Logger.Log(ctx, level, "snapshot not recorded", slog.String("file", name),
					slog.String("session", s.id), tint.Err(err))
			}
		})
	}
}

// awaitedFile returns a channel that is closed when a file that is written in the background is done; nil for
// other files, and before the session has started.
func (s *Session) awaitedFile(name string) <-chan struct{} {
	files := s.awaited.Load()
	if files == nil {
		return nil
	}
	return (*files)[name]
}

// preloadSkill activates a skill with which the session starts; its instructions have not been sent yet. A
// skill that cannot be read is recorded as a failed load.
func (s *Session) preloadSkill(ctx context.Context, initial initialSkill) error {
	sk := initial.skill
	fresh, index, err := s.current(ctx, sk)
	// The next call tries the start again when files may have been closed. A failed load would stay in the
	// record.
	if fault.OutOfFiles(err) {
		return fmt.Errorf("preload %s: %w", sk.Path, err)
	}
	if err != nil {
		// The skill may have changed after the server started.
		s.cfg.Logger.WarnContext(ctx, "skill not preloaded", slog.String("skill", sk.Path),
			slog.String("session", s.id), tint.Err(err))
		return s.write(ctx, loadFailure(sk.Path, readError(err, sk, sk.File)))
	}
	return s.reactivate(ctx, fresh, index, initial.rule, initial.source)
}

// End records the end of every session with a record, and waits for events that are still being recorded.
// Runs that wait for a slot are canceled.
func (s *Sessions) End(ctx context.Context) error {
	s.over()
	s.queue.Close()
	s.caches.close()
	s.table.endWhere(func(*Session) bool { return true })
	s.table.recording.Wait()
	if ses := s.Current(); ses != nil {
		return ses.end(ctx)
	}
	return nil
}

// snapshotCache has the parts of snapshots that all sessions of a server share.
type snapshotCache struct {
	once    sync.Once
	source  *snapshot.Source
	policy  *cfharness.PolicySnapshot
	binding json.RawMessage // the operator's binding in the form of rows, or nil

	probing      chan struct{} // a semaphore with one token
	capabilities []byte        // nil before the first probe; guarded by probing
}

func newSnapshotCache(facts snapshot.Facts) *snapshotCache {
	return &snapshotCache{binding: snapshot.PublicSlot(facts), probing: make(chan struct{}, 1)}
}

// describe returns the snapshot cache of some rules, which it fills at the first call. It is called after
// Start.
func (s *Sessions) describe(ctx context.Context, is *inForce) *snapshotCache {
	c := is.snapshots
	c.once.Do(func() {
		cfg := &s.cfg
		c.source = &snapshot.Source{
			Registry: cfg.Registry, Policies: is.Policy, Facts: is.Facts, Limits: is.Limits,
			Workspace:       cfg.Workspace,
			ClientWorkspace: is.ClientWorkspace != nil, Runner: cfg.Runner, Interpreter: cfg.Interpreter,
			Preload: s.preload, Pins: is.trees,
		}
		c.policy = c.source.Policy(ctx)
	})
	return c
}

// describeMachine returns capabilities.json, which is the same for all sessions of a server; its time is the
// start of the first session.
//
// Errors: the errors of ctx, which also ends the wait for another session that is probing.
func (s *Sessions) describeMachine(ctx context.Context) ([]byte, error) {
	is := s.rules.Load()
	c := is.snapshots
	select {
	case c.probing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.probing }()
	if c.capabilities == nil {
		found, err := s.describe(ctx, is).source.Capabilities(ctx, s.cfg.Now())
		if err != nil {
			return nil, err
		}
		c.capabilities = pretty(encode(found))
	}
	return c.capabilities, nil
}

// capabilitiesPatience is how long the record of a run waits for capabilities.json: the output of a script
// must not wait for a host program that hangs.
const capabilitiesPatience = 2 * time.Second

// pretty formats JSON in the style of a session's files.
func pretty(raw json.RawMessage) []byte {
	data, err := provenance.EncodePretty(raw)
	if err != nil {
		panic("session: record does not marshal: " + err.Error())
	}
	return data
}
