package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/exporters"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/telemetry"
	"github.com/skillsd/skillsd/skills"
)

// observation is the metrics and traces of a running server.
type observation struct {
	*exporters.Exporters
	records provenance.Store // to append to; counts the appended events
	page    *http.Server     // nil without --metrics
}

// observe starts the metrics and traces that the flags and the environment request.
func (o *Options) observe(
	ctx context.Context, records provenance.Store, registry *skills.Registry, logger *slog.Logger,
) (*observation, error) {
	// Listen before any request is answered.
	listener, err := o.listenMetrics(ctx)
	if !o.HTTP.Enabled() && errors.Is(err, AddressTaken) {
		// Each client with the same configuration starts its own server.
		logger.WarnContext(ctx, "metrics are not served: the address is in use by another server",
			slog.String("addr", o.Metrics.Addr),
			slog.String("hint", "give each server its own --metrics, or port 0"))
	} else if err != nil {
		return nil, err
	}
	exported, err := exporters.Open(ctx, exporters.Options{
		Env: o.Process.Env, Version: o.Version, Prometheus: listener != nil,
		Producer: telemetry.Rescans(registry.Scans), Logger: logger,
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
	// Without a provider of metrics, the events still name the spans.
	observed.records = telemetry.Count(records, telemetry.New(exported.Meters,
		func() int { return len(registry.Snapshot().Skills) },
		func(path string) bool { return registry.Snapshot().Skill(path) != nil }))
	if listener == nil {
		return observed, nil
	}
	const timeout = 10 * time.Second
	observed.page = &http.Server{
		Handler:           http.MaxBytesHandler(guardMetrics(o.Metrics.Addr, exported.Page), 0),
		ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	logger.InfoContext(ctx, "metrics", slog.String("addr", listener.Addr().String()))
	go func() {
		if err := observed.page.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.ErrorContext(ctx, "metrics are no longer served", tint.Err(err))
		}
	}()
	return observed, nil
}

// end flushes pending data and stops serving the metrics, even after ctx is done. Open answers get a second
// to finish.
func (b *observation) end(ctx context.Context) {
	// The end of ctx is what stopped the server, and the last data must still be sent.
	ctx = context.WithoutCancel(ctx)
	b.Close(ctx)
	if b.page == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if b.page.Shutdown(ctx) != nil {
		b.page.Close()
	}
}

// listenMetrics listens at the address of --metrics; it returns nil without one. It refuses addresses that
// other machines can reach, unless --metrics-insecure is set.
func (o *Options) listenMetrics(ctx context.Context) (net.Listener, error) {
	m := &o.Metrics
	switch {
	case m.Addr == "" && m.Insecure:
		return nil, exit.Usagef("add --metrics ADDR", "--metrics-insecure has no effect alone")
	case m.Addr == "":
		return nil, nil
	}
	listener, err := listenTCP(ctx, "metrics", m.Addr, "127.0.0.1:9464")
	if err != nil {
		return nil, err
	}
	if !m.Insecure && !isLoopback(listener) {
		return nil, errors.Join(exit.Usagef("listen on 127.0.0.1, or accept it with --metrics-insecure",
			"--metrics %s can be reached from other machines and names skills", m.Addr), listener.Close())
	}
	return listener, nil
}

// guardMetrics serves page for GET /metrics if the Host header is localhost, the name in addr or an IP
// address: DNS rebinding could make a web page read it under any other name.
func guardMetrics(addr string, page http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(addr)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		known := err == nil || strings.EqualFold(host, "localhost") || own != "" &&
			strings.EqualFold(host, own)
		if !known || r.Header.Get("Origin") != "" {
			http.Error(w, "the Host header does not name this server, or a web page sent the request",
				http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
