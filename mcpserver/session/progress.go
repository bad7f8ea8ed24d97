package session

import (
	"github.com/skillsd/skillsd/mcpserver/session/progress"
	"github.com/skillsd/skillsd/skills/policy"
)

// reportRun is progress.Report of a run. The last line of its output is shown if that is released, and there
// are no secrets that it could be a part of: one that spans lines is found in the whole output alone.
func (r *run) reportRun() (stop func()) {
	if r.call.Progress == nil {
		return func() {}
	}
	var output *progress.Line
	if r.grant.Release == policy.ReleaseObserved && r.secrets == nil {
		output = new(progress.Line)
		r.cmd.Live = output
	}
	return progress.Report(r.call.Progress, output)
}
