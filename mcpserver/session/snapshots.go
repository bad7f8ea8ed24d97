package session

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"sync"
	"time"

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

// describeMachine returns capabilities.json, which is the same for all sessions of a server, with the time of
// the first session.
//
// Errors: the errors of ctx, which also ends the wait for another session that is probing.
func (s *Sessions) describeMachine(ctx context.Context) ([]byte, error) {
	c := &s.snapshots
	select {
	case c.probing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.probing }()
	if c.capabilities == nil {
		found, err := s.describe(ctx).source.Capabilities(ctx, s.cfg.Now())
		if err != nil {
			return nil, err
		}
		c.capabilities = pretty(encode(found))
	}
	return c.capabilities, nil
}

const (
	// capabilitiesPatience is how long the record of a run waits for capabilities.json: the output of scripts
	// must not wait for a program of the host that does not answer.
	capabilitiesPatience = 2 * time.Second

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

// describeRegistry returns skill-registry.json, which needs the digest of every file. It is limited to what
// the session may see, since the client can read it. Sessions that begin together wait for one encoding.
func (s *Session) describeRegistry(ctx context.Context) ([]byte, error) {
	visible, c := s.Visible(s.principal, s.profile), &s.registry
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
		time.AfterFunc(keepLarge, func() {
			c.mu.Lock()
			dropped := c.of == visible
			if dropped {
				c.of, c.data = nil, nil
			}
			c.mu.Unlock()
			if dropped {
				// 10,000 skills leave 150 MiB of garbage, which an idle server would keep for minutes.
				debug.FreeOSMemory()
			}
		})
	}
	return data, nil
}

// pretty formats JSON as in the files of a session.
func pretty(raw json.RawMessage) []byte {
	data, err := provenance.EncodePretty(raw)
	if err != nil {
		panic("session: record does not marshal: " + err.Error())
	}
	return data
}
