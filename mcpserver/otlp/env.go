package otlp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultTimeout is how long a batch may take when the environment does not say.
const defaultTimeout = 10 * time.Second

// FromEnv returns what the variables of the OpenTelemetry specification say, nil when they ask for no
// traces: when neither OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set,
// OTEL_SDK_DISABLED is true, or OTEL_TRACES_EXPORTER names other exporters only. Of
// OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT and _PROTOCOL the form with TRACES comes first, too.
//
// Errors: a value that cannot be used, and the protocol grpc. No value of a variable stands in the
// error, for it may be a secret.
func FromEnv(lookup func(string) (string, bool)) (*Config, error) {
	get := func(name string) string {
		value, _ := lookup(name)
		return strings.TrimSpace(value)
	}
	both := func(name string) string {
		return cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_"+name), get("OTEL_EXPORTER_OTLP_"+name))
	}
	exporters := strings.Split(cmp.Or(get("OTEL_TRACES_EXPORTER"), "otlp"), ",")
	if both("ENDPOINT") == "" || strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") || !slices.Contains(exporters, "otlp") {
		return nil, nil
	}
	if both("PROTOCOL") == "grpc" {
		return nil, errors.New("OTEL_EXPORTER_OTLP_PROTOCOL is grpc, only HTTP is spoken here")
	}
	endpoint, err := endpointOf(get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), get("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if err != nil {
		return nil, err
	}
	cfg := &Config{Endpoint: endpoint, Timeout: defaultTimeout, Service: "skillsd"}
	if cfg.Headers, err = parseHeaders(both("HEADERS")); err != nil {
		return nil, err
	}
	if text := both("TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil || ms == 0 {
			return nil, errors.New("OTEL_EXPORTER_OTLP_TIMEOUT is no number of milliseconds")
		}
		cfg.Timeout = time.Duration(ms) * time.Millisecond
	}
	return cfg, nil
}

// endpointOf is the URL for traces: the one for traces as it stands, or the one for all signals with
// their path below it.
func endpointOf(traces, all string) (string, error) {
	name, text := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", traces
	if traces == "" {
		name, text = "OTEL_EXPORTER_OTLP_ENDPOINT", all
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", fmt.Errorf("%s is no http or https URL", name)
	}
	if traces == "" {
		u = u.JoinPath("v1", "traces")
	}
	return u.String(), nil
}

// parseHeaders reads name=value pairs between commas, the values percent-encoded.
func parseHeaders(text string) (http.Header, error) {
	headers := http.Header{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || err != nil || !isToken(name) || strings.ContainsFunc(value, isControl) {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS is not of the form name=value,name=value")
		}
		headers.Set(name, value)
	}
	return headers, nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isToken reports whether name can be the name of a header.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
