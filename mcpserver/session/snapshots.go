package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// snapshotCache holds what the snapshots of all sessions of a server have in common.
type snapshotCache struct {
	once     sync.Once
	source   *snapshot.Source
	policy   *cfharness.PolicySnapshot
	binding  json.RawMessage // the operator's binding as rows have it; nil for none
	manifest []byte          // as it is kept; nil for none

	probing      chan struct{} // holds a token while a session looks
	capabilities []byte        // nil until they are known; guarded by probing
}

// describe returns what the snapshots of the server have in common, made once, after Start.
func (s *Sessions) describe(ctx context.Context) *snapshotCache {
	c := &s.snapshots
	c.once.Do(func() {
		cfg := &s.cfg
		c.source = &snapshot.Source{
			Registry: cfg.Registry, Policies: cfg.Policy, Facts: cfg.Facts, Limits: cfg.Limits,
			Workspace:       cfg.Workspace,
			ClientWorkspace: cfg.ClientWorkspace != nil, Runner: cfg.Runner, Interpreter: cfg.Interpreter,
			Preload: s.preload, Pins: s.pins,
		}
		c.policy = c.source.Policy(ctx)
		if cfg.Facts.Manifest != nil {
			c.manifest = pretty(cfg.Facts.Manifest.Raw)
		}
	})
	return c
}

// putSnapshots writes the policy snapshot, and the run manifest if there is one, before the event that names
// them. It completes info for that event.
func (s *Session) putSnapshots(
	ctx context.Context, mode policy.Mode, info *provenance.SessionInfo,
) (files []provenance.File, err error) {
	c := s.describe(ctx)
	compact := encode(c.source.PolicyOf(c.policy, snapshot.Start{
		ID: s.id, At: s.cfg.Now(), Mode: mode, Principal: s.principal, Profile: s.profile,
	}))
	info.PolicySnapshotPath = provenance.PolicySnapshotFile
	if info.PolicySnapshotDigest, err = cfharness.CompactDigest(compact); err != nil {
		return nil, err
	}
	file, err := s.cfg.Records.Put(ctx, s.id, provenance.PolicySnapshotFile, pretty(compact))
	if err != nil {
		return nil, err
	}
	files = append(files, file)
	if manifest := c.manifest; manifest != nil {
		if file, err = s.cfg.Records.Put(ctx, s.id, provenance.RunManifestFile, manifest); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// capabilitiesNote says whether a session's capabilities.json is recorded.
type capabilitiesNote struct {
	at   time.Time     // when the session was opened
	turn chan struct{} // holds one token: whoever has it may write
	done bool          // guarded by turn
}

func newCapabilitiesNote(at time.Time) *capabilitiesNote {
	n := &capabilitiesNote{at: at, turn: make(chan struct{}, 1)}
	n.turn <- struct{}{}
	return n
}

// recordCapabilities writes capabilities.json and the event that names it, once, as soon as the capabilities
// of the machine are known.
//
// Errors: the errors of ctx and of the store.
func (s *Session) recordCapabilities(ctx context.Context) error {
	n := s.capabilities
	select {
	case <-n.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { n.turn <- struct{}{} }()
	if n.done {
		return nil
	}
	data, err := s.encodedCapabilities(ctx, n.at)
	if err != nil {
		return err
	}
	file, err := s.cfg.Records.Put(ctx, s.id, provenance.CapabilitiesFile, data)
	if err != nil {
		return err
	}
	err = s.write(ctx, &provenance.Event{Kind: provenance.KindRegistrySnapshot, Got: file.Digest.String(),
		Detail: provenance.CapabilitiesFile, Files: []provenance.File{file}})
	n.done = err == nil
	return err
}

// backgroundCapabilities is recordCapabilities while the session serves calls.
func (s *Session) backgroundCapabilities(ctx context.Context) {
	if err := s.recordCapabilities(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Logger.ErrorContext(ctx, "capabilities not recorded", slog.String("session", s.id),
			tint.Err(err))
	}
}

// capabilitiesPatience is how long the record of a run waits for capabilities.json: the output of scripts
// must not wait for a program of the host that does not answer.
const capabilitiesPatience = 2 * time.Second

// awaitCapabilities records capabilities.json before the first run is recorded.
func (s *Session) awaitCapabilities(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, capabilitiesPatience)
	defer stop()
	// The attempt in the background logs a failure, and the record of the run would fail too.
	_ = s.recordCapabilities(ctx)
}

// encodedCapabilities returns capabilities.json, which is the same for all sessions of a server, with the
// time of the first session.
//
// Errors: the errors of ctx, which also ends the wait for another session that is probing.
func (s *Sessions) encodedCapabilities(ctx context.Context, at time.Time) ([]byte, error) {
	c := &s.snapshots
	select {
	case c.probing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.probing }()
	if c.capabilities != nil {
		return c.capabilities, nil
	}
	found, err := s.describe(ctx).source.Capabilities(ctx, at)
	if err != nil {
		return nil, err
	}
	c.capabilities = pretty(encode(found))
	return c.capabilities, nil
}

// recordRegistry writes skill-registry.json, which needs the digest of every file, and the event that names
// it. Its content is limited to what the session may see, since the client can read it.
func (s *Session) recordRegistry(ctx context.Context) {
	data, err := s.registry.encoded(ctx, s.Visible(s.principal, s.profile))
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "registry not recorded", slog.String("session", s.id), tint.Err(err))
		return
	}
	file, err := s.cfg.Records.Put(ctx, s.id, provenance.RegistryFile, data)
	if err == nil {
		err = s.write(ctx, &provenance.Event{Kind: provenance.KindRegistrySnapshot, Got: file.Digest.String(),
			Detail: provenance.RegistryFile, Files: []provenance.File{file}})
	}
	if err != nil {
		s.cfg.Logger.ErrorContext(ctx, "registry not recorded", slog.String("session", s.id), tint.Err(err))
	}
}

const (
	// largeRegistry is the size in bytes up to which an encoded registry is kept for later sessions.
	largeRegistry = 4 << 20

	// keepLarge is how long a larger one is kept, for sessions that begin in a row.
	keepLarge = 10 * time.Second
)

// registryCache is the registry of one snapshot, encoded. It is safe for concurrent use.
type registryCache struct {
	mu   sync.Mutex
	of   *skills.Snapshot // nil when there is none
	data []byte
}

// encoded returns the registry of a snapshot. Sessions that begin together wait for one encoding.
func (c *registryCache) encoded(ctx context.Context, visible *skills.Snapshot) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == visible {
		return c.data, nil
	}
	registry, err := snapshot.Registry(ctx, visible)
	if err != nil {
		return nil, err
	}
	data, err := provenance.EncodePretty(registry)
	if err != nil {
		return nil, err
	}
	c.of, c.data = visible, data
	if len(data) > largeRegistry {
		time.AfterFunc(keepLarge, func() { c.drop(visible) })
	}
	return data, nil
}

// drop forgets a large registry. 10,000 skills leave 150 MiB of garbage, which an idle server would keep for
// minutes.
func (c *registryCache) drop(of *skills.Snapshot) {
	c.mu.Lock()
	dropped := c.of == of
	if dropped {
		c.of, c.data = nil, nil
	}
	c.mu.Unlock()
	if dropped {
		debug.FreeOSMemory()
	}
}

// pretty formats JSON as in the files of a session.
func pretty(raw json.RawMessage) []byte {
	data, err := provenance.EncodePretty(raw)
	if err != nil {
		panic("session: record does not marshal: " + err.Error())
	}
	return data
}
