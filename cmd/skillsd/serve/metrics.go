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

	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/lmittmann/tint"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/metrics"
	"github.com/skillsd/skillsd/skills"
)

// metricsOptions are the flags of the metrics.
type metricsOptions struct {
	Addr     string
	Insecure bool
}

func (o *metricsOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.Addr, "metrics", "", "serve Prometheus metrics at http://`ADDR`/metrics, such as 127.0.0.1:9464; they name skills")
	flags.BoolVar(&o.Insecure, "metrics-insecure", false, "let --metrics be reached from other machines, which nobody asks who they are")
}

// Limits of a request for metrics.
const (
	metricsTimeout = 10 * time.Second
	metricsHeader  = 16 << 10
)

// metricsServer serves the metrics beside the transport. The nil *metricsServer serves none.
type metricsServer struct {
	server   *http.Server
	listener net.Listener
	done     chan struct{}
	logger   *slog.Logger
}

// open starts to listen, before anything is answered anywhere, and returns the store that counts what
// is appended to records. Without --metrics, and on stdio when another server has the address, it returns
// records as they are and nil.
func (o *metricsOptions) open(ctx context.Context, records provenance.Store, registry *skills.Registry, stdio bool, logger *slog.Logger) (provenance.Store, *metricsServer, error) {
	if err := o.check(); err != nil || o.Addr == "" {
		return records, nil, err
	}
	listener, err := o.listen(ctx)
	if stdio && errors.Is(err, AddressTaken) {
		// Each client of one configuration starts a server of its own.
		logger.WarnContext(ctx, "metrics are not served: another server has the address", slog.String("addr", o.Addr), slog.String("hint", "give each server its own --metrics, or port 0"))
		return records, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	counters := metrics.New(&metrics.Options{
		Skills: func() int { return len(registry.Snapshot().Skills) },
		Serves: serves(registry),
		Scans:  registry.Scans,
	})
	m := &metricsServer{listener: listener, done: make(chan struct{}), logger: logger}
	m.server = &http.Server{
		Handler:           http.MaxBytesHandler(o.handler(counters, logger), 0),
		ReadHeaderTimeout: metricsTimeout, ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: metricsHeader,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	return metrics.Count(records, counters), m, nil
}

// check refuses flags that make no sense together.
func (o *metricsOptions) check() error {
	if o.Addr == "" && o.Insecure {
		return exit.Usagef("add --metrics ADDR", "--metrics-insecure has no effect alone")
	}
	return nil
}

// listen refuses addresses that other machines can reach, unless that is accepted.
func (o *metricsOptions) listen(ctx context.Context) (net.Listener, error) {
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

// start serves until end.
func (m *metricsServer) start(ctx context.Context) {
	if m == nil {
		return
	}
	m.logger.InfoContext(ctx, "metrics", slog.String("addr", m.listener.Addr().String()))
	go func() {
		defer close(m.done)
		if err := m.server.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
			m.logger.ErrorContext(ctx, "metrics are not served any more", tint.Err(err))
		}
	}()
}

// end lets answers that have begun finish for a second.
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

// handler answers GET /metrics, and nothing to a page that has its own name point here.
func (o *metricsOptions) handler(counters *metrics.Counters, logger *slog.Logger) http.Handler {
	own, _, _ := net.SplitHostPort(o.Addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case !knownHost(r.Host, own) || r.Header.Get("Origin") != "":
			http.Error(w, "Host is none this server goes by, or a web page asks", http.StatusForbidden)
		case r.URL.Path != "/metrics":
			http.Error(w, "only /metrics is here", http.StatusNotFound)
		case r.Method != http.MethodGet:
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
		default:
			w.Header().Set("Content-Type", metrics.ContentType)
			if _, err := counters.WriteTo(w); err != nil {
				logger.DebugContext(r.Context(), "metrics not sent", tint.Err(err))
			}
		}
	})
}

// knownHost reports whether a Host header is an IP address, which no name can be rebound to, localhost
// or the name that was listened on.
func knownHost(host, own string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost") || own != "" && strings.EqualFold(host, own)
}
