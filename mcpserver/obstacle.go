package mcpserver

import (
	"context"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// obstacle returns what keeps a client from running a script of a skill it has loaded, in a few words:
// what [ToolRun] would be refused for, called as call was.
func obstacle(ctx context.Context, ses *session.Session, call session.Call, sk *skills.Skill) func(script string) string {
	call.Method = ToolRun
	asks := canAsk(ctx)
	return func(script string) string {
		return obstacleText(ses.Runnable(sk, session.RunRequest{Call: call, Path: script, CanAsk: asks}))
	}
}

func obstacleText(denial *policy.Denial) string {
	if denial == nil {
		return ""
	}
	switch denial.Code {
	case policy.CodeToolNotAllowed, policy.CodeScriptNotAllowlisted:
		return "not allowlisted"
	case policy.CodeOutputNotReleased:
		return "its output is not released by the operator"
	case policy.CodeProfileExcludes:
		return "the profile does not include it"
	case policy.CodeScriptSnapshotMismatch:
		return "it is not what the operator allowed"
	case policy.CodeAllowedToolsConflict:
		return "the skill's own allowed-tools do not cover it"
	case policy.CodeTierDenied:
		return "scripts of this tier are not run here"
	case policy.CodePermissionDenied:
		return "it needs the host"
	case policy.CodeLeaseInvalid:
		return "it needs a browser lease"
	case policy.CodeDirectCommandRequired:
		return "nothing shows that the user wants it"
	case policy.CodeApprovalRequired:
		return "it needs an approval that this client cannot ask for"
	case policy.CodeApprovalDeclined:
		return "the user declined it"
	}
	return string(denial.Code)
}
