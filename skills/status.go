package skills

import (
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// State is the state of a skill: whether it is offered.
type State string

// The states of a skill.
const (
	StateEnabled     State = "enabled"     // offered to models
	StateHidden      State = "hidden"      // not offered to models, by its frontmatter; users can load it
	StateUnavailable State = "unavailable" // lacks something it requires; not served
	StateDisabled    State = "disabled"    // switched off in the configuration; not served
)

// Status is the state of a skill and the operator's choices for it.
type Status struct {
	State    State
	Pinned   bool // listed first where space is limited
	NameOnly bool // catalogues omit its description
	// Reasons explain each deviation from the default, one phrase each.
	Reasons []string
}

// Status returns the status of a skill of the snapshot, including withheld ones.
func (s *Snapshot) Status(sk *Skill) Status {
	if status, ok := s.statuses[sk]; ok {
		return status
	}
	return Status{State: StateEnabled}
}

// withhold moves disabled and unavailable skills to Withheld. Precedence was decided before, so no other
// skill replaces them.
func (s *Snapshot) withhold() {
	named := map[string]bool{}
	off := func(status Status) bool {
		return status.State == StateUnavailable || status.State == StateDisabled
	}
	for _, sk := range s.Skills {
		if status := s.statusOf(sk, named); status.State != StateEnabled || status.Reasons != nil {
			s.statuses[sk] = status
		}
	}
	requiring := func(sk *Skill) bool { return len(sk.Frontmatter.Requires.Skills) > 0 }
	if s.opts.Platform != "" && slices.ContainsFunc(s.Skills, requiring) {
		s.withholdRequiring(func(sk *Skill) bool { return !off(s.Status(sk)) })
	}
	for _, sk := range s.Skills {
		status := s.Status(sk)
		if off(status) {
			delete(s.byPath, sk.Path)
			s.Withheld = append(s.Withheld, sk)
		}
		if status.State == StateUnavailable {
			for _, reason := range status.Reasons {
				s.note(Warning, CodeRequiresMissing, sk.Path, "%s", reason)
			}
		}
	}
	s.Skills = slices.DeleteFunc(s.Skills, func(sk *Skill) bool { return s.byPath[sk.Path] != sk })
	for _, name := range slices.Concat(s.opts.Disabled, s.opts.Pinned, s.opts.NameOnly) {
		// Before the first scan, no skill is known.
		if !named[name] && s.scanned != nil {
			named[name] = true
			s.note(Warning, CodeUnknownSkill, name, "no skill has this path or name")
		}
	}
}

// statusOf returns the status of a skill in the configuration's choices, then by its frontmatter. It adds the
// operator's entries that match the skill to named.
func (s *Snapshot) statusOf(sk *Skill, named map[string]bool) Status {
	status := Status{State: StateEnabled}
	chosen := func(list []string) bool {
		found := false
		for _, name := range list {
			if name == sk.Path || name == sk.Frontmatter.Name || name == sk.dirName() {
				named[name], found = true, true
			}
		}
		return found
	}
	because := func(format string, args ...any) {
		status.Reasons = append(status.Reasons, fmt.Sprintf(format, args...))
	}
	disabled := chosen(s.opts.Disabled)
	status.Pinned, status.NameOnly = chosen(s.opts.Pinned), chosen(s.opts.NameOnly)
	// The choice of the operator goes before requirements: a reason that can be removed would suggest that
	// the skill comes back.
	if disabled {
		status.State = StateDisabled
		because("disabled in the configuration")
		return status
	}
	if missing := s.opts.missing(sk); len(missing) > 0 {
		status.State, status.Reasons = StateUnavailable, missing
		return status
	}
	if sk.Hidden() {
		status.State = StateHidden
		because("disable-model-invocation is set")
	}
	if !sk.Frontmatter.UserInvocable {
		because("no prompt, user-invocable is false")
	}
	if status.Pinned {
		because("pinned in the configuration")
	}
	if status.NameOnly {
		because("name only, in the configuration")
	}
	return status
}

// Missing returns the requirements of a skill that the host lacks, a phrase each. A required skill is missing
// if has returns false for its name.
func (o *ScanOptions) Missing(sk *Skill, has func(name string) bool) []string {
	missing := o.missing(sk)
	for _, name := range sk.Frontmatter.Requires.Skills {
		if !has(name) {
			missing = append(missing, fmt.Sprintf("requires the skill %q, which is not installed",
				frontmatter.Clip(name, frontmatter.MaxName)))
		}
	}
	return missing
}

// missing returns the requirements of a skill that the host lacks.
func (o *ScanOptions) missing(sk *Skill) []string {
	host := requirementsHost{HasCommand: o.HasCommand, HasEnv: o.HasEnv, Platform: o.Platform}
	if o.HasEnv != nil && o.HasSecret != nil {
		host.HasEnv = func(name string) bool { return o.HasEnv(name) || o.HasSecret(sk.Path, name) }
	}
	return host.Missing(&sk.Frontmatter.Requires)
}

// withholdRequiring makes skills unavailable if they require a skill that is not served, and in turn the
// skills that require them. A requirement is a path, a name or the name of a directory.
func (s *Snapshot) withholdRequiring(served func(sk *Skill) bool) {
	asked := slices.DeleteFunc(slices.Clone(s.Skills), func(sk *Skill) bool { return !served(sk) })
	nodes := make([]requiring, len(asked))
	for i, sk := range asked {
		nodes[i] = requiring{Names: []string{sk.Path, sk.Frontmatter.Name, sk.dirName()},
			Needs: sk.Frontmatter.Requires.Skills}
	}
	for i, reasons := range lacking(nodes) {
		s.statuses[asked[i]] = Status{State: StateUnavailable, Reasons: reasons}
	}
}

// unusable reports whether a skill is not served but reserves its path against less trusted ones.
func (o *ScanOptions) unusable(sk *Skill) bool {
	return sk.broken || o.StrictSkills && !sk.Form.Strict
}

// refuse adds diagnostics for skills that are not served because they are not strictly valid.
func (s *Snapshot) refuse(found []*Skill) {
	if !s.opts.StrictSkills {
		return
	}
	for _, sk := range found {
		if !sk.broken && !sk.Form.Strict {
			s.note(Error, CodeNotStrict, join(sk.Path, sk.File),
				"the strict rules do not accept it; validate names them")
		}
	}
}
