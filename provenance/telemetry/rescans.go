package telemetry

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Rescans produces the metric skillsd.rescan from a function that returns how many scans of the roots
// were done and how long they took together. A registry keeps these totals and not the single times, so
// the histogram has one bucket.
type Rescans func() (n int, took time.Duration)

var _ metric.Producer = (Rescans)(nil)

// Produce implements [metric.Producer].
func (r Rescans) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	n, took := r()
	point := metricdata.HistogramDataPoint[float64]{
		Time:         time.Now(),
		Count:        uint64(min(max(n, 0), math.MaxInt32)),
		Sum:          took.Seconds(),
		BucketCounts: []uint64{uint64(n)},
	}
	return []metricdata.ScopeMetrics{{
		Scope: instrumentation.Scope{Name: Scope},
		Metrics: []metricdata.Metrics{{
			Name:        "skillsd.rescan",
			Description: "Scans of the skill roots, the first one included.",
			Unit:        "s",
			Data: metricdata.Histogram[float64]{
				DataPoints:  []metricdata.HistogramDataPoint[float64]{point},
				Temporality: metricdata.CumulativeTemporality,
			},
		}},
	}}, nil
}
