package serve

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// parentEvery is the interval at which a server checks that its parent process still exists.
const parentEvery = 5 * time.Second

// withParent returns a context that ends when the parent process has ended, because another process may hold
// the input of the server open forever. It does not end for a process that is meant to outlive its parent:
// one that ignores SIGHUP, as below nohup, and one whose parent adopts orphans or cannot be observed.
func withParent(ctx context.Context, logger *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	if parent <= 1 || signal.Ignored(syscall.SIGHUP) {
		return ctx, cancel
	}
	go func() {
		ticker := time.NewTicker(parentEvery)
		defer ticker.Stop()
		for os.Getppid() == parent {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
		logger.WarnContext(ctx, "the parent process has ended; the server stops")
		cancel()
	}()
	return ctx, cancel
}
