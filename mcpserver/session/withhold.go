package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// cutMark stands where a text was cut to a length.
const cutMark = "…"

const (
	// maxCutMarks is how many of them a text is looked at before; what is made of clipped words has
	// fewer. maxCut is how many bytes before each, which is more than a clipped word has, quoted.
	maxCutMarks = 4
	maxCut      = 2 << 10
)

// Secrets takes the declared secrets out of what a call brought with it before it is repeated in an
// answer, a record or a log line: the names, paths, arguments and ids that a client or a model chose.
// The contents of skills' files are no such text and are shown as they are.
//
// The zero value knows no secret. It is immutable.
type Secrets struct{ redactor *redactor }

// Secrets returns the declared secrets as they are at the moment.
func (s *Sessions) Secrets() Secrets {
	r, _ := s.redaction()
	return Secrets{r}
}

// None reports that there are none, and that the other methods return what they are given.
func (x Secrets) None() bool { return x.redactor == nil }

// Text returns a text with every secret replaced by [secret NAME]. The beginning of a secret where the
// text was cut, which "…" shows, is left out.
func (x Secrets) Text(s string) string { return x.redactor.said(s) }

// JSON is Text for every string of a JSON text, keys included. All else of it stays byte by byte.
func (x Secrets) JSON(raw json.RawMessage) json.RawMessage { return x.redactor.json(raw) }

// Logger returns a logger that passes on to l what is logged without the secrets in it.
func (s *Sessions) Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(&discreet{l.Handler(), s.Secrets})
}

// said is text for what may have been cut to a length.
func (r *redactor) said(s string) string {
	if r == nil || len(s) < minSecret {
		return s
	}
	b := []byte(s)
	spans := r.find(b)
	for at, marks := 0, 0; marks < maxCutMarks; marks++ {
		i := strings.Index(s[at:], cutMark)
		if i < 0 {
			break
		}
		at += i
		from := max(at-maxCut, 0)
		for _, s := range r.endOf(b[from:at], minCut) {
			spans = append(spans, span{from: from + s.from, to: at})
		}
		at += len(cutMark)
	}
	if len(spans) == 0 {
		return s
	}
	return string(replace(b, spans))
}

func (r *redactor) json(raw []byte) []byte {
	if r == nil {
		return raw
	}
	var out []byte
	done := 0
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		from := i
		for i++; i < len(raw) && raw[i] != '"'; i++ {
			if raw[i] == '\\' {
				i++
			}
		}
		token := raw[from:min(i+1, len(raw))]
		var s string
		if len(token) < minSecret+2 || json.Unmarshal(token, &s) != nil {
			continue
		}
		if clean := r.said(s); clean != s {
			out = append(append(out, raw[done:from]...), encode(clean)...)
			done = i + 1
		}
	}
	if done == 0 {
		return raw
	}
	return append(out, raw[done:]...)
}

// event takes the secrets out of all that an event repeats of a call. What it names by digest and by
// session stays exact, since it is compared.
func (r *redactor) event(e *provenance.Event) {
	if r == nil {
		return
	}
	for _, text := range []*string{&e.Client, &e.Skill, &e.Path, &e.Detail} {
		*text = r.said(*text)
	}
	e.Row, e.Decision, e.Invocation = r.json(e.Row), r.json(e.Decision), r.json(e.Invocation)
}

// discreet is a handler that passes on no secret.
type discreet struct {
	slog.Handler
	secrets func() Secrets
}

// Handle implements slog.Handler.
func (h *discreet) Handle(ctx context.Context, record slog.Record) error {
	secrets := h.secrets()
	if secrets.None() {
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
func (h *discreet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &discreet{h.Handler.WithAttrs(h.secrets().attrs(attrs)), h.secrets}
}

// WithGroup implements slog.Handler.
func (h *discreet) WithGroup(name string) slog.Handler {
	return &discreet{h.Handler.WithGroup(name), h.secrets}
}

func (x Secrets) attrs(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = x.attr(a)
	}
	return clean
}

// attr leaves an attribute as it is unless a secret shows in its text, so that a handler may still tell
// an error from a string.
func (x Secrets) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindGroup:
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(x.attrs(value.Group())...)}
	case slog.KindString, slog.KindAny:
		text := value.String()
		if b, ok := value.Any().([]byte); ok {
			text = string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
		} else if value.Kind() == slog.KindAny {
			text = fmt.Sprint(value.Any())
		}
		if clean := x.Text(text); clean != text {
			return slog.String(a.Key, clean)
		}
	}
	return a
}
