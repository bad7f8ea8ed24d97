package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// The codes of differences that are found when a session is resumed.
const (
	driftSkillMissing = "resume-skill-missing"
	driftRootMissing  = "resume-root-unavailable"
	driftSkillDigest  = "resume-skill-digest-drift"
	driftScript       = "resume-script-drift"
	driftResource     = "resume-resource-drift"
)

// Drift is a skill that has changed since a session loaded it.
type Drift struct {
	Code      string // "resume-…"
	Skill     string // path
	File      string // the first that differs; empty when the whole skill is gone
	Want, Got digest.Digest
}

func (d Drift) String() string {
	return strings.TrimSuffix(d.Code+": "+d.Skill+": "+d.File, ": ")
}

// DriftedError means that a session was not resumed because skills have changed.
type DriftedError struct{ Drifts []Drift }

func (e *DriftedError) Error() string {
	texts := make([]string, len(e.Drifts))
	for i, d := range e.Drifts {
		texts[i] = d.String()
	}
	return fmt.Sprintf("%d skills are not those that the session loaded: %s", len(e.Drifts),
		strings.Join(texts, "; "))
}

// errNotLocal means that the session belongs to another principal than the user of this process.
var errNotLocal = errors.New("the session belongs to another principal")

// Resume continues a recorded session as the session of the process. It is called after Start and before
// the first call. What the session loaded is active again, its numbering continues, and its mode holds
// unless the configured one is stricter. Neither approvals nor the allowlist are taken from the record.
//
// Skills that differ from what was loaded are recorded, and the session is not resumed; with reload
// they are activated anew, and their instructions are sent again. Skills to preload that the session
// had not loaded are activated.
//
// Errors: *DriftedError, provenance.ErrNotFound, provenance.ErrUnavailable if another process has
// the session.
func (s *Sessions) Resume(ctx context.Context, id string, principal policy.Principal, reload bool) error {
	was, err := cfharness.Recall(ctx, s.cfg.Records, id)
	if err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	if was.Principal != principal.Name {
		return errNotLocal
	}
	ses, err := s.newSession(Call{Principal: principal, ClientSession: was.ClientSession,
		Profile: was.Profile, Parent: was.ParentSession}, was.Parent)
	if err != nil {
		return err
	}
	ses.id, ses.child, ses.began = id, was.Child, true
	// The numbers are parts of ids and file names, which must not occur twice in one record.
	ses.outputs = was.Outputs
	for _, output := range was.OutputIDs[:min(len(was.OutputIDs), maxTaken)] {
		ses.taken[output] = true
	}
	ses.decisions.Store(was.Decisions)
	ses.invocations.Store(was.Invocations)
	ses.raised.Raise(earlier.Strictest(was.Modes))
	// The client's earlier session is this one: the first call has no other to restore.
	ses.first.Do(func() {})
	if err := ses.begin(ctx, provenance.KindSessionResumed); err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	drifts, err := ses.resumeActivations(ctx, was, reload)
	if err != nil {
		return err
	}
	if len(drifts) > 0 && !reload {
		err := ses.write(ctx, &provenance.Event{Kind: provenance.KindSessionEnded,
			Detail: "not resumed: skills differ"})
		return errors.Join(&DriftedError{Drifts: drifts}, err)
	}
	for _, initial := range ses.startsWith() {
		if ses.activated(initial.skill.Path) != nil {
			continue
		}
		if err := ses.preloadSkill(ctx, initial); err != nil {
			return fmt.Errorf("resume %s: %w", id, err)
		}
	}
	ses.recordInBackground()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = ses
	return nil
}

// resumeActivations makes active again what the session had loaded and has not changed, records what has,
// and with reload activates that as it is now.
func (s *Session) resumeActivations(
	ctx context.Context, was *cfharness.Recollection, reload bool,
) ([]Drift, error) {
	var drifts []Drift
	for i, row := range was.Activations {
		if row.Skillsd == nil {
			continue
		}
		path := row.Skillsd.Path
		// A skill that was loaded again has more than one handle, and the client may use any of them.
		if sum, ok := earlier.SumOf(row, s.cfg.Now()); ok {
			s.secrets[sum] = row.Skillsd.ExpiresAt.Time
		}
		again := func(a cfharness.Activation) bool { return a.Skillsd != nil && a.Skillsd.Path == path }
		if slices.ContainsFunc(was.Activations[i+1:], again) {
			continue
		}
		sk, index, err := s.served(ctx, row)
		if err != nil {
			sk = nil // as good as gone
		}
		if sk != nil && index.TreeDigest == row.Skillsd.TreeDigest {
			s.active[path] = &activation{skill: sk, index: index, shown: was.Sent[path]}
			continue
		}
		drift := s.drift(ctx, row, sk, index)
		drifts = append(drifts, drift)
		err = s.write(ctx, &provenance.Event{
			Kind: provenance.KindDriftDetected, Skill: path, Path: drift.File, Detail: drift.Code,
			Want: drift.Want.String(), Got: drift.Got.String(),
		})
		if err == nil && reload && sk != nil {
			err = s.reactivate(ctx, sk, index, cfharness.RuleResumeReload, row.Source)
		}
		if err != nil {
			return nil, err
		}
	}
	return drifts, nil
}

// drift returns how a skill differs from what the session loaded, by its most important file: SKILL.md,
// then a script, then any file.
func (s *Session) drift(
	ctx context.Context, row cfharness.Activation, sk *skills.Skill, index *skills.Index,
) Drift {
	d := Drift{Code: driftSkillMissing, Skill: row.Skillsd.Path, Want: row.Skillsd.TreeDigest}
	if sk == nil {
		if !s.servesRoot(row) {
			d.Code = driftRootMissing
		}
		return d
	}
	d.Got = index.TreeDigest
	if sk.Digest != row.Digest {
		return Drift{Code: driftSkillDigest, Skill: d.Skill, File: sk.File, Want: row.Digest, Got: sk.Digest}
	}
	d.Code = driftResource
	before := s.registered(ctx, d.Skill)
	differs := func(path, kind string, want, got digest.Digest) {
		if want == got || d.File != "" && (d.Code == driftScript || kind != string(skills.KindScript)) {
			return
		}
		d.File, d.Want, d.Got, d.Code = path, want, got, driftResource
		if kind == string(skills.KindScript) {
			d.Code = driftScript
		}
	}
	for i := range index.Resources {
		r := &index.Resources[i]
		differs(r.Path, string(r.Kind), before[r.Path].Digest, r.Digest)
		delete(before, r.Path)
	}
	for path, r := range before {
		differs(path, r.Kind, r.Digest, "")
	}
	return d
}

// registered returns the resources of a skill by path, from the session's registry. A session that ended at
// once has no registry: only the whole tree can then be compared.
func (s *Session) registered(ctx context.Context, skill string) map[string]cfharness.RegistryResource {
	resources := map[string]cfharness.RegistryResource{}
	file, err := s.cfg.Records.Artifact(ctx, s.id, provenance.RegistryFile)
	if err != nil {
		return resources
	}
	defer file.Close()
	var registry cfharness.SkillRegistry
	if err := json.NewDecoder(io.LimitReader(file, maxArtifact)).Decode(&registry); err != nil {
		return resources
	}
	for _, sk := range registry.Skills {
		if sk.Skillsd == nil || sk.Skillsd.Path != skill {
			continue
		}
		for _, r := range sk.Resources {
			resources[r.Path] = r
		}
	}
	return resources
}

// servesRoot reports whether the root that an activated skill was in is there.
func (s *Session) servesRoot(row cfharness.Activation) bool {
	snapshot := s.cfg.Registry.Snapshot()
	for _, d := range snapshot.Diagnostics {
		if d.Code == skills.CodeUnreadableRoot {
			return false
		}
	}
	for i := range snapshot.Roots {
		root := &snapshot.Roots[i]
		rel, err := filepath.Rel(root.Dir, row.SkillDir)
		if root.FS == nil && err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return strings.HasPrefix(row.SkillDir, "skill://")
}
