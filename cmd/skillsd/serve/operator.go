package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/httpauth"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// Live is the current state of a running server, which no record has.
type Live struct {
	Pending []approval.Pending // questions that users may answer, oldest first
	Queue   admit.State        // of runs
	Uses    []filestore.Use    // of the records, by principal
}

// PageSource is the data for the operator's page of a server.
type PageSource struct {
	Records   provenance.Reader
	Directory string // of the records
	State     string // directory of stored trees
	Live      func(context.Context) (Live, error)
	Members   func(context.Context) (*cluster.Members, error) // nil without a cluster
	Login     *Login                                          // nil: access by a link
	Codes     *approval.Codes                                 // calls that wait for the user's decision
	Log       *slog.Logger
}

// LoginCallback is the path to which the provider of logins redirects browsers.
const LoginCallback = "/login/callback"

// Login authenticates browsers for an operator's page by an OpenID provider.
type Login struct {
	*httpauth.Login
	URL              *url.URL // public URL of the page: scheme and host
	Issuer           string
	Claim            string // of ID tokens, with the roles of a user
	Operator, Viewer string // roles: the first sees all sessions, the second the user's own
}

// openPage serves the operator's page at the address of --page, until the returned function is called.
func (o *Options) openPage(
	ctx context.Context, p *Plan, sessions *session.Sessions, logger *slog.Logger,
) (end func(), err error) {
	listener, login, err := o.listenPage(ctx)
	if listener == nil {
		return func() {}, err
	}
	source := PageSource{Codes: p.codes(), Login: login, Log: logger, Records: p.Records,
		State:     p.own.state.path,
		Directory: p.own.records.path,
		Live: func(ctx context.Context) (Live, error) {
			uses, err := p.Records.Uses(ctx)
			pending, queue := sessions.Live()
			return Live{pending, queue, uses}, err
		}}
	if p.Cluster != nil {
		source.Members = p.Cluster.Members
	}
	ctx, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		if err := o.ServePage(ctx, listener, source); err != nil {
			logger.ErrorContext(ctx, "the page is no longer served", tint.Err(err))
		}
	})
	return func() {
		stop()
		group.Wait()
	}, nil
}

// listenPage listens at the address of --page, and prepares the logins of --page-client; it returns nil
// without them. On stdio it does nothing: each client has its own server, and `skillsd page` shows the
// records of all.
func (o *Options) listenPage(ctx context.Context) (net.Listener, *Login, error) {
	if err := o.checkPage(); err != nil || o.Page.Addr == "" || !o.HTTP.Enabled() {
		return nil, nil, err
	}
	listener, err := listenTCP(ctx, "page", o.Page.Addr, "127.0.0.1:9465")
	if err != nil {
		return nil, nil, err
	}
	login, err := o.pageLogin(listener.Addr().String())
	if err == nil && !isLoopback(listener) && (login == nil || login.URL.Scheme != "https") {
		// A link with access is enough to read every record, and would cross the network in the clear.
		err = exit.Usagef("listen on 127.0.0.1, and use ssh -L from other machines; or give "+
			"--page-client and --page-url https://..., with a proxy in front that adds TLS",
			"--page %s can be reached from other machines", o.Page.Addr)
	}
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, login, nil
}

// checkPage validates the options of the page's logins.
func (o *Options) checkPage() error {
	p, h := &o.Page, &o.HTTP
	switch {
	case p.Client == "" && (p.URL != "" || p.Secret != "" || len(p.Scopes) > 0):
		return exit.Usagef("give --page-client too",
			"--page-url, --page-secret-file and --page-scope have no effect without --page-client")
	case p.Client != "" && p.Addr == "":
		return exit.Usagef("add --page 127.0.0.1:9465", "--page-client has no effect without --page")
	case p.Client != "" && h.Issuer == "":
		return exit.Usagef("give --auth-issuer: users who log in see the sessions of their own tokens",
			"--page-client needs an issuer")
	case p.Client != "" && slices.Contains(append(h.Audiences, h.PublicURL), p.Client):
		return exit.Usagef("register a separate client for the page",
			"--page-client %s is an audience of the endpoint, which would accept ID tokens of the page",
			p.Client)
	case p.Client != "" && p.Operator == p.Viewer:
		return exit.Usagef("use two roles", "--page-operator and --page-viewer are the same role")
	}
	return nil
}

// pageLogin returns the logins of a page that listens at addr, nil without --page-client.
func (o *Options) pageLogin(addr string) (*Login, error) {
	p, h := &o.Page, &o.HTTP
	if p.Client == "" {
		return nil, nil
	}
	// Browsers write hosts in lower case, and the Host header is compared as text.
	at, err := url.Parse(strings.ToLower(cmp.Or(p.URL, "http://"+addr)))
	if err != nil || at.Host == "" || at.User != nil ||
		strings.Trim(at.Path, "/")+at.RawQuery+at.Fragment != "" {
		return nil, exit.Usagef("use the URL of a host, such as https://page.example.com", "--page-url %q",
			p.URL)
	}
	// Browsers omit the default port.
	port := map[string]string{"https": ":443", "http": ":80"}[at.Scheme]
	at = &url.URL{Scheme: at.Scheme, Host: strings.TrimSuffix(at.Host, port)}
	var secret []byte
	if p.Secret != "" {
		const most = 4 << 10
		secret, err = config.ReadOperatorFile("page-secret-file", p.Secret, most)
		if err != nil {
			return nil, err
		}
	}
	login, err := httpauth.NewLogin(httpauth.LoginConfig{Issuer: h.Issuer, Keys: h.Keys,
		Algorithms: h.Algorithms, Client: p.Client, Secret: string(bytes.TrimSpace(secret)),
		Redirect: at.String() + LoginCallback, Scopes: p.Scopes})
	if err != nil {
		return nil, exit.Usagef("see `skillsd help serve`", "--page-client: %w", err)
	}
	return &Login{Login: login, URL: at, Issuer: h.Issuer, Claim: p.Claim, Operator: p.Operator,
		Viewer: p.Viewer}, nil
}
