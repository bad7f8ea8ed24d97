package session

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// decide asks the policy about a request. facts holds what only the caller knows.
//
// Errors: those of [policy.Policy.Decide].
func (s *Session) decide(r *request, facts policy.Request) (policy.Grant, error) {
	facts.Tool, facts.Class, facts.Mode, facts.Slot, facts.Principal = r.call.Method, r.class, r.mode, r.call.Slot, r.call.Principal
	facts.Profiles = []string{s.profile, r.call.Profile}
	if r.skill != nil {
		facts.Skill, facts.Tier = r.skill.Path, r.skill.Root.Tier
		facts.SkillName = cmp.Or(r.skill.Frontmatter.Name, r.skill.Name())
		facts.AllowedTools, facts.AllowedToolsDeclared = r.skill.Frontmatter.AllowedTools, r.skill.Frontmatter.AllowedToolsDeclared
	}
	return s.cfg.Policy.Decide(facts)
}

// decideRead asks the policy about a request that reads.
func (s *Session) decideRead(r *request) (policy.Grant, *policy.Denial) {
	grant, err := s.decide(r, policy.Request{})
	if err != nil {
		return grant, policy.DenialOf(err)
	}
	return grant, nil
}

// excludes returns the refusal of a name that a narrowed call cannot see, whether or not there is such
// a skill: a refusal must not tell.
func (s *Session) excludes(r *request, name string, err error) *policy.Denial {
	missing, ok := errors.AsType[*skills.NotFoundError](err)
	if !ok || !s.narrows(r.call) {
		return nil
	}
	remedy := "the operator can add the skill to the profile"
	if len(missing.Nearest) > 0 && s.cfg.NamesInErrors {
		remedy = "use one of: " + strings.Join(missing.Nearest, ", ") + "; " + remedy
	}
	d := s.denial(r, policy.CodeProfileExcludes, "the profile of this session does not include the skill "+strconv.Quote(clip(name)), remedy)
	d.Skill, d.RuleID = clip(name), "subagent_profile_not_allowed"
	return d
}

// denial builds a refusal that the facts of a file, not the policy, call for.
func (s *Session) denial(r *request, code policy.Code, detail, remedy string) *policy.Denial {
	d := policy.NewDenial(code, r.call.Method+": "+detail, remedy)
	d.Skill, d.Path = r.skillPath(), r.path
	return d
}
