package main

import (
	"context"
	"log/slog"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
)

// detection finds the sandbox backend beside the start of the server: its self-test runs a real
// sandbox, and no client should wait for it.
type detection struct {
	interpreters *detect.Finder
	want, path   string
	stop         context.CancelFunc // nil before start
	done         chan struct{}
	backend      sandbox.Runner
	err          error
}

func newDetection(want, path string) *detection {
	return &detection{want: want, path: path, interpreters: detect.Interpreters(path), done: make(chan struct{})}
}

// start begins the detection, once, and warns when scripts cannot run.
func (d *detection) start(ctx context.Context, logger *slog.Logger) {
	ctx, d.stop = context.WithCancel(ctx)
	go func() {
		defer close(d.done)
		var reports []detect.Report
		d.backend, reports, d.err = detect.Select(ctx, d.want, &detect.Options{Path: d.path})
		switch {
		case ctx.Err() != nil:
		case d.err != nil:
			logger.WarnContext(ctx, "no sandbox, scripts are refused", tint.Err(d.err))
			for _, report := range reports {
				logger.WarnContext(ctx, "sandbox unusable", slog.String("backend", report.Name), slog.String("err", report.Fact))
			}
		default:
			logger.InfoContext(ctx, "sandbox ready", slog.String("backend", d.backend.Name()))
		}
	}()
}

// end stops a detection that is still going on and waits until it has cleaned up behind itself.
func (d *detection) end() {
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

// interpreter returns the interpreter of a runtime, or nil.
func (d *detection) interpreter(ctx context.Context, name string) (*sandbox.Interpreter, error) {
	return d.interpreters.Find(ctx, name)
}
