package serve

import (
	"context"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/native"
)

// detection finds the sandbox backend while the server starts: the self-test of a backend runs a real
// sandbox, and no client should wait for it.
type detection struct {
	interpreters *detect.Finder
	want, path   string
	stop         context.CancelFunc // nil before Start
	done         chan struct{}
	backend      sandbox.Runner
	reports      []detect.Report // of the candidates
	err          error
}

// Start begins the detection and logs a warning if scripts cannot run. It is called at most once.
func (d *detection) Start(ctx context.Context, logger *slog.Logger) {
	ctx, d.stop = context.WithCancel(ctx)
	go func() {
		defer close(d.done)
		d.backend, d.reports, d.err = detect.Select(ctx, d.want, &detect.Options{Path: d.path})
		switch {
		case ctx.Err() != nil:
		case d.err != nil:
			logger.WarnContext(ctx, "no sandbox, scripts are refused", tint.Err(d.err))
			for _, report := range d.reports {
				logger.WarnContext(ctx, "sandbox unusable", slog.String("backend", report.Name),
					slog.String("err", report.Fact))
			}
		default:
			logger.InfoContext(ctx, "sandbox ready", slog.String("backend", d.backend.Name()))
			for _, report := range d.reports {
				// Sampling is weaker than what root could have, and usual for other users.
				if e := report.Enforces; e != nil && e.Memory == native.MemorySampled && os.Geteuid() == 0 {
					logger.WarnContext(ctx, "sandbox without memory cgroup, memory limits are sampled",
						slog.String("backend", report.Name), slog.String("memory", string(e.Memory)),
						slog.String("processes", e.Processes))
				}
			}
		}
	}()
}

// End stops a detection that is still running and waits until it has cleaned up.
func (d *detection) End() {
	if d.stop != nil {
		d.stop()
		<-d.done
	}
}

// runner returns the backend, waiting for its self-test.
func (d *detection) runner(ctx context.Context) (sandbox.Runner, error) {
	select {
	case <-d.done:
		return d.backend, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// enforces returns how the backend enforces the limits of memory and of processes, empty without a backend.
func (d *detection) enforces() (memory, processes string) {
	<-d.done
	for _, report := range d.reports {
		if report.OK && report.Enforces != nil {
			memory, processes = string(report.Enforces.Memory), report.Enforces.Processes
		}
	}
	return memory, processes
}
