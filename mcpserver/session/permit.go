package session

import (
	"context"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// PermitRequest asks whether facts of the catalogue may be shown that are no file's content, such
// as a list.
type PermitRequest struct {
	Call  Call
	Skill *skills.Skill // optional: the one skill it is about
	Path  string        // optional: the file or directory of it
}

// Permit decides about a read of the catalogue. What is allowed is not recorded: it activates
// nothing and shows no content. A denial is.
//
// Errors: *Denied, *Error.
func (s *Session) Permit(ctx context.Context, r PermitRequest) error {
	req := s.newRequest(r.Call, policy.Read)
	req.skill, req.path = r.Skill, r.Path
	if r.Skill != nil {
		req.summary.Skill = &r.Skill.Path
	}
	if r.Path != "" {
		req.summary.Path = new(clip(r.Path))
	}
	if _, denial := s.decideRead(req); denial != nil {
		return s.deny(ctx, req, denial)
	}
	return nil
}
