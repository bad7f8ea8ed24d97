package redact

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
)

// NewHandler returns a handler that removes secrets from log records and passes them to h. It calls secrets
// for each record.
func NewHandler(h slog.Handler, secrets func() *Redactor) slog.Handler { return &handler{h, secrets} }

// handler is a slog.Handler that removes secrets.
type handler struct {
	slog.Handler
	secrets func() *Redactor
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	secrets := h.secrets()
	if secrets == nil {
		return h.Handler.Handle(ctx, record)
	}
	clean := slog.NewRecord(record.Time, record.Level, secrets.Text(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(secrets.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(h.secrets().attrs(attrs)), h.secrets}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.secrets}
}

func (r *Redactor) attrs(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = r.attr(a)
	}
	return clean
}

// attr returns an attribute with secrets replaced.
func (r *Redactor) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindGroup:
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(r.attrs(value.Group())...)}
	case slog.KindString, slog.KindAny:
		text := value.String()
		if b, ok := value.Any().([]byte); ok {
			text = string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
		} else if value.Kind() == slog.KindAny {
			text = fmt.Sprint(value.Any())
		}
		// An attribute without secrets stays unchanged, so that a handler can distinguish an error from a
		// string.
		if clean := r.Text(text); clean != text {
			return slog.String(a.Key, clean)
		}
	}
	return a
}
