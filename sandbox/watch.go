package sandbox

import (
	"context"
	"time"
)

// Watch ends a run from outside. It calls end with [Canceled] when ctx ends or with [TimedOut] after timeout,
// whichever is first, and returns. Once done is closed, it returns without a call.
func Watch(ctx context.Context, timeout time.Duration, done <-chan struct{}, end func(Outcome)) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
		end(Canceled)
	case <-timer.C:
		end(TimedOut)
	}
}
