package serve

import (
	"context"
	"errors"
	"log/slog"

	"github.com/skillsd/skillsd/cmd/skillsd/exporters"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/telemetry"
	"github.com/skillsd/skillsd/skills"
)

// observation is what an operator can see of the server while it runs.
type observation struct {
	*exporters.Exporters
	records provenance.Store // to append to; it counts what it accepts
	page    *metricsServer   // nil without --metrics
}

// observe opens metrics and traces, as far as the flags and the environment ask for them.
func (o *Options) observe(
	ctx context.Context, records provenance.Store, registry *skills.Registry, logger *slog.Logger,
) (*observation, error) {
	listener, err := o.metrics().open(ctx, !o.HTTP.Enabled(), logger)
	if err != nil {
		return nil, err
	}
	exported, err := exporters.Open(ctx, exporters.Options{
		Env:        o.Process.Env,
		Version:    o.Version,
		Prometheus: listener != nil,
		Producer:   telemetry.Rescans(registry.Scans),
		Logger:     logger,
	})
	if err != nil {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
		return nil, err
	}
	observed := &observation{Exporters: exported, records: records}
	if exported.Meters == nil && exported.Traces == nil {
		return observed, nil
	}
	// Without a provider of metrics the events still name the spans.
	counters, err := telemetry.New(exported.Meters, telemetry.Options{
		Skills: func() int { return len(registry.Snapshot().Skills) },
		Serves: func(path string) bool { return registry.Snapshot().Skill(path) != nil },
	})
	if err != nil {
		exported.Close(ctx)
		return nil, err
	}
	observed.records = telemetry.Count(records, counters)
	observed.page = o.metrics().serve(ctx, listener, exported.Page, logger)
	return observed, nil
}

// end sends what waits to be sent and stops serving the metrics, even after ctx is done.
func (b *observation) end(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	b.Close(ctx)
	b.page.end(ctx)
}
