package earlier

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
)

// maxRegistry is how much of a session's registry is read.
const maxRegistry = 64 << 20

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

// DriftOf returns how a skill differs from what a session loaded, by its most important file: SKILL.md,
// then a script, then any file. sk is the skill as served, with its index, or nil if it is gone.
func DriftOf(ctx context.Context, records provenance.Reader, session string, row cfharness.Activation,
	served *skills.Snapshot, sk *skills.Skill, index *skills.Index) Drift {
	d := Drift{Code: driftSkillMissing, Skill: row.Skillsd.Path, Want: row.Skillsd.TreeDigest}
	if sk == nil {
		if !servesRoot(served, row) {
			d.Code = driftRootMissing
		}
		return d
	}
	d.Got = index.TreeDigest
	if sk.Digest != row.Digest {
		return Drift{Code: driftSkillDigest, Skill: d.Skill, File: sk.File, Want: row.Digest, Got: sk.Digest}
	}
	d.Code = driftResource
	before := registered(ctx, records, session, d.Skill)
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
func registered(
	ctx context.Context, records provenance.Reader, session, skill string,
) map[string]cfharness.RegistryResource {
	resources := map[string]cfharness.RegistryResource{}
	file, err := records.Artifact(ctx, session, provenance.RegistryFile)
	if err != nil {
		return resources
	}
	defer file.Close()
	var registry cfharness.SkillRegistry
	if err := json.NewDecoder(io.LimitReader(file, maxRegistry)).Decode(&registry); err != nil {
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
func servesRoot(snapshot *skills.Snapshot, row cfharness.Activation) bool {
	for _, d := range snapshot.Diagnostics {
		if d.Code == skills.CodeUnreadableRoot {
			return false
		}
	}
	for i := range snapshot.Roots {
		root := &snapshot.Roots[i]
		rel, err := filepath.Rel(root.Dir, row.SkillDir)
		if root.FS == nil && snapshot.Has(root) && err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return strings.HasPrefix(row.SkillDir, "skill://")
}
