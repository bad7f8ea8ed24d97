package exporters

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/skills/pattern"
)

const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"

	defaultTimeout = 10 * time.Second // of one request, as in the specification of the exporter
	retryFor       = time.Minute      // from the first request to the last retry
	maxAnswer      = 64 << 10         // bytes of a collector's answer that are read
)

// receiver is the collector of one signal over OTLP/HTTP, as the environment describes it. It is safe for
// concurrent use. See https://opentelemetry.io/docs/specs/otel/protocol/exporter.
type receiver struct {
	signal string // traces or metrics
	url    string
	header http.Header
	client *http.Client
	gzip   bool
	json   bool
	// secrets are the values of headers, which a collector may repeat in an error.
	secrets *redact.Redactor
}

// receiver returns the collector of a signal, TRACES or METRICS, which the environment must enable, see
// [Options.sends]. Values that are not of the form in the specification are not used, with a warning.
//
// Errors: certificates for an endpoint without TLS.
func (o *Options) receiver(ctx context.Context, signal string) (*receiver, error) {
	r := &receiver{
		signal: strings.ToLower(signal),
		url:    o.endpoint(signal),
		header: o.headers(ctx, signal),
		gzip:   o.setting(signal, "COMPRESSION") == "gzip",
		json:   o.setting(signal, "PROTOCOL") == "http/json",
	}
	r.secrets = secretsOf(r.header)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = o.certificates(ctx, signal)
	if transport.TLSClientConfig != nil && strings.HasPrefix(r.url, "http:") {
		return nil, errors.New("the endpoint has the scheme http, for which no certificates can be used")
	}
	r.client = &http.Client{
		Transport: transport,
		Timeout:   o.timeout(ctx, signal),
		// A redirected request would send the configured headers elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the collector redirects, which is not followed")
		},
	}
	return r, nil
}

// secretsOf returns the values of headers that may be secrets. Of a value with several words, such as a
// scheme and a token, the last word is one.
func secretsOf(header http.Header) *redact.Redactor {
	secrets := map[string]string{}
	for name := range header {
		words := strings.Fields(header.Get(name))
		if name == "User-Agent" || len(words) == 0 {
			continue
		}
		if last := words[len(words)-1]; len(last) >= redact.MinBytes && len(last) <= redact.MaxBytes {
			secrets[name] = last
		}
	}
	// All values have a size that can be redacted.
	redactor, _ := redact.New(secrets)
	return redactor
}

// send sends a message, and again for up to a minute while the collector is overloaded or cannot be reached.
//
// Errors: the last failure; the collector rejects a part of the message. They may quote the collector and
// URLs.
func (r *receiver) send(ctx context.Context, message proto.Message) error {
	body, err := r.encode(message)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.signal, err)
	}
	err = r.deliver(ctx, body)
	if err != nil {
		return errors.New(r.secrets.Text(err.Error()))
	}
	return nil
}

// deliver posts a body until it is accepted or refused.
func (r *receiver) deliver(ctx context.Context, body []byte) error {
	waits := &backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Second, MaxInterval: 30 * time.Second,
		RandomizationFactor: backoff.DefaultRandomizationFactor, Multiplier: backoff.DefaultMultiplier,
	}
	waits.Reset()
	for begin := time.Now(); ; {
		got, err := r.post(ctx, body)
		if err == nil {
			return got.rejection(r.signal)
		}
		again, ok := errors.AsType[*againError](err)
		if !ok {
			return err
		}
		wait := max(again.after, waits.NextBackOff())
		if time.Since(begin)+wait > retryFor {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// againError is a failure after which a request is sent again.
type againError struct {
	error
	after time.Duration // the collector asks for this time until then
}

// encode returns the body of a request. In OTLP's JSON, enumerations are numbers, and identifiers are in
// base 16.
func (r *receiver) encode(message proto.Message) ([]byte, error) {
	body, err := proto.Marshal(message)
	if r.json {
		body, err = protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(message)
		body = identifier().ReplaceAllFunc(body, inBase16)
	}
	if err != nil || !r.gzip {
		return body, err
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	// A buffer accepts all writes.
	_, _ = w.Write(body)
	_ = w.Close()
	return compressed.Bytes(), nil
}

// identifier matches a member of OTLP's JSON with an identifier in base 64. Inside of a string, its quotes
// would be escaped.
var identifier = pattern.New(`"(traceId|spanId|parentSpanId)": *"[A-Za-z0-9+/=]*"`)

// inBase16 returns a member of JSON with its value in base 16 instead of 64.
func inBase16(member []byte) []byte {
	quoted := bytes.LastIndexByte(member[:len(member)-1], '"')
	id, err := base64.StdEncoding.DecodeString(string(member[quoted+1 : len(member)-1]))
	if err != nil {
		return member
	}
	return append(hex.AppendEncode(bytes.Clone(member[:quoted+1]), id), '"')
}

// answer is the body of a successful answer.
type answer struct {
	contentType string
	body        []byte
}

// post sends one request.
//
// Errors: *againError; any other failure is one after which a retry is useless.
func (r *receiver) post(ctx context.Context, body []byte) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header = r.header.Clone()
	request.Header.Set("Content-Type", protobufType)
	if r.json {
		request.Header.Set("Content-Type", jsonType)
	}
	if r.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := r.client.Do(request)
	if err != nil {
		if temporary, ok := errors.AsType[*url.Error](err); ok && temporary.Temporary() {
			return answer{}, &againError{error: err}
		}
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return answer{}, failure(response, text)
	}
	if err != nil {
		return answer{}, err
	}
	return answer{response.Header.Get("Content-Type"), text}, nil
}

// failure returns the error for an answer that is not a success, with its text.
func failure(response *http.Response, text []byte) error {
	err := errors.New("the collector answers " + response.Status)
	if text = bytes.TrimSpace(text); len(text) > 0 {
		err = fmt.Errorf("%w: %s", err, text)
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return &againError{err, retryAfter(response.Header.Get("Retry-After"))}
	}
	return err
}

// retryAfter returns the time that a header Retry-After names, in seconds or as a date, or 0.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, min(seconds, int(retryFor/time.Second)+1))) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(0, time.Until(at))
}

// rejection returns an error if the collector did not accept all of a message: the partial success of OTLP,
// whose messages for the signals have the same form.
func (a answer) rejection(signal string) error {
	var rejected int64
	var problem string
	switch a.contentType {
	case protobufType:
		partial := protoField(a.body, 1)
		number, _ := protowire.ConsumeVarint(protoField(partial, 1))
		rejected, problem = int64(number), string(protoField(partial, 2))
	case jsonType:
		rejected, problem = rejectionInJSON(a.body)
	}
	if rejected == 0 && problem == "" {
		return nil
	}
	what := "spans"
	if signal == "metrics" {
		what = "data points"
	}
	return fmt.Errorf("the collector rejects %d %s: %s", rejected, what, problem)
}

// rejectionInJSON returns the partial success in OTLP's JSON, in which a number may be a string.
func rejectionInJSON(body []byte) (rejected int64, problem string) {
	var answer struct {
		PartialSuccess struct {
			RejectedSpans, RejectedDataPoints json.Number
			ErrorMessage                      string
		}
	}
	if json.Unmarshal(body, &answer) != nil {
		return 0, ""
	}
	partial := &answer.PartialSuccess
	rejected, _ = cmp.Or(partial.RejectedSpans, partial.RejectedDataPoints).Int64()
	return rejected, partial.ErrorMessage
}

// protoField returns the bytes of a field, a message or a string, or the encoded number of a numeric one; it
// returns nil for a missing field and for a message that is not valid.
func protoField(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		found, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(found, kind, message)
		if n < 0 {
			return nil
		}
		value := message[:n]
		message = message[n:]
		if found != number {
			continue
		}
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		return value
	}
	return nil
}
