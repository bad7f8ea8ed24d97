package mcpserver

import (
	"context"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
)

// obstacle returns what keeps a client from running a script of a skill it has loaded, in a few words:
// what [ToolRun] would be refused for, called as call was.
func obstacle(ctx context.Context, ses *session.Session, call session.Call, sk *skills.Skill) func(script string) string {
	call.Method = ToolRun
	asks := canAsk(ctx)
	return func(script string) string {
		if denial := ses.Runnable(sk, session.RunRequest{Call: call, Path: script, CanAsk: asks}); denial != nil {
			return denial.Code.Brief()
		}
		return ""
	}
}
