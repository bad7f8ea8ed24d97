package exporters

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/net/http/httpguts"
)

// sends reports whether the environment enables a signal, TRACES or METRICS.
func (o *Options) sends(ctx context.Context, signal string) bool {
	wanted := strings.Split(cmp.Or(o.variable("OTEL_"+signal+"_EXPORTER"), "otlp"), ",")
	endpoint := o.setting(signal, "ENDPOINT")
	disabled := strings.EqualFold(o.variable("OTEL_SDK_DISABLED"), "true")
	if endpoint == "" || disabled || !slices.Contains(wanted, "otlp") {
		return false
	}
	u, err := url.Parse(endpoint)
	switch {
	case o.setting(signal, "PROTOCOL") == "grpc":
		err = errors.New("OTEL_EXPORTER_OTLP_PROTOCOL is grpc; use http/protobuf or http/json")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		err = errors.New("OTEL_EXPORTER_OTLP_ENDPOINT is not an http or https URL")
	}
	if err != nil {
		o.Logger.WarnContext(ctx, "no "+strings.ToLower(signal)+" are sent", tint.Err(err))
	}
	return err == nil
}

// setting returns the value of OTEL_EXPORTER_OTLP_NAME for a signal, TRACES or METRICS: the value of the
// signal's own variable, else the value of the variable for all signals.
func (o *Options) setting(signal, name string) string {
	return cmp.Or(o.variable("OTEL_EXPORTER_OTLP_"+signal+"_"+name), o.variable("OTEL_EXPORTER_OTLP_"+name))
}

func (o *Options) variable(name string) string {
	value, _ := o.Env(name)
	return strings.TrimSpace(value)
}

// endpoint returns the URL of a signal. The variable for all signals has a base URL, to whose path the signal
// is added.
func (o *Options) endpoint(signal string) string {
	own := o.variable("OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT")
	u, err := url.Parse(cmp.Or(own, o.variable("OTEL_EXPORTER_OTLP_ENDPOINT")))
	if err != nil {
		// Options.sends has parsed it before.
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	if own == "" {
		return u.JoinPath("v1", strings.ToLower(signal)).String()
	}
	u.Path = cmp.Or(u.Path, "/")
	return u.String()
}

// headers returns the headers of requests. They are written name=value,name=value, with escapes of URLs in
// the values.
func (o *Options) headers(ctx context.Context, signal string) http.Header {
	header := http.Header{"User-Agent": {"skillsd/" + cmp.Or(o.Version, "unknown")}}
	for pair := range strings.SplitSeq(o.setting(signal, "HEADERS"), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, escaped, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(escaped)
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		valid := httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value)
		if !ok || err != nil || !valid {
			o.unused(ctx, "HEADERS is not name=value,name=value")
			continue
		}
		header.Set(name, value)
	}
	return header
}

func (o *Options) timeout(ctx context.Context, signal string) time.Duration {
	value := o.setting(signal, "TIMEOUT")
	if value == "" {
		return defaultTimeout
	}
	milliseconds, err := strconv.Atoi(value)
	if err != nil || milliseconds < 0 {
		o.unused(ctx, "TIMEOUT is not a number of milliseconds")
		return defaultTimeout
	}
	return time.Duration(milliseconds) * time.Millisecond
}

// certificates returns the configuration of TLS, or nil without a variable for it.
func (o *Options) certificates(ctx context.Context, signal string) *tls.Config {
	var config tls.Config
	if file := o.setting(signal, "CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(text) {
			o.unused(ctx, "CERTIFICATE is not a readable file with certificates")
		} else {
			config.RootCAs = pool
		}
	}
	certificate, key := o.pair("OTEL_EXPORTER_OTLP_" + signal + "_")
	if certificate == "" || key == "" {
		// A certificate and a key that belong to different variables would not fit.
		certificate, key = o.pair("OTEL_EXPORTER_OTLP_")
	}
	if certificate != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			o.unused(ctx, "CLIENT_CERTIFICATE and CLIENT_KEY are not files with a certificate and its key")
		} else {
			config.Certificates = []tls.Certificate{pair}
		}
	}
	if config.RootCAs == nil && config.Certificates == nil {
		return nil
	}
	return &config
}

// pair returns the files of the client's certificate and its key.
func (o *Options) pair(prefix string) (certificate, key string) {
	return o.variable(prefix + "CLIENT_CERTIFICATE"), o.variable(prefix + "CLIENT_KEY")
}

// temporality returns the temporality of metrics that the environment prefers.
func (o *Options) temporality(ctx context.Context) sdkmetric.TemporalitySelector {
	const name = "METRICS_TEMPORALITY_PREFERENCE"
	switch strings.ToLower(o.variable("OTEL_EXPORTER_OTLP_" + name)) {
	case "delta":
		return sdkmetric.DeltaTemporalitySelector
	case "lowmemory":
		return sdkmetric.LowMemoryTemporalitySelector
	case "", "cumulative":
	default:
		o.unused(ctx, name+" is not cumulative, delta or lowmemory")
	}
	return sdkmetric.CumulativeTemporalitySelector
}

// aggregation returns the aggregation of metrics that the environment prefers.
func (o *Options) aggregation(ctx context.Context) sdkmetric.AggregationSelector {
	const name = "METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
	switch strings.ToLower(o.variable("OTEL_EXPORTER_OTLP_" + name)) {
	case "base2_exponential_bucket_histogram":
		return func(kind sdkmetric.InstrumentKind) sdkmetric.Aggregation {
			if kind == sdkmetric.InstrumentKindHistogram {
				// The defaults of the specification of the SDK.
				return sdkmetric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}
			}
			return sdkmetric.DefaultAggregationSelector(kind)
		}
	case "", "explicit_bucket_histogram":
	default:
		o.unused(ctx, name+" is not explicit_bucket_histogram or base2_exponential_bucket_histogram")
	}
	return sdkmetric.DefaultAggregationSelector
}

// unused logs why a variable of the exporter is not used. The problem must not quote the value, which may be
// a secret.
func (o *Options) unused(ctx context.Context, problem string) {
	o.Logger.WarnContext(ctx, "an OTEL_* variable is not used",
		slog.String("problem", "OTEL_EXPORTER_OTLP_"+problem))
}
