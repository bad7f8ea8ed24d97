package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/garbage"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/httpauth"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// checkHTTP rejects flags that do not fit together. HTTP options of a configuration file are accepted on
// stdio, since one file may be used for both transports.
func (o *Options) checkHTTP() error {
	h, cfg := &o.HTTP, &o.Process.Cfg
	if err := cmp.Or(checkListener(h), checkIssuer(h), checkPath(h.Path)); err != nil {
		return err
	}
	switch {
	case h.Enabled() && cfg.OriginOf("auth-evidence").Kind == config.FromFlag && h.TokenFile == "" &&
		h.Issuer == "":
		return exit.Usagef("add --auth-token-file or --auth-issuer",
			"--auth-evidence has no effect without authentication")
	case !o.Cluster.Enabled() && cfg.ClusterFlag() != "":
		return exit.Usagef("add --cluster URL", "--%s has no effect without a cluster", cfg.ClusterFlag())
	case !h.Enabled():
		return o.checkStdio()
	}
	return nil
}

// checkListener rejects addresses, rates and certificates that no server can have.
func checkListener(h *config.HTTP) error {
	switch {
	case h.Addr != "" && h.Unix != "":
		return exit.Usagef("start two servers", "--http and --unix cannot be combined")
	case math.IsNaN(h.Rate) || h.Rate > 1e9:
		return exit.Usagef("give requests per second, 0 for no limit", "--rate-limit %g", h.Rate)
	case (h.Cert == "") != (h.Key == ""):
		return exit.Usagef("give both or neither", "--tls-cert and --tls-key belong together")
	}
	return nil
}

// checkIssuer rejects options of an issuer that need others.
func checkIssuer(h *config.HTTP) error {
	isDescribed := len(h.Audiences) > 0 || h.Keys != "" || len(h.Scopes) > 0 || len(h.Algorithms) > 0
	switch {
	case h.Issuer == "" && isDescribed:
		return exit.Usagef("give --auth-issuer too",
			"--auth-audience, --auth-jwks, --auth-scope and --auth-algorithm need an issuer")
	case h.Issuer != "" && len(h.Audiences) == 0 && h.PublicURL == "":
		return exit.Usagef("a token for another server must not open this one",
			"--auth-issuer needs --auth-audience or --public-url")
	}
	return nil
}

// checkPath rejects a path that the server uses itself, and what is not a path.
func checkPath(path string) error {
	if strings.HasPrefix(path, "/") && !slices.Contains([]string{"/", "/healthz", "/readyz"}, path) &&
		!strings.HasPrefix(path, "/.well-known/") {
		return nil
	}
	return exit.Usagef("use a path like /mcp", "--http-path %q", path)
}

// checkStdio rejects options of HTTP that were given to a server on stdio.
func (o *Options) checkStdio() error {
	for _, flag := range []string{"allowed-host", "allowed-origin", "auth-evidence", "auth-issuer",
		"auth-token-file", "cluster", "http-activation", "http-path",
		"insecure-no-auth", "page", "page-client", "public-url", "rate-limit", "shared-records", "tls-cert"} {
		kind := o.Process.Cfg.OriginOf(flag).Kind
		// These may come from an environment that several servers share.
		shared := flag == "auth-evidence" || flag == "http-activation" ||
			flag == "http-path" || flag == "rate-limit" ||
			flag == "insecure-no-auth" && !o.HTTP.NoAuth
		// An option that does nothing may be a security measure that the operator believes to be on.
		if kind == config.FromFlag || kind == config.FromEnv && !shared {
			return exit.Usagef("add --http ADDR or --unix PATH", "--%s has no effect on stdio", flag)
		}
	}
	return nil
}

// serveHTTP listens and serves until ctx ends.
func (o *Options) serveHTTP(
	ctx context.Context, server *mcpserver.Server, of *cluster.Cluster, logger *slog.Logger,
) error {
	// The ballast raises the heap size at which collections start, which took a sixth of the time of a load.
	// Its pages are never touched, so it uses no memory.
	ballast := make([]byte, 16<<20)
	defer runtime.KeepAlive(ballast)
	listener, opts, err := o.openHTTP(ctx, logger)
	if err != nil {
		return err
	}
	if of != nil {
		opts.Cluster = of.Serving()
		opts.SessionKey, err = of.SessionKey()
	} else {
		opts.SessionKey, err = o.sessionKey()
	}
	if err != nil {
		logger.WarnContext(ctx, "client sessions will not survive a restart", tint.Err(err))
	}
	logger.InfoContext(ctx, "listening", slog.String("addr", listener.Addr().String()),
		slog.String("path", o.HTTP.Path))
	// The keys are fetched while the server listens, so that an issuer that is down does not keep it from
	// starting.
	defer o.loadKeys(ctx, opts.Auth, logger)()
	return server.ServeHTTP(ctx, listener, opts)
}

// loadKeys fetches the keys of the issuer, if any, and again at each SIGHUP, until end is called. SIGHUP also
// reports the end of a terminal, so it still ends a server that was started in one.
func (o *Options) loadKeys(ctx context.Context, auth *httpauth.Authenticator,
	logger *slog.Logger) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	reloads := make(chan os.Signal, 1)
	if !report.IsTerminal(o.In) {
		signal.Ignore(syscall.SIGHUP) // otherwise it would end the process
		signal.Notify(reloads, syscall.SIGHUP)
	}
	load := func() {
		if o.HTTP.Issuer == "" {
			return
		}
		err := auth.Reload(ctx)
		switch {
		case err == nil:
			logger.InfoContext(ctx, "loaded the keys of the issuer")
		case ctx.Err() == nil:
			logger.WarnContext(ctx, "the keys of the issuer cannot be fetched", tint.Err(err),
				slog.String("hint", hintKeys))
		}
	}
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			load()
			select {
			case <-reloads:
			case <-ctx.Done():
			}
		}
	})
	return func() {
		signal.Stop(reloads)
		stop()
		group.Wait()
	}
}

const hintKeys = "without keys no token of the issuer is accepted; correct --auth-issuer, or give " +
	"--auth-jwks the URL of the keys"

// sessionKey returns the key for ids of protocol sessions. The servers of one state directory share it; the
// first one creates it.
func (o *Options) sessionKey() ([]byte, error) {
	state, err := o.Process.StateDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(state, "session-ids.key")
	const most = 1 << 10
	if err := makeSecret(path); err != nil {
		return nil, err
	}
	return config.ReadOperatorFile("state", path, most)
}

// makeSecret writes a random secret into a file, unless the file exists.
func makeSecret(path string) error {
	if fsys.Exists(path) {
		return nil
	}
	err := fsys.WriteNew(path, []byte(rand.Text()+rand.Text()), 0o600)
	if errors.Is(err, fs.ErrExist) { // another server of the state directory was faster
		return nil
	}
	return err
}

// prepareHTTP reads the files that are needed before the server listens. The certificate is nil without TLS.
func (o *Options) prepareHTTP(logger *slog.Logger) (mcpserver.HTTPOptions, *certificate, error) {
	h, few := &o.HTTP, min(filestore.MaxOpen(), 1<<14)
	opts := mcpserver.HTTPOptions{Path: h.Path, Hosts: slices.Clone(h.Hosts),
		Origins: slices.Clone(h.Origins),
		// Half of the descriptors are for records and three eighths for connections, most of them possibly
		// unauthenticated; the rest is for runs and scans.
		MaxConnections: max(3*few, 8), MaxStrangers: max(2*few, 4),
		Rate: h.RequestRate(), Burst: int(2 * h.RequestRate()),
		OnlyHandles: h.Activation == "handle", Memory: garbage.Within(native.GroupMemory())}
	// The server also accepts the hosts of its public URL and its address, and pages of the public URL.
	if u, err := url.Parse(h.PublicURL); err == nil && u.Hostname() != "" {
		opts.Hosts = append(opts.Hosts, u.Hostname())
		opts.Origins = append(opts.Origins, originOf(u))
	}
	// Addresses are accepted anyway, because DNS rebinding needs a name.
	if host, _, err := net.SplitHostPort(h.Addr); err == nil && host != "" && net.ParseIP(host) == nil {
		opts.Hosts = append(opts.Hosts, host)
	}
	if err := opts.Check(); err != nil {
		return opts, nil, exit.Usagef("hosts are NAME or NAME:PORT, origins https://NAME[:PORT]", "%w", err)
	}
	var err error
	opts.Auth, err = o.authenticator(logger)
	if err != nil || h.Cert == "" {
		return opts, nil, err
	}
	pair, err := openCertificate(h.Cert, h.Key, logger)
	return opts, pair, err
}

// originOf returns the origin of a URL as browsers send it, without the default port of its scheme.
func originOf(u *url.URL) string {
	host := u.Host
	if port := map[string]string{"http": "80", "https": "443"}[u.Scheme]; port != "" && u.Port() == port {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host
}

// openHTTP starts to listen. It accepts no connections; the caller does.
func (o *Options) openHTTP(ctx context.Context,
	logger *slog.Logger) (net.Listener, mcpserver.HTTPOptions, error) {
	opts, certificate, err := o.prepareHTTP(logger)
	if err != nil {
		return nil, opts, err
	}
	var listener net.Listener
	if o.HTTP.Unix != "" {
		listener, err = listenUnix(ctx, o.HTTP.Unix)
	} else {
		listener, err = listenTCP(ctx, "http", o.HTTP.Addr, "127.0.0.1:8080")
	}
	if err != nil {
		return nil, opts, err
	}
	if err := o.guard(listener, &opts, certificate, logger); err != nil {
		return nil, opts, errors.Join(err, listener.Close())
	}
	if certificate != nil {
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: certificate.current,
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	}
	return listener, opts, nil
}

// guard makes sure that clients authenticate where others can reach the listener, unless the operator accepts
// that they do not, and warns of what remains.
func (o *Options) guard(
	listener net.Listener, opts *mcpserver.HTTPOptions, pair *certificate, logger *slog.Logger,
) (err error) {
	// A name such as localhost is resolved only by the listener.
	switch auth := opts.Auth != nil; {
	case o.HTTP.Unix != "" || auth && isLoopback(listener):
	case isLoopback(listener) && o.HTTP.NoAuth:
		logger.Warn("no authentication: every user of this machine may run the allowed scripts")
	case isLoopback(listener):
		opts.Auth, err = o.ownToken(listener.Addr().String(), logger)
	case !auth && !o.HTTP.NoAuth:
		err = exit.Usagef("give --auth-token-file or --auth-issuer, listen on "+
			"127.0.0.1, or accept it with --insecure-no-auth",
			"--http %s can be reached from other machines and requires no authentication", o.HTTP.Addr)
	case !auth:
		// The clients of such a server may belong to several users.
		opts.OnlyHandles = true
		logger.Warn("no authentication: every client that can reach this address is accepted")
	case pair == nil:
		logger.Warn("tokens are sent unencrypted unless a proxy in front adds TLS")
	}
	return err
}

// ownToken returns an authenticator for the token in the state directory, which only its user can read and
// the first such server creates: all users of a machine share its loopback addresses.
func (o *Options) ownToken(addr string, logger *slog.Logger) (*httpauth.Authenticator, error) {
	hint := "give --state DIR, --auth-token-file FILE, or --insecure-no-auth to accept every user of " +
		"this machine"
	state, err := o.Process.StateDir()
	if err != nil {
		return nil, exit.Errorf(exit.Failure, hint, "the token of --http: %w", err)
	}
	token, hashes := filepath.Join(state, "http-token"), filepath.Join(state, "http-token.sha256")
	if err := makeSecret(token); err != nil {
		return nil, exit.Errorf(exit.Failure, hint, "the token of --http: %w", err)
	}
	const most = 1 << 10
	text, err := config.ReadOperatorFile("state", token, most)
	if err != nil {
		return nil, err
	}
	// The hash is written again at each start, since the user may have replaced the token.
	line := fmt.Sprintf("owner: %x\n", sha256.Sum256(bytes.TrimSpace(text)))
	if err := fsys.WriteFile(hashes, []byte(line), 0o600); err != nil {
		return nil, exit.Errorf(exit.Failure, hint, "the token of --http: %w", err)
	}
	scheme := "http"
	if o.HTTP.Cert != "" {
		scheme = "https"
	}
	logger.Info("clients need the token in this file", slog.String("file", token),
		slog.String("environment", fmt.Sprintf("export SKILLSD_TOKEN=$(cat '%s')",
			strings.ReplaceAll(token, "'", `'\''`))),
		slog.String("setup", "skillsd setup CLIENT --write --http "+scheme+"://"+addr+
			o.HTTP.Path+" --token-env SKILLSD_TOKEN"))
	// The token takes the same way as tokens of an operator, so that its file is read again when it changes.
	o.HTTP.TokenFile = hashes
	return o.authenticator(logger)
}

// authenticator returns nil if clients need not authenticate.
func (o *Options) authenticator(logger *slog.Logger) (*httpauth.Authenticator, error) {
	h := &o.HTTP
	if h.TokenFile == "" && h.Issuer == "" {
		return nil, nil
	}
	cfg := httpauth.Config{TokenFile: h.TokenFile, Resource: h.PublicURL, Path: h.Path, Logger: logger,
		Principals: o.Process.Cfg.Keys.PolicyPrincipals(h.Evidence)}
	if h.TokenFile != "" {
		// The error of this check has a hint. Trust repeats the check when the file is read.
		if _, err := config.ReadOperatorFile("auth-token-file", h.TokenFile, config.MaxFile); err != nil {
			return nil, err
		}
		cfg.Trust = func(info fs.FileInfo) error {
			_, err := config.CheckOwner(h.TokenFile, info)
			return err
		}
	}
	if h.Issuer != "" {
		cfg.JWT = &httpauth.JWTConfig{Issuer: h.Issuer, Audiences: h.Audiences, Keys: h.Keys,
			Algorithms: h.Algorithms, Scopes: h.Scopes}
		if len(h.Audiences) == 0 {
			// An audience is required: a token that the issuer made for another service must not open this
			// one (RFC 8707).
			cfg.JWT.Audiences = []string{h.PublicURL}
		}
	}
	auth, err := httpauth.New(cfg)
	if err == nil {
		return auth, nil
	}
	problem, ofFile := strings.CutPrefix(err.Error(), "token file: ")
	if !ofFile {
		return nil, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("authentication: %w", err),
			Flag: "auth-issuer"}
	}
	if !strings.Contains(problem, h.TokenFile) {
		problem = h.TokenFile + ": " + problem
	}
	return nil, exit.Usagef("a line of the token file is `printf %s \"$TOKEN\" | sha256sum` "+
		"behind NAME:",
		"--auth-token-file: %s", problem)
}

// listenTCP listens at the address of a flag.
//
// Errors: *exit.Error; one that wraps AddressTaken if the address is in use.
func listenTCP(ctx context.Context, flag, addr, example string) (net.Listener, error) {
	config := net.ListenConfig{Control: deferAccept}
	listener, err := config.Listen(ctx, "tcp", addr)
	if err == nil {
		return listener, nil
	}
	if wrong, ok := errors.AsType[*net.AddrError](err); ok {
		return nil, exit.Usagef("use HOST:PORT, such as "+example, "--%s %q: %s", flag, addr, wrong.Err)
	}
	hint := "use an address of this machine, such as " + example
	switch {
	case errors.Is(err, AddressTaken):
		hint = "stop the program that listens there, or choose another port; port 0 selects a free one"
	case errors.Is(err, syscall.EACCES):
		hint = "choose a port from 1024"
	}
	return nil, exit.Errorf(exit.Failure, hint, "--%s: %w", flag, err)
}

// isLoopback reports whether only this machine can reach a listener.
func isLoopback(listener net.Listener) bool {
	tcp, ok := listener.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// certificate is the certificate of the server with its key. A pair that was renewed on disk is used for the
// next connection; if the new pair is invalid, the old pair stays in use. It is safe for concurrent use.
type certificate struct {
	cert, key string // paths
	logger    *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	logged string // last logged error of a pair
}

// openCertificate reads the pair, which must be valid at startup.
func openCertificate(cert, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, logger: logger}
	var err error
	c.pair, err = c.read()
	return c, err
}

// current returns the certificate for a new connection. It reads both files: that takes no longer than the
// handshake itself, and notices every change.
func (c *certificate) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && c.logged != err.Error():
		c.logged = err.Error()
		c.logger.Warn("the changed certificate or key cannot be used; the previous ones stay in use",
			tint.Err(err))
	case err == nil:
		if !bytes.Equal(pair.Certificate[0], c.pair.Certificate[0]) {
			c.logger.Info("certificate renewed")
		}
		c.pair, c.logged = pair, ""
	}
	return c.pair, nil
}

// read reads the certificate and its key, which only the owner may be able to write.
func (c *certificate) read() (*tls.Certificate, error) {
	const maxPEM = 1 << 20 // of a file
	chain, err := fsys.ReadFile(c.cert, maxPEM, nil)
	if err != nil {
		return nil, exit.Flag("tls-cert", err)
	}
	secret, err := config.ReadOperatorFile("tls-key", c.key, maxPEM)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return nil, exit.Flag("tls-cert", err)
	}
	return &pair, nil
}
