package session

import "github.com/skillsd/skillsd/skills/policy"

// decide asks the policy about a request. facts holds what only the caller knows.
func (s *Session) decide(r *request, facts policy.Request) (policy.Grant, *policy.Denial) {
	facts.Tool, facts.Class, facts.Mode, facts.Slot, facts.Principal = r.call.Method, r.class, r.mode, r.call.Slot, r.call.Principal
	if r.skill != nil {
		facts.Skill, facts.Tier = r.skill.Path, r.skill.Root.Tier
		facts.AllowedTools, facts.AllowedToolsDeclared = r.skill.Frontmatter.AllowedTools, r.skill.Frontmatter.AllowedToolsDeclared
	}
	grant, err := s.cfg.Policy.Decide(facts)
	if err == nil {
		return grant, nil
	}
	return policy.Grant{}, policy.DenialOf(err)
}

// denial builds a refusal that the facts of a file, not the policy, call for.
func (s *Session) denial(r *request, code policy.Code, detail, remedy string) *policy.Denial {
	d := policy.NewDenial(code, r.call.Method+": "+detail, remedy)
	d.Skill, d.Path = r.skillPath(), r.path
	return d
}
