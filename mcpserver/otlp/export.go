package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/lmittmann/tint"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

var _ sdk.SpanExporter = (*exporter)(nil)

// exporter posts batches.
type exporter struct {
	cfg     Config
	client  *http.Client
	failing atomic.Bool
}

// ExportSpans implements sdk.SpanExporter. It never returns an error: the SDK would write it to stderr
// past the log.
func (x *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := x.post(ctx, spans)
	if was := x.failing.Swap(err != nil); err != nil && !was {
		x.cfg.Logger.WarnContext(ctx, "traces are not delivered", tint.Err(err))
	} else if err == nil && was {
		x.cfg.Logger.InfoContext(ctx, "traces are delivered again", slog.Int("spans", len(spans)))
	}
	return nil
}

func (x *exporter) post(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	body, err := json.Marshal(encode(spans))
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, x.cfg.Endpoint, bytes.NewReader(body))
	if err != nil {
		return errors.New("the endpoint of traces is no URL")
	}
	for name, values := range x.cfg.Headers {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := x.client.Do(request)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the URL may hold a secret
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// What is left unread costs the connection, no more.
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxReply))
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %d", response.StatusCode)
	}
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (x *exporter) Shutdown(context.Context) error { return nil }
