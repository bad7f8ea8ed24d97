package serve

import (
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// NewLogger builds the server's logger. It writes to stderr only: stdout is the protocol.
func NewLogger(w io.Writer, level, format string, noColor bool) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return nil, exit.Usagef("use debug, info, warn or error", "--log-level: unknown level %q", level)
	}
	terminal := report.IsTerminal(w)
	switch {
	case format == "text", format == "auto" && terminal:
		return TextLogger(w, l, noColor || !terminal), nil
	case format == "json", format == "auto":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
	}
	return nil, exit.Usagef("use auto, text or json", "--log-format: unknown format %q", format)
}

// TextLogger returns a logger for a reader.
func TextLogger(w io.Writer, level slog.Level, noColor bool) *slog.Logger {
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, NoColor: noColor,
		TimeFormat: time.TimeOnly}))
}
