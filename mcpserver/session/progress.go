package session

import (
	"fmt"
	"sync"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/progress"
	"github.com/skillsd/skillsd/skills/policy"
)

const progressEvery = time.Second

// reportRun says every second how long a run has lasted and, if its output is released, the last line of it,
// until the returned function is called, which waits for the report. A line is shown only if there are no
// secrets that it could be a part of: one that spans lines is found in the whole output alone.
func (r *run) reportRun() (stop func()) {
	if r.call.Progress == nil {
		return func() {}
	}
	var output *progress.Line
	if r.grant.Release == policy.ReleaseObserved && r.secrets == nil {
		output = new(progress.Line)
		r.cmd.Live = output
	}
	r.call.progress("running")
	begun, done := time.Now(), make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.call.progress(fmt.Sprintf("running %d s%s", int(time.Since(begun).Seconds()),
					output.Shown()))
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		reporting.Wait()
	}
}
