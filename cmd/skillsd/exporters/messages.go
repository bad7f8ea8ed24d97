package exporters

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// spanSender returns an exporter of spans.
//
// Errors: the errors of [Options.receiver].
func (o *Options) spanSender(ctx context.Context) (*otlptrace.Exporter, error) {
	to, err := o.receiver(ctx, "TRACES")
	if err != nil {
		return nil, err
	}
	return otlptrace.New(ctx, traceClient{to})
}

// metricSender returns an exporter of metrics.
//
// Errors: the errors of [Options.receiver].
func (o *Options) metricSender(ctx context.Context) (*metricSender, error) {
	to, err := o.receiver(ctx, "METRICS")
	if err != nil {
		return nil, err
	}
	return &metricSender{to, o.temporality(ctx), o.aggregation(ctx)}, nil
}

// traceClient sends spans, which otlptrace has converted to messages. It implements otlptrace.Client.
type traceClient struct{ to *receiver }

func (traceClient) Start(context.Context) error { return nil }
func (traceClient) Stop(context.Context) error  { return nil }

// UploadTraces sends spans. The request of the collector's service has the same fields as TracesData.
func (c traceClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	return c.to.send(ctx, &tracepb.TracesData{ResourceSpans: spans})
}

// metricSender converts metrics to messages and sends them. It implements sdkmetric.Exporter.
type metricSender struct {
	to          *receiver
	temporality sdkmetric.TemporalitySelector
	aggregation sdkmetric.AggregationSelector
}

func (s *metricSender) Temporality(kind sdkmetric.InstrumentKind) metricdata.Temporality {
	return s.temporality(kind)
}

func (s *metricSender) Aggregation(kind sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return s.aggregation(kind)
}

func (*metricSender) ForceFlush(context.Context) error { return nil }
func (*metricSender) Shutdown(context.Context) error   { return nil }

// Export sends metrics. The request of the collector's service has the same fields as MetricsData.
func (s *metricSender) Export(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	return s.to.send(ctx, &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource:     &resourcepb.Resource{Attributes: attributes(metrics.Resource.Attributes())},
		ScopeMetrics: scopes(metrics.ScopeMetrics),
		SchemaUrl:    metrics.Resource.SchemaURL(),
	}}})
}

func scopes(all []metricdata.ScopeMetrics) []*metricspb.ScopeMetrics {
	var messages []*metricspb.ScopeMetrics
	for _, of := range all {
		message := &metricspb.ScopeMetrics{
			Scope: &commonpb.InstrumentationScope{
				Name: of.Scope.Name, Version: of.Scope.Version,
				Attributes: attributes(of.Scope.Attributes.ToSlice()),
			},
			SchemaUrl: of.Scope.SchemaURL,
		}
		for _, m := range of.Metrics {
			message.Metrics = append(message.Metrics, metricOf(m))
		}
		messages = append(messages, message)
	}
	return messages
}

// metricOf returns the message of a metric. A kind of data that no instrument or producer here makes has no
// data points.
func metricOf(m metricdata.Metrics) *metricspb.Metric {
	message := &metricspb.Metric{Name: m.Name, Description: m.Description, Unit: m.Unit}
	switch data := m.Data.(type) {
	case metricdata.Gauge[int64]:
		message.Data = gauge(data)
	case metricdata.Gauge[float64]:
		message.Data = gauge(data)
	case metricdata.Sum[int64]:
		message.Data = sum(data)
	case metricdata.Sum[float64]:
		message.Data = sum(data)
	case metricdata.Histogram[int64]:
		message.Data = histogram(data)
	case metricdata.Histogram[float64]:
		message.Data = histogram(data)
	case metricdata.ExponentialHistogram[int64]:
		message.Data = exponential(data)
	case metricdata.ExponentialHistogram[float64]:
		message.Data = exponential(data)
	}
	return message
}

type number interface{ int64 | float64 }

func gauge[N number](data metricdata.Gauge[N]) *metricspb.Metric_Gauge {
	return &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: points(data.DataPoints)}}
}

func sum[N number](data metricdata.Sum[N]) *metricspb.Metric_Sum {
	return &metricspb.Metric_Sum{Sum: &metricspb.Sum{
		AggregationTemporality: temporality(data.Temporality),
		IsMonotonic:            data.IsMonotonic,
		DataPoints:             points(data.DataPoints),
	}}
}

func points[N number](all []metricdata.DataPoint[N]) []*metricspb.NumberDataPoint {
	var messages []*metricspb.NumberDataPoint
	for _, point := range all {
		message := &metricspb.NumberDataPoint{
			Attributes:        attributes(point.Attributes.ToSlice()),
			StartTimeUnixNano: nanoseconds(point.StartTime),
			TimeUnixNano:      nanoseconds(point.Time),
			Exemplars:         exemplars(point.Exemplars),
		}
		switch value := any(point.Value).(type) {
		case int64:
			message.Value = &metricspb.NumberDataPoint_AsInt{AsInt: value}
		case float64:
			message.Value = &metricspb.NumberDataPoint_AsDouble{AsDouble: value}
		}
		messages = append(messages, message)
	}
	return messages
}

func histogram[N number](data metricdata.Histogram[N]) *metricspb.Metric_Histogram {
	message := &metricspb.Histogram{AggregationTemporality: temporality(data.Temporality)}
	for _, point := range data.DataPoints {
		message.DataPoints = append(message.DataPoints, &metricspb.HistogramDataPoint{
			Attributes:        attributes(point.Attributes.ToSlice()),
			StartTimeUnixNano: nanoseconds(point.StartTime),
			TimeUnixNano:      nanoseconds(point.Time),
			Count:             point.Count,
			Sum:               new(float64(point.Sum)),
			BucketCounts:      point.BucketCounts,
			ExplicitBounds:    point.Bounds,
			Exemplars:         exemplars(point.Exemplars),
			Min:               extreme(point.Min),
			Max:               extreme(point.Max),
		})
	}
	return &metricspb.Metric_Histogram{Histogram: message}
}

func exponential[N number](data metricdata.ExponentialHistogram[N]) *metricspb.Metric_ExponentialHistogram {
	message := &metricspb.ExponentialHistogram{AggregationTemporality: temporality(data.Temporality)}
	for _, point := range data.DataPoints {
		message.DataPoints = append(message.DataPoints, &metricspb.ExponentialHistogramDataPoint{
			Attributes:        attributes(point.Attributes.ToSlice()),
			StartTimeUnixNano: nanoseconds(point.StartTime),
			TimeUnixNano:      nanoseconds(point.Time),
			Count:             point.Count,
			Sum:               new(float64(point.Sum)),
			Scale:             point.Scale,
			ZeroCount:         point.ZeroCount,
			ZeroThreshold:     point.ZeroThreshold,
			Positive:          buckets(point.PositiveBucket),
			Negative:          buckets(point.NegativeBucket),
			Exemplars:         exemplars(point.Exemplars),
			Min:               extreme(point.Min),
			Max:               extreme(point.Max),
		})
	}
	return &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: message}
}

func buckets(b metricdata.ExponentialBucket) *metricspb.ExponentialHistogramDataPoint_Buckets {
	return &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: b.Offset, BucketCounts: b.Counts}
}

func exemplars[N number](all []metricdata.Exemplar[N]) []*metricspb.Exemplar {
	var messages []*metricspb.Exemplar
	for _, exemplar := range all {
		message := &metricspb.Exemplar{
			FilteredAttributes: attributes(exemplar.FilteredAttributes),
			TimeUnixNano:       nanoseconds(exemplar.Time),
			SpanId:             exemplar.SpanID,
			TraceId:            exemplar.TraceID,
		}
		switch value := any(exemplar.Value).(type) {
		case int64:
			message.Value = &metricspb.Exemplar_AsInt{AsInt: value}
		case float64:
			message.Value = &metricspb.Exemplar_AsDouble{AsDouble: value}
		}
		messages = append(messages, message)
	}
	return messages
}

// extreme returns the least or the greatest value of a histogram, or nil without one.
func extreme[N number](e metricdata.Extrema[N]) *float64 {
	value, ok := e.Value()
	if !ok {
		return nil
	}
	return new(float64(value))
}

func temporality(t metricdata.Temporality) metricspb.AggregationTemporality {
	if t == metricdata.DeltaTemporality {
		return metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	}
	return metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
}

// nanoseconds returns a time since 1970, or 0 for the zero time.
func nanoseconds(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// attributes returns messages of attributes. Lists, which no metric and resource has, become text.
func attributes(all []attribute.KeyValue) []*commonpb.KeyValue {
	var messages []*commonpb.KeyValue
	for _, a := range all {
		value := &commonpb.AnyValue{}
		switch a.Value.Type() {
		case attribute.BOOL:
			value.Value = &commonpb.AnyValue_BoolValue{BoolValue: a.Value.AsBool()}
		case attribute.INT64:
			value.Value = &commonpb.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		case attribute.FLOAT64:
			value.Value = &commonpb.AnyValue_DoubleValue{DoubleValue: a.Value.AsFloat64()}
		default:
			value.Value = &commonpb.AnyValue_StringValue{StringValue: a.Value.String()}
		}
		messages = append(messages, &commonpb.KeyValue{Key: string(a.Key), Value: value})
	}
	return messages
}
