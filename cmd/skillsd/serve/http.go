package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/httpauth"
	"github.com/skillsd/skillsd/skills/policy"
)

// httpServer serves over HTTP.
type httpServer struct {
	*config.HTTP
	principals map[string]policy.Principal // of the configuration and of Evidence
}

// httpServer returns the HTTP server of these options.
func (o *Options) httpServer() *httpServer {
	return &httpServer{&o.HTTP, o.Process.Cfg.Keys.PolicyPrincipals(o.HTTP.Evidence)}
}

// transport names the transport for the log.
func (o *httpServer) transport() string {
	switch {
	case o.Unix != "":
		return "unix"
	case o.Addr != "":
		return "http"
	}
	return "stdio"
}

// check refuses flags that make no sense together. It accepts HTTP options of a configuration file on stdio,
// since one file may be used for both transports.
func (o *httpServer) check(cfg *config.Configuration) error {
	switch {
	case o.Addr != "" && o.Unix != "":
		return exit.Usagef("start two servers", "--http and --unix are two transports")
	case math.IsNaN(o.Rate) || o.Rate > 1e9:
		return exit.Usagef("give requests a second, 0 for no limit", "--rate-limit %g", o.Rate)
	case (o.Cert == "") != (o.Key == ""):
		return exit.Usagef("give both or none", "--tls-cert and --tls-key belong together")
	case o.Issuer == "" && (len(o.Audiences) > 0 || o.Keys != "" || len(o.Scopes) > 0 ||
		len(o.Algorithms) > 0):
		return exit.Usagef("give --auth-issuer too",
			"--auth-audience, --auth-jwks, --auth-scope and --auth-algorithm need an issuer")
	case o.Issuer != "" && len(o.Audiences) == 0 && o.PublicURL == "":
		return exit.Usagef("a token for another server must not open this one",
			"--auth-issuer needs --auth-audience or --public-url")
	case !strings.HasPrefix(o.Path, "/") || slices.Contains([]string{"/", "/healthz", "/readyz"}, o.Path) ||
		strings.HasPrefix(o.Path, "/.well-known/"):
		return exit.Usagef("use a path like /mcp", "--http-path %q", o.Path)
	}
	return o.checkEffect(cfg)
}

// checkEffect refuses options that have no effect, unless they come from a configuration file. It accepts
// options that several servers may share in one environment, unless they come from a flag.
func (o *httpServer) checkEffect(cfg *config.Configuration) error {
	if o.Enabled() {
		if cfg.OriginOf("auth-evidence").Kind == config.FromFlag && o.TokenFile == "" && o.Issuer == "" {
			return exit.Usagef("add --auth-token-file or --auth-issuer",
				"--auth-evidence has no effect without authentication")
		}
		return nil
	}
	given := map[string]bool{
		"tls-cert": o.Cert != "", "auth-token-file": o.TokenFile != "", "auth-issuer": o.Issuer != "",
		"insecure-no-auth": o.NoAuth,
		"allowed-host":     len(o.Hosts) > 0, "allowed-origin": len(o.Origins) > 0,
		"public-url":    o.PublicURL != "",
		"auth-evidence": true, "rate-limit": true, "http-path": true,
	}
	for _, flag := range slices.Sorted(maps.Keys(given)) {
		kind := cfg.OriginOf(flag).Kind
		inEnv := kind == config.FromEnv && flag != "auth-evidence" && flag != "rate-limit" &&
			flag != "http-path"
		if given[flag] && (kind == config.FromFlag || inEnv) {
			return exit.Usagef("add --http ADDR or --unix PATH", "--%s has no effect on stdio", flag)
		}
	}
	return nil
}

// serve listens and serves until ctx ends.
func (o *httpServer) serve(ctx context.Context, server *mcpserver.Server, logger *slog.Logger) error {
	listener, opts, err := o.open(ctx, logger)
	if err != nil {
		return err
	}
	logger.InfoContext(ctx, "listening", slog.String("addr", listener.Addr().String()),
		slog.String("path", o.Path))
	return server.ServeHTTP(ctx, listener, opts)
}

// prepare reads the files that are needed before the server listens. The certificate is nil without TLS.
func (o *httpServer) prepare(logger *slog.Logger) (mcpserver.HTTPOptions, *certificate, error) {
	opts := mcpserver.HTTPOptions{Path: o.Path, Hosts: o.hosts(), Origins: o.Origins}
	if err := opts.Check(); err != nil {
		return opts, nil, exit.Usagef("hosts are NAME or NAME:PORT, origins https://NAME[:PORT]", "%w", err)
	}
	auth, err := o.authenticator(logger)
	if err != nil {
		return opts, nil, err
	}
	opts.Auth, opts.Rate = auth, o.RequestRate()
	opts.Burst = int(2 * opts.Rate)
	if o.Cert == "" {
		return opts, nil, nil
	}
	pair, err := openCertificate(o.Cert, o.Key, logger)
	return opts, pair, err
}

// open starts to listen. It accepts no connections; the caller does when it serves.
func (o *httpServer) open(ctx context.Context,
	logger *slog.Logger) (net.Listener, mcpserver.HTTPOptions, error) {
	opts, certificate, err := o.prepare(logger)
	if err != nil {
		return nil, opts, err
	}
	listener, err := o.listen(ctx)
	if err != nil {
		return nil, opts, err
	}
	// Only the listener knows the address of a name such as localhost.
	if err := o.checkExposure(listener.Addr(), opts.Auth != nil, certificate != nil, logger); err != nil {
		return nil, opts, errors.Join(err, listener.Close())
	}
	if certificate != nil {
		listener = tls.NewListener(listener, &tls.Config{
			GetCertificate: certificate.current, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"h2", "http/1.1"},
		})
	}
	return listener, opts, nil
}

// hosts returns the names of the server: the given ones, the host of the public URL, and the host of the
// address.
func (o *httpServer) hosts() []string {
	hosts := slices.Clone(o.Hosts)
	if u, err := url.Parse(o.PublicURL); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	if host, _, err := net.SplitHostPort(o.Addr); err == nil && host != "" && net.ParseIP(host) == nil {
		hosts = append(hosts, host)
	}
	return hosts
}

func (o *httpServer) listen(ctx context.Context) (net.Listener, error) {
	if o.Unix != "" {
		return listenUnix(ctx, o.Unix)
	}
	return listenTCP(ctx, "http", o.Addr, "127.0.0.1:8080")
}

// checkExposure refuses to serve other machines without authentication, unless the operator accepts that.
func (o *httpServer) checkExposure(addr net.Addr, auth, encrypted bool, logger *slog.Logger) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return nil
	}
	if !auth && !o.NoAuth {
		return exit.Usagef("give --auth-token-file or --auth-issuer, listen on 127.0.0.1, or accept it "+
			"with --insecure-no-auth",
			"--http %s can be reached from other machines and asks nobody who they are", o.Addr)
	}
	if !auth {
		logger.Warn("everyone who can reach this address is let in")
	} else if !encrypted {
		logger.Warn("tokens travel unencrypted unless a proxy in front adds TLS")
	}
	return nil
}

// authenticator returns nil if clients do not have to authenticate.
func (o *httpServer) authenticator(logger *slog.Logger) (*httpauth.Authenticator, error) {
	if o.TokenFile == "" && o.Issuer == "" {
		return nil, nil
	}
	cfg := httpauth.Config{TokenFile: o.TokenFile, Principals: o.principals, Resource: o.PublicURL,
		Path: o.Path, Logger: logger}
	if o.TokenFile != "" {
		// The error of this check has a hint. Trust makes the same check again when the file is read.
		if err := config.CheckOperatorFile("auth-token-file", o.TokenFile); err != nil {
			return nil, err
		}
		cfg.Trust = func(info fs.FileInfo) error {
			_, err := config.CheckOwner(o.TokenFile, info)
			return err
		}
	}
	if o.Issuer != "" {
		cfg.JWT = &httpauth.JWTConfig{Issuer: o.Issuer, Audiences: o.Audiences, Keys: o.Keys,
			Algorithms: o.Algorithms, Scopes: o.Scopes}
		if len(cfg.JWT.Audiences) == 0 {
			cfg.JWT.Audiences = []string{o.PublicURL}
		}
		if cfg.JWT.Keys == "" {
			cfg.JWT.Keys = strings.TrimSuffix(o.Issuer, "/") + "/.well-known/jwks.json"
		}
	}
	auth, err := httpauth.New(cfg)
	if err != nil {
		return nil, o.authFailure(err)
	}
	return auth, nil
}

// authFailure returns the error for a token file, with its name, or for the settings of an issuer.
func (o *httpServer) authFailure(err error) error {
	what, ofFile := strings.CutPrefix(err.Error(), "token file: ")
	if !ofFile {
		return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("authentication: %w", err), Flag: "auth-issuer"}
	}
	if !strings.Contains(what, o.TokenFile) {
		what = o.TokenFile + ": " + what
	}
	return exit.Usagef("a line of the token file is `printf %s \"$TOKEN\" | sha256sum` behind PRINCIPAL:",
		"--auth-token-file: %s", what)
}
