package session

import (
	"errors"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Runnable returns what RunScript would refuse a script of a skill with if it were called like this
// now, or nil: the rules are asked with the same facts, and neither a question to the user nor the
// record is made. That its files have changed on disk since, or that an interpreter or the sandbox is
// missing, only a run tells. r.Skill is not used.
func (s *Session) Runnable(sk *skills.Skill, r RunRequest) *policy.Denial {
	x := &run{request: s.newRequest(r.Call, policy.SideEffect), in: r}
	x.skill, x.path = sk, r.Path
	_, err := s.decide(x.request, s.runFacts(x))
	if err == nil {
		return nil
	}
	if _, asks := errors.AsType[*policy.ApprovalRequired](err); asks && x.file != nil && r.CanAsk && !s.tired(x) {
		return nil
	}
	return policy.DenialOf(err)
}
