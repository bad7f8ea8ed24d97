package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
)

// detection finds the sandbox backend beside the start of the server: its self-test runs a real
// sandbox, and no client should wait for it.
type detection struct {
	interpreters *detect.Finder
	want         string
	once         sync.Once
	done         chan struct{}
	backend      sandbox.Runner
	err          error
}

func newDetection(want, path string) *detection {
	return &detection{want: want, interpreters: detect.Interpreters(path), done: make(chan struct{})}
}

// start begins the detection once and warns when scripts cannot run.
func (d *detection) start(ctx context.Context, logger *slog.Logger) {
	d.once.Do(func() {
		go func() {
			defer close(d.done)
			d.backend, _, d.err = detect.Select(ctx, d.want, nil)
			if d.err != nil {
				logger.WarnContext(ctx, "no sandbox, scripts are refused", tint.Err(d.err))
				return
			}
			logger.InfoContext(ctx, "sandbox ready", slog.String("backend", d.backend.Name()))
		}()
	})
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
