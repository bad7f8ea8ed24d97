package serve

import (
	"context"
	"errors"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
)

// Work runs scripts for the servers of a cluster until ctx ends. It decides by its own options as a server
// would, records nothing and serves no client.
func (o *Options) Work(ctx context.Context) (err error) {
	logger, err := NewLogger(o.Err, o.LogLevel, o.LogFormat, !bool(report.NewPaint(o.Process.Env, o.Err)))
	if err != nil {
		return err
	}
	if err := cluster.CheckWorker(&o.Cluster); err != nil {
		return err
	}
	o.HTTP.Addr, o.HTTP.Unix = "", ""
	p := o.PlanRun()
	defer func() { err = errors.Join(err, p.Close(context.WithoutCancel(ctx), logger)) }()
	if err := p.Err(); err != nil {
		return err
	}
	if !p.Policy.Offers(mcpserver.ToolRun) {
		return exit.Usagef("`skillsd allow --offer-tool SKILL:scripts/PATH` allows one",
			"a worker without allowed scripts has nothing to run")
	}
	if err := p.checkPinned(); err != nil {
		return err
	}
	sessions, err := p.Begin(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	p.Detection.Start(ctx, logger, true)
	defer p.Detection.End()
	if _, err := p.Detection.runner(ctx); err != nil {
		return exit.Errorf(exit.Failure, "see `skillsd doctor`", "a worker needs a sandbox: %w", err)
	}
	if o.watches() {
		watching, stop := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			p.follow(watching, logger, func(context.Context, skills.Diff) {})
		}()
		defer func() { stop(); <-watched }()
	}
	return cluster.Work(ctx, &o.Cluster, sessions, sessions.Logger(logger))
}

// errElsewhere is why a server with workers has no sandbox of its own.
func errElsewhere(pool string) error {
	return &sandbox.UnavailableError{Backend: "none", Reason: "scripts run at the workers of pool " + pool}
}
