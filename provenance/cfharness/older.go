package cfharness

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/skillsd/skillsd/provenance"
)

// ParseSkillRegistry reads a skill-registry.json, also one of the older form: with one path for each
// place, that in the sandbox, and without resources. What such a file lacks is filled in from what it
// has, so the paths of the host are then those of the sandbox.
//
// Errors: ErrInvalid.
func ParseSkillRegistry(data []byte) (*SkillRegistry, error) {
	var r SkillRegistry
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w: %v", provenance.RegistryFile, provenance.ErrInvalid, err)
	}
	if r.Type != TypeSkillRegistry || r.Version != 1 {
		return nil, fmt.Errorf("%s: %w: type %.60q, version %d", provenance.RegistryFile, provenance.ErrInvalid, r.Type, r.Version)
	}
	older(&r.SandboxSkillsRoot, r.SkillsRoot)
	for i := range r.Skills {
		sk := &r.Skills[i]
		olderSkill(sk.SkillPath, &sk.SkillDir, &sk.SandboxPath, &sk.SandboxSkillDir)
		if len(sk.Frontmatter) == 0 {
			sk.Frontmatter = json.RawMessage("{}")
		}
		for j := range sk.Resources {
			older(&sk.Resources[j].SandboxResourcePath, sk.Resources[j].ResourcePath)
		}
	}
	return &r, nil
}

// ParseActivations reads a skill-activations.json, also one of the older form: without the time of the
// file, directories and paths in the sandbox. Missing paths are filled in as ParseSkillRegistry does,
// the time is that of the last activation.
//
// Errors: ErrInvalid.
func ParseActivations(data []byte) (at provenance.Timestamp, rows []Activation, err error) {
	var file struct {
		Type        string                `json:"type"`
		Version     int                   `json:"version"`
		GeneratedAt *provenance.Timestamp `json:"generatedAt"`
		Activations []Activation          `json:"activations"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return at, nil, fmt.Errorf("%s: %w: %v", provenance.ActivationsFile, provenance.ErrInvalid, err)
	}
	if file.Type != TypeActivations || file.Version != 1 {
		return at, nil, fmt.Errorf("%s: %w: type %.60q, version %d", provenance.ActivationsFile, provenance.ErrInvalid, file.Type, file.Version)
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

// olderSkill fills in the places of a skill that only its SKILL.md is known of.
func olderSkill(file string, dir, sandboxFile, sandboxDir *string) {
	if file == "" {
		return
	}
	older(dir, path.Dir(file))
	older(sandboxFile, file)
	older(sandboxDir, path.Dir(*sandboxFile))
}

// older fills in what an older file lacks.
func older(dst *string, value string) {
	if *dst == "" {
		*dst = value
	}
}
