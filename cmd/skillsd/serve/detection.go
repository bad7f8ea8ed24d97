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
	euid         int                // the server's user; 0 could have control groups
	stop         context.CancelFunc // nil before start
	done         chan struct{}
	backend      sandbox.Runner
	reports      []detect.Report // of the candidates
	err          error
}

func newDetection(want, path string) *detection {
	return &detection{want: want, path: path, euid: os.Geteuid(), interpreters: detect.Interpreters(path),
		done: make(chan struct{})}
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
				d.warn(ctx, logger, &report)
			}
		}
	}()
}

// warn warns of limits that are weaker than the server's user could have. That is unusual for root only,
// which could have control groups.
func (d *detection) warn(ctx context.Context, logger *slog.Logger, report *detect.Report) {
	if d.euid != 0 || report.Enforces == nil || report.Enforces.Memory != native.MemorySampled {
		return
	}
	logger.WarnContext(ctx, "sandbox without memory cgroup, memory limits are sampled",
		slog.String("backend", report.Name), slog.String("memory", string(report.Enforces.Memory)),
		slog.String("processes", report.Enforces.Processes))
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

// interpreter returns the interpreter of a runtime, or nil.
func (d *detection) interpreter(ctx context.Context, name string) (*sandbox.Interpreter, error) {
	return d.interpreters.Find(ctx, name)
}
