package cfharness

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/skillsd/skillsd/provenance"
)

// ParseSkillRegistry reads a skill-registry.json, also one of the older form, which has sandbox paths
// only and no resources. Missing paths are filled in from the others, so host paths are then sandbox
// paths.
//
// Errors: ErrInvalid.
func ParseSkillRegistry(data []byte) (*SkillRegistry, error) {
	var r SkillRegistry
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w: %v", provenance.RegistryFile, provenance.ErrInvalid, err)
	}
	if r.Type != TypeSkillRegistry || r.Version != 1 {
		return nil, fmt.Errorf("%s: %w: type %.60q, version %d",
			provenance.RegistryFile, provenance.ErrInvalid, r.Type, r.Version)
	}
	fillIn(&r.SandboxSkillsRoot, r.SkillsRoot)
	for i := range r.Skills {
		sk := &r.Skills[i]
		olderSkill(sk.SkillPath, &sk.SkillDir, &sk.SandboxPath, &sk.SandboxSkillDir)
		if len(sk.Frontmatter) == 0 {
			sk.Frontmatter = json.RawMessage("{}")
		}
		for j := range sk.Resources {
			fillIn(&sk.Resources[j].SandboxResourcePath, sk.Resources[j].ResourcePath)
		}
	}
	return &r, nil
}

// ParseActivations reads a skill-activations.json, also one of the older form, which lacks the time of the
// file, directories and sandbox paths. Missing paths are filled in as ParseSkillRegistry does, and the time
// is the one of the last activation.
//
// Errors: ErrInvalid.
func ParseActivations(data []byte) (at Timestamp, rows []Activation, err error) {
	var file struct {
		Type        string       `json:"type"`
		Version     int          `json:"version"`
		GeneratedAt *Timestamp   `json:"generatedAt"`
		Activations []Activation `json:"activations"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return at, nil, fmt.Errorf("%s: %w: %v", provenance.ActivationsFile, provenance.ErrInvalid, err)
	}
	if file.Type != TypeActivations || file.Version != 1 {
		return at, nil, fmt.Errorf("%s: %w: type %.60q, version %d",
			provenance.ActivationsFile, provenance.ErrInvalid, file.Type, file.Version)
	}
	for i := range file.Activations {
		a := &file.Activations[i]
		olderSkill(a.SkillPath, &a.SkillDir, &a.SandboxSkillPath, &a.SandboxSkillDir)
		at = a.ActivatedAt
	}
	if file.GeneratedAt != nil {
		at = *file.GeneratedAt
	}
	return at, file.Activations, nil
}

// olderSkill fills in the paths of a skill of which only the path of SKILL.md is known.
func olderSkill(file string, dir, sandboxFile, sandboxDir *string) {
	if file == "" {
		return
	}
	fillIn(dir, path.Dir(file))
	fillIn(sandboxFile, file)
	fillIn(sandboxDir, path.Dir(*sandboxFile))
}

// fillIn sets dst to value if it is empty.
func fillIn(dst *string, value string) {
	if *dst == "" {
		*dst = value
	}
}
