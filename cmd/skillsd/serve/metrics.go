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

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/lmittmann/tint"
)

// metricsOptions serves metrics as the options say.
type metricsOptions struct{ *config.Metrics }

// metrics returns what serves metrics with these options.
func (o *Options) metrics() metricsOptions { return metricsOptions{&o.Metrics} }

// Limits of a request for metrics.
const (
	metricsTimeout = 10 * time.Second
	metricsHeader  = 16 << 10
)

// metricsServer serves the page of metrics at an address of its own. The nil *metricsServer serves none.
type metricsServer struct {
	server   *http.Server
	listener net.Listener
	done     chan struct{}
	logger   *slog.Logger
}

// open listens, before anything is answered anywhere. It returns nil without --metrics, and on stdio if
// another server has the address.
func (o metricsOptions) open(ctx context.Context, stdio bool, logger *slog.Logger) (net.Listener, error) {
	if err := o.check(); err != nil || o.Addr == "" {
		return nil, err
	}
	listener, err := o.listen(ctx)
	if stdio && errors.Is(err, AddressTaken) {
		// Each client of one configuration starts a server of its own.
		logger.WarnContext(ctx, "metrics are not served: another server has the address",
			slog.String("addr", o.Addr), slog.String("hint", "give each server its own --metrics, or port 0"))
		return nil, nil
	}
	return listener, err
}

// serve starts to serve page on listener, if there is one, until end.
func (o metricsOptions) serve(
	ctx context.Context, listener net.Listener, page http.Handler, logger *slog.Logger,
) *metricsServer {
	if listener == nil {
		return nil
	}
	m := &metricsServer{listener: listener, done: make(chan struct{}), logger: logger}
	m.server = &http.Server{
		Handler:           http.MaxBytesHandler(o.handler(page), 0),
		ReadHeaderTimeout: metricsTimeout,
		ReadTimeout:       metricsTimeout,
		WriteTimeout:      metricsTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    metricsHeader,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	logger.InfoContext(ctx, "metrics", slog.String("addr", listener.Addr().String()))
	go func() {
		defer close(m.done)
		if err := m.server.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
			m.logger.ErrorContext(ctx, "metrics are no longer served", tint.Err(err))
		}
	}()
	return m
}

// check refuses flags that make no sense together.
func (o metricsOptions) check() error {
	if o.Addr == "" && o.Insecure {
		return exit.Usagef("add --metrics ADDR", "--metrics-insecure has no effect alone")
	}
	return nil
}

// listen refuses addresses that other machines can reach, unless that is accepted.
func (o metricsOptions) listen(ctx context.Context) (net.Listener, error) {
	listener, err := listenTCP(ctx, "metrics", o.Addr, "127.0.0.1:9464")
	if err != nil {
		return nil, err
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); !o.Insecure && !(ok && tcp.IP.IsLoopback()) {
		return nil, errors.Join(exit.Usagef("listen on 127.0.0.1, or accept it with --metrics-insecure",
			"--metrics %s can be reached from other machines and names skills", o.Addr), listener.Close())
	}
	return listener, nil
}

// end stops serving. Answers that have begun may finish for a second.
func (m *metricsServer) end(ctx context.Context) {
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if m.server.Shutdown(ctx) != nil {
		m.server.Close()
	}
	<-m.done
}

// handler answers GET /metrics with page. A web page that lets its own name point here gets nothing.
func (o metricsOptions) handler(page http.Handler) http.Handler {
	own, _, _ := net.SplitHostPort(o.Addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case !knownHost(r.Host, own) || r.Header.Get("Origin") != "":
			http.Error(w, "the Host header does not name this server, or a web page asks",
				http.StatusForbidden)
		case r.URL.Path != "/metrics":
			http.Error(w, "there is only /metrics", http.StatusNotFound)
		case r.Method != http.MethodGet:
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
		default:
			page.ServeHTTP(w, r)
		}
	})
}

// knownHost reports whether a Host header is localhost, the name in --metrics or an IP address, to which no
// name can be rebound.
func knownHost(host, own string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost") || own != "" && strings.EqualFold(host, own)
}
