package serve

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// parentEvery is how often a server looks whether the process that started it is still there.
const parentEvery = 5 * time.Second

// withParent returns a context that ends when the process that started this one has ended: another process
// may hold the input of the server open for ever. What was started to outlive its parent does: a process that
// ignores SIGHUP, as below nohup, and one whose parent adopts orphans or cannot be seen.
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
		logger.WarnContext(ctx, "the process that started this server has ended, and so does the server")
		cancel()
	}()
	return ctx, cancel
}
