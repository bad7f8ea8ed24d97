// Package cluster makes a server one of several with common sessions: the records are in a NATS cluster, and
// each server serves the sessions that it wrote last.
//
// The servers of a cluster share a key. It makes approvals and questions valid at all of them, and only its
// holders can connect to the address at which a server takes forwarded requests.
package cluster

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"
	"github.com/nats-io/nats.go"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/jetstream"
)

const (
	// leastKey and mostKey are the minimum and maximum length of the key of a cluster, in bytes.
	leastKey, mostKey = 32, 4 << 10

	headerTimeout = 10 * time.Second
	connectWithin = 5 * time.Second
	aliveWithin   = 10 * time.Second // an unresponsive server must answer within this time, or its calls fail
	pingEvery     = 10 * time.Second // ping of the cluster; three lost ones close the connection
	clockEvery    = time.Minute      // comparison of the clock with the cluster's
)

// Check rejects options that do not fit together, and connections that others could read.
//
// Errors: *exit.Error.
func Check(o *config.Cluster) error {
	if err := cmp.Or(checkServers(o), checkPool(o)); err != nil {
		return err
	}
	switch {
	case o.Key == "":
		return exit.Usagef("make one for all servers of the cluster: `openssl rand -hex 32 > FILE`",
			"--cluster needs --cluster-key FILE")
	case o.Generation < 1:
		return exit.Usagef("use a number from 1", "--cluster-generation %d", o.Generation)
	// Without it a server listens on loopback, where servers on other machines cannot reach it.
	case o.Addr == "" && !onLoopback(o.Servers):
		return exit.Usagef("give HOST:PORT at which the other servers can reach this machine",
			"--cluster on other machines needs --node-addr")
	}
	if host, _, err := net.SplitHostPort(o.Addr); o.Addr != "" {
		// The address is given to other servers, for which 0.0.0.0 is themselves.
		ip := net.ParseIP(host)
		if err != nil || host == "" || ip != nil && ip.IsUnspecified() {
			return exit.Usagef("give HOST:PORT at which the other servers can reach this one",
				"--node-addr %q is not an address that can be reached", o.Addr)
		}
	}
	return nil
}

func checkServers(o *config.Cluster) error {
	if (o.Cert == "") != (o.CertKey == "") {
		return exit.Usagef("give both or neither", "--cluster-cert and --cluster-cert-key belong together")
	}
	if !slices.Contains([]int{1, 3, 5}, o.Replicas) {
		return exit.Usagef("use 3 or 5; with 1, records are lost with their server",
			"--cluster-replicas %d", o.Replicas)
	}
	for _, server := range o.Servers {
		u, err := url.Parse(server)
		if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" {
			return exit.Usagef("use nats://HOST:PORT or tls://HOST:PORT", "--cluster %s", config.Clip(server))
		}
		if u.User != nil {
			return exit.Usagef("use --cluster-creds FILE", "--cluster: other users can see passwords in URLs")
		}
	}
	if !encrypted(o) && !onLoopback(o.Servers) {
		return exit.Usagef("use tls://HOST:PORT, or --cluster-ca FILE",
			"--cluster: records and questions would be sent unencrypted to another machine")
	}
	return nil
}

func encrypted(o *config.Cluster) bool {
	for _, server := range o.Servers {
		if !strings.HasPrefix(server, "tls:") && o.CA == "" {
			return false
		}
	}
	return true
}

// onLoopback reports whether all servers are on this machine.
func onLoopback(servers []string) bool {
	for _, server := range servers {
		u, err := url.Parse(server)
		if err != nil {
			return false
		}
		ip := net.ParseIP(u.Hostname())
		if u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// connect connects to a cluster.
//
// Errors: *exit.Error.
func connect(o *config.Cluster, name string, logger *slog.Logger) (*nats.Conn, error) {
	// A server must survive any outage of the cluster, so it tries to connect for ever.
	opts := []nats.Option{nats.Name(name), nats.Timeout(connectWithin), nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond), nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(2),
		// The client allocates each run's queues for 64Ki messages by default. A job or an answer has at most
		// some hundred.
		nats.SyncQueueLen(4096),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				logger.Warn("connection to the cluster lost", tint.Err(err))
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			logger.Info("reconnected to the cluster", slog.String("server", c.ConnectedUrlRedacted()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			logger.Warn("cluster", tint.Err(err))
		}),
	}
	for _, file := range [][2]string{{"cluster-creds", o.Creds}, {"cluster-cert-key", o.CertKey}} {
		if file[1] == "" {
			continue
		}
		// The library reads the files itself; this call only checks who can write them.
		if _, err := config.ReadOperatorFile(file[0], file[1], config.MaxFile); err != nil {
			return nil, err
		}
	}
	if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	if o.CA != "" {
		opts = append(opts, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		opts = append(opts, nats.ClientCert(o.Cert, o.CertKey))
	}
	conn, err := nats.Connect(strings.Join(o.Servers, ","), opts...)
	if err != nil {
		return nil, exit.Errorf(exit.Failure, "start its servers with JetStream, and check --cluster-creds "+
			"and --cluster-ca", "--cluster %s: %w", strings.Join(o.Servers, ","), err)
	}
	return conn, nil
}

func options(o *config.Cluster) *jetstream.Options {
	return &jetstream.Options{Prefix: o.Prefix, Replicas: o.Replicas, Node: o.Node}
}

// OpenReader opens the records of a cluster for reading. Closing them closes the connection.
//
// Errors: *exit.Error.
func OpenReader(ctx context.Context, o *config.Cluster, logger *slog.Logger) (provenance.Reader, error) {
	if err := checkServers(o); err != nil {
		return nil, err
	}
	conn, err := connect(o, "skillsd session", logger)
	if err != nil {
		return nil, err
	}
	records, err := jetstream.OpenReader(ctx, conn, options(o))
	if err != nil {
		conn.Close()
		return nil, unusable(err)
	}
	return &reader{records, conn}, nil
}

// OpenWords opens the calls of a cluster that wait for the user's decision, until close is called.
//
// Errors: *exit.Error.
func OpenWords(
	ctx context.Context, o *config.Cluster, logger *slog.Logger,
) (codes *approval.Codes, closed func(), err error) {
	if err := checkServers(o); err != nil {
		return nil, nil, err
	}
	conn, err := connect(o, "skillsd approve", logger)
	if err != nil {
		return nil, nil, err
	}
	cells, err := jetstream.OpenCells(ctx, conn, options(o))
	if err != nil {
		conn.Close()
		return nil, nil, unusable(err)
	}
	return approval.NewCodes(cells), conn.Close, nil
}

// Failure adds a hint to the error of records whose cluster does not answer. Other errors are returned
// unchanged.
func Failure(err error) error {
	if !errors.Is(err, provenance.ErrSilent) {
		return err
	}
	return exit.Errorf(exit.Failure,
		"start its NATS servers, of which a majority must run, and check that they can be reached from here",
		"--cluster: %w", err)
}

func unusable(err error) error {
	if errors.Is(err, provenance.ErrSilent) {
		return Failure(err)
	}
	return exit.Errorf(exit.Failure, "check --cluster-prefix and --cluster-replicas, and that a server "+
		"of skillsd has used this cluster before", "--cluster: %w", err)
}

type reader struct {
	provenance.Reader
	conn *nats.Conn
}

// Close implements provenance.Reader.
func (r *reader) Close() error {
	err := r.Reader.Close()
	r.conn.Close()
	return err
}

// Cluster is the part of this server in a cluster.
type Cluster struct {
	Records  *Records
	Peers    *elsewhere.Peers
	Approver *approval.Approver
	// Codes holds the calls that wait for the user's decision.
	Codes *approval.Codes
	Pool  elsewhere.Pool // nil if scripts run on this server

	logger     *slog.Logger
	key        []byte
	node, addr string
	conn       *nats.Conn
	cells      *jetstream.Cells
	listener   net.Listener
	others     *http.Transport
	server     *http.Server
	serving    sync.WaitGroup
	leave      context.CancelFunc // stops what Join started; nil before
	successor  atomic.Pointer[generation]
}

// Open connects to a cluster and listens for the other servers. It answers no requests before Serving.
//
// Errors: *exit.Error.
func Open(ctx context.Context, o *config.Cluster, logger *slog.Logger) (c *Cluster, err error) {
	if err := Check(o); err != nil {
		return nil, err
	}
	c = &Cluster{logger: logger, node: nodeName(o)}
	c.key, err = readKey(o.Key)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := c.listen(ctx, o.Addr); err != nil {
		return c, err
	}
	c.conn, err = connect(o, "skillsd "+c.node, logger)
	if err != nil {
		return c, err
	}
	opts := options(o)
	opts.Address, opts.Node = c.addr, c.node
	store, err := jetstream.Open(ctx, c.conn, opts)
	if err != nil {
		return c, unusable(err)
	}
	c.Records = &Records{store}
	c.cells, err = jetstream.OpenCells(ctx, c.conn, opts)
	if err != nil {
		return c, unusable(err)
	}
	if ahead, err := c.cells.Skew(ctx); err != nil {
		return c, unusable(err)
	} else if err := CheckClock(ahead); err != nil {
		return c, err
	}
	c.Peers = elsewhere.New(c.cells, func(ctx context.Context, id string) (elsewhere.Holder, error) {
		h, err := store.Holder(ctx, id)
		return elsewhere.Holder{Own: h.Own, Held: h.Held, Address: h.Address}, err
	})
	c.Peers.Replaced = c.replaced
	secret, err := derive(c.key, "approvals")
	if err != nil {
		return c, err
	}
	c.Approver = approval.NewShared(secret, approval.NewLedger(c.cells))
	c.Codes = approval.NewCodes(c.cells)
	c.Pool, err = newPool(c.conn, o, c.key)
	if err != nil {
		return c, err
	}
	if err := c.identify(c.key); err != nil {
		return c, err
	}
	logger.InfoContext(ctx, "joined the cluster", slog.String("server", c.conn.ConnectedUrlRedacted()),
		slog.String("node", c.node), slog.String("node-addr", c.addr))
	return c, nil
}

// listen listens for the other servers at an address, or at a free one of this machine if it is empty.
func (c *Cluster) listen(ctx context.Context, addr string) (err error) {
	c.addr = cmp.Or(addr, "127.0.0.1:0")
	c.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", c.addr)
	if err != nil {
		return exit.Errorf(exit.Failure, "give an address of this machine that is not in use",
			"--node-addr: %w", err)
	}
	if addr == "" {
		c.addr = c.listener.Addr().String()
	}
	return nil
}

// CheckClock rejects a clock that differs too much from the clock of the cluster: questions, refusals and
// handles are valid for a time that starts by one clock and ends by the other.
//
// Errors: *exit.Error.
func CheckClock(ahead time.Duration) error {
	if ahead.Abs() <= approval.Clocks {
		return nil
	}
	return exit.Errorf(exit.Failure, "synchronize both clocks, for example with NTP",
		"--cluster: the clocks of this machine and of its NATS server differ by %v",
		ahead.Abs().Round(time.Second))
}

// readKey reads the key that the servers of a cluster share.
//
// Errors: *exit.Error.
func readKey(path string) ([]byte, error) {
	text, err := config.ReadOperatorFile("cluster-key", path, mostKey)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	key := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return nil, exit.Flag("cluster-key", err)
	case config.OthersRead(info):
		return nil, exit.Usagef("run: chmod go-r "+path, "--cluster-key: others can read %s", path)
	case len(key) < leastKey:
		return nil, exit.Usagef("`openssl rand -hex 32 > FILE` makes one",
			"--cluster-key: %s has less than %d characters", path, leastKey)
	}
	return []byte(key), nil
}

// derive returns the key for one purpose.
func derive(key []byte, purpose string) ([]byte, error) {
	// A key for each purpose keeps what is authenticated for one from being valid for another.
	return hkdf.Key(sha256.New, key, nil, "skillsd cluster "+purpose, sha256.Size)
}

// Serving returns the connections between this server and the others.
func (c *Cluster) Serving() *mcpserver.Cluster {
	// The generation check notices a cluster that does not answer.
	ready := func() bool { return c.successor.Load() == nil && c.cells.Answers() }
	others := func(ctx context.Context, found func(string)) error {
		own := false
		err := c.Records.Nodes(ctx, func(node jetstream.Node) {
			own = own || node.Own
			if !node.Own {
				found(node.Address)
			}
		})
		if err == nil && !own && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = provenance.ErrUnavailable // ctx would otherwise have ended
		}
		if err != nil {
			c.logger.WarnContext(ctx, "other servers cannot be listed", tint.Err(err))
		}
		return err
	}
	accept := func(handler http.Handler) {
		c.server.Handler = handler
		c.serving.Go(func() {
			err := c.server.ServeTLS(c.listener, "", "")
			if !errors.Is(err, http.ErrServerClosed) {
				c.logger.Error("other servers can no longer reach this one", tint.Err(err))
			}
		})
	}
	return &mcpserver.Cluster{Transport: c.others, Others: others, Ready: ready, Accept: accept}
}

// SessionKey returns the key for ids of protocol sessions, which all servers of the cluster accept.
func (c *Cluster) SessionKey() ([]byte, error) { return derive(c.key, "protocol sessions") }

// parting is how long a stopping server continues to answer forwarded requests.
const parting = 2 * time.Second

// Close closes the connections, after the sessions have ended.
func (c *Cluster) Close() (err error) {
	if c.leave != nil {
		c.leave()
	}
	if c.server != nil {
		// Answer requests already forwarded to this server; their senders could not learn the outcome
		// otherwise.
		grace, cancel := context.WithTimeout(context.Background(), parting)
		if c.server.Shutdown(grace) != nil {
			err = c.server.Close()
		}
		cancel()
	}
	if c.listener != nil {
		// The server closes its listener too, if it was serving.
		if closed := c.listener.Close(); !errors.Is(closed, net.ErrClosed) {
			err = errors.Join(err, closed)
		}
	}
	c.serving.Wait()
	if c.others != nil {
		c.others.CloseIdleConnections()
	}
	if c.Records != nil {
		err = errors.Join(err, c.Records.Close())
	}
	if c.conn != nil {
		c.conn.Close()
	}
	return err
}

// Records are the records of a cluster. They keep everything that was shown, and principals have no quotas.
type Records struct{ *jetstream.Store }

// KeepsShown returns the number of bytes of shown texts that a session keeps: the largest integer of JSON.
func (r *Records) KeepsShown() int64 { return 1 << 53 }

// Path returns "": the bytes are not in a file of this machine.
func (r *Records) Path(string, string) string { return "" }

// Uses returns nil: the use by principals is not measured.
func (r *Records) Uses(context.Context) ([]filestore.Use, error) { return nil, nil }

// errForeign rejects a connection without the key of the cluster.
var errForeign = errors.New("it does not have the key of this cluster")
