package serve

import (
	"context"
	"log/slog"

	"github.com/lmittmann/tint"
	"go.opentelemetry.io/otel/trace"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/otlp"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
)

// observation is what the operator can see of the records while they are made.
type observation struct {
	records provenance.Store // to append to
	metrics *metricsServer   // nil without --metrics
	traces  *otlp.Traces     // nil when the environment asks for none
}

// observe starts metrics and traces, as far as they are asked for.
func (o *Options) observe(ctx context.Context, records provenance.Store, registry *skills.Registry, logger *slog.Logger) (*observation, error) {
	records, metrics, err := o.Metrics.open(ctx, records, registry, !o.HTTP.enabled(), logger)
	if err != nil {
		return nil, err
	}
	metrics.start(ctx)
	traces := openTraces(ctx, o.Process.Env, o.Version, logger)
	if traces != nil {
		records = mcpserver.TraceRecords(records, serves(registry))
	}
	return &observation{records, metrics, traces}, nil
}

// serves tells whether a skill is served now.
func serves(registry *skills.Registry) func(path string) bool {
	return func(path string) bool { return registry.Snapshot().Skill(path) != nil }
}

// spans is where spans come from, nil when there are none.
func (b *observation) spans() trace.TracerProvider {
	if b.traces == nil {
		return nil
	}
	return b.traces.Provider()
}

// end sends the spans that wait and ends the metrics, whatever has become of ctx.
func (b *observation) end(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	if b.traces != nil {
		b.traces.Close(ctx)
	}
	b.metrics.end(ctx)
}

// openTraces returns where spans go, nil when the environment asks for none. The variables are those
// of every program, so a value that cannot be used costs the traces and not the server.
func openTraces(ctx context.Context, env func(string) (string, bool), version string, logger *slog.Logger) *otlp.Traces {
	cfg, err := otlp.FromEnv(env)
	if cfg == nil && err == nil {
		return nil
	}
	var traces *otlp.Traces
	if err == nil {
		cfg.Version, cfg.Logger = version, logger
		traces, err = otlp.Open(ctx, *cfg)
	}
	if err != nil {
		logger.WarnContext(ctx, "no traces are sent", tint.Err(err))
		return nil
	}
	return traces
}
