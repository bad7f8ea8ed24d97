package sandbox

import (
	"context"
	"time"
)

// Watch waits for what ends a run from outside: with ctx it calls end with [Canceled], and after timeout
// with [TimedOut]. It returns after that one call, or without it once done is closed. Of two that are
// there already either may win.
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
