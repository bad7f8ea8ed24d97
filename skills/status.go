package skills

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// State says whether a skill is offered.
type State string

// The states of a skill.
const (
	StateEnabled     State = "enabled"     // offered to models
	StateHidden      State = "hidden"      // not offered to models, as it asks; users can load it
	StateUnavailable State = "unavailable" // lacks something it requires; not served
	StateDisabled    State = "disabled"    // switched off by the operator; not served
)

// Status is a skill's state and what the operator chose for it.
type Status struct {
	State    State
	Pinned   bool // named first wherever room is short
	NameOnly bool // catalogues leave its description out
	// Reasons explain whatever is not the default, one phrase each.
	Reasons []string
}

// Status returns the status of a skill of the snapshot, withheld ones included.
func (s *Snapshot) Status(sk *Skill) Status {
	if status, ok := s.statuses[sk]; ok {
		return status
	}
	return Status{State: StateEnabled}
}

// withhold takes the skills that the operator disabled, and those that lack what they require, out
// of the snapshot. Precedence has been decided before, so nothing replaces a withheld skill.
func (s *Snapshot) withhold() {
	named := map[string]bool{}
	for _, sk := range s.Skills {
		status := s.statusOf(sk, named)
		if status.State != StateEnabled || status.Reasons != nil {
			s.statuses[sk] = status
		}
		if status.State == StateUnavailable || status.State == StateDisabled {
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
		if !named[name] && s.scanned != nil {
			named[name] = true
			s.note(Warning, CodeUnknownSkill, name, "no skill has this path or name")
		}
	}
}

// statusOf returns the status by the operator's choices, then by what the skill declares. It adds the
// entries of the operator's lists that name the skill to named.
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
	if disabled {
		status.State = StateDisabled
		because("disabled by the operator")
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
		because("pinned by the operator")
	}
	if status.NameOnly {
		because("name only, by the operator")
	}
	return status
}

// maxMissing bounds the reasons of one skill.
const maxMissing = 20

// missing returns what a skill requires and the host does not have.
func (o *ScanOptions) missing(sk *Skill) (missing []string) {
	r := &sk.Frontmatter.Requires
	need := func(names []string, has func(string) bool, format string) {
		for _, name := range names {
			if has != nil && len(missing) < maxMissing && isName(name) && !has(name) {
				missing = append(missing, fmt.Sprintf(format, frontmatter.Clip(name, frontmatter.MaxName)))
			}
		}
	}
	need(r.Commands, o.HasCommand, "requires the command %q, which is not on PATH")
	hasEnv := o.HasEnv
	if hasEnv != nil && o.HasSecret != nil {
		hasEnv = func(name string) bool { return o.HasEnv(name) || o.HasSecret(sk.Path, name) }
	}
	need(r.Env, hasEnv, "requires the environment variable %q, which is not set")
	return missing
}

// isName reports whether a text can be the name of a command or a variable. Real skills also list
// sentences, which no host can satisfy.
func isName(name string) bool {
	odd := func(r rune) bool {
		return r <= ' ' || r >= 0x80 ||
			strings.ContainsRune("()[]{}<>,;:\"'`|&=*?!", r)
	}
	return name != "" && len(name) <= frontmatter.MaxName && !strings.ContainsFunc(name, odd)
}

// unusable reports whether a skill only reserves its path against less trusted ones.
func (o *ScanOptions) unusable(sk *Skill) bool {
	return sk.broken || o.StrictSkills && !sk.Verdict.Strict
}

// refuse adds the diagnostics of skills that load and are not served, because only strictly valid ones
// are.
func (s *Snapshot) refuse(found []*Skill) {
	if !s.opts.StrictSkills {
		return
	}
	for _, sk := range found {
		if !sk.broken && !sk.Verdict.Strict {
			s.note(Error, CodeNotStrict, join(sk.Path, sk.File),
				"the strict rules do not accept it; validate names them")
		}
	}
}
