package main

import (
	"context"
	"errors"

	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/sandbox"
)

// sandbox tests whether the sandbox of the configuration works on this machine. It returns its name, or why
// it does not work.
func (a *app) sandbox(ctx context.Context) (backend, problem string) {
	runner, err := environments.Sandbox(ctx, &a.Process, a.Cfg.Keys.Sandbox)
	if err == nil {
		return runner.Name(), ""
	}
	if unavailable, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		return "", unavailable.Reason
	}
	return "", err.Error()
}

// warnSandbox warns if no script can run because of the sandbox.
func (a *app) warnSandbox(ctx context.Context) {
	if _, problem := a.sandbox(ctx); problem != "" {
		a.notef("skillsd: warning: no script runs on this machine yet: %s\nskillsd: hint: "+
			"`skillsd doctor` prints a solution", report.Printable(problem))
	}
}
