package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"
)

// policy is the Content-Security-Policy of every answer: nothing inline, nothing from other sites, and no
// script that creates elements from text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// maxLogin is the maximum size of a login request in bytes.
const maxLogin = 1 << 10

// access decides who sees the page: the browser that opened the link printed at startup, or users of an
// OpenID provider. Tokens of MCP clients are not accepted.
type access struct {
	at    *url.URL // the page's public URL
	hosts []string // accepted in the Host header
	now   func() time.Time

	cookie, flow string // names of the cookies of viewers, and of open logins

	mu      sync.Mutex // guards the fields below
	token   string     // in the link; empty once used
	made    time.Time  // creation time of token
	viewers []viewer
}

// viewer is the user of the page in one browser.
type viewer struct {
	operator  bool   // sees the sessions of all principals, and this machine
	principal string // whose sessions a viewer sees who is not an operator

	expires time.Time // zero for never

	cookie [sha256.Size]byte
	form   string // token in forms that change something; another site cannot know it
}

// Name returns the name of the viewer, empty for the user of the link.
func (v viewer) Name() string { return strings.TrimPrefix(v.principal, "jwt:") }

type viewerKey struct{}

// viewerOf returns the viewer of a request; without one, a viewer who sees nothing.
func viewerOf(ctx context.Context) viewer {
	v, _ := ctx.Value(viewerKey{}).(viewer)
	return v
}

// sees reports whether the viewer may see data of a principal.
func (v viewer) sees(principal string) bool {
	return v.operator || v.principal != "" && v.principal == principal
}

// errOperators is the error for a viewer who is not an operator on a screen about this machine.
var errOperators = errors.New("only operators see this: it is about this machine, not about your sessions")

const (
	// maxViewers is the maximum of logged-in browsers; beyond it the oldest one is logged out.
	maxViewers = 256

	// again is the minimum interval between links, because any user of this machine can request one.
	again = 10 * time.Second
)

func (a *access) start(addr string, o *Options) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	a.now, a.at = o.Now, &url.URL{Scheme: "http", Host: addr}
	// Browsers send cookies to every port of a host, so the names contain the port.
	a.cookie, a.flow = "skillsd-page-"+port, "skillsd-login-"+port
	if o.OIDC != nil {
		a.at, a.hosts = o.OIDC.URL, []string{o.OIDC.URL.Host}
		if a.at.Scheme == "https" {
			// Browsers accept a cookie with this prefix only from the host itself over TLS, so another
			// subdomain cannot set it.
			a.cookie, a.flow = "__Host-skillsd-page", "__Host-skillsd-login"
		}
		return nil
	}
	a.hosts = []string{addr}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		// Users type localhost, which browsers send in the Host header as it was typed.
		a.hosts = append(a.hosts, net.JoinHostPort("localhost", port))
	}
	_, err = a.renew(a.now())
	return err
}

func secret() (string, error) {
	raw := make([]byte, 32)
	_, err := rand.Read(raw)
	return base64.RawURLEncoding.EncodeToString(raw), err
}

// Link returns the URL that opens the page once. The token follows "#", so it is in no request line and in no
// log. With OIDC it is the URL of the page.
func (p *Page) Link() string {
	p.access.mu.Lock()
	defer p.access.mu.Unlock()
	if p.OIDC != nil {
		return p.access.at.String() + "/"
	}
	return p.access.at.String() + "/login#" + p.access.token
}

// guard passes requests of the viewer to next, sets the headers of every answer, and refuses requests that
// another site sent or that use another host name.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if problem := a.refusal(r); problem != "" {
			http.Error(w, problem, http.StatusForbidden)
			return
		}
		open := r.URL.Path == "/login" || strings.HasPrefix(r.URL.Path, "/login/") ||
			strings.HasPrefix(r.URL.Path, "/static/") || r.URL.Path == "/favicon.ico"
		v, known := a.viewer(r)
		if open || known {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), viewerKey{}, v)))
			return
		}
		// A redirect as the answer to a request of a script would look like the data that it asked for.
		if strings.Contains(r.Header.Get("Accept"), "text/html") && r.Method == http.MethodGet {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		http.Error(w, "log in first, at /login", http.StatusUnauthorized)
	})
}

// setHeaders sets the headers of every answer.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refusal returns why a request is refused, from any sender, or "".
func (a *access) refusal(r *http.Request) string {
	site := r.Header.Get("Sec-Fetch-Site")
	switch origin := r.Header.Get("Origin"); {
	// A site of an attacker could otherwise resolve its own name to this machine (DNS rebinding), and its
	// scripts would have the same origin as the page.
	case !slices.Contains(a.hosts, strings.ToLower(r.Host)):
		return "the Host header does not name this page: open the address that skillsd printed"
	// A browser without a referrer sends null with a form of this page.
	case origin != "" && origin != a.at.Scheme+"://"+strings.ToLower(r.Host) &&
		(origin != "null" || site != "same-origin"),
		// A navigation from the address bar has the value none, and the provider redirects to the
		// callback.
		site != "" && site != "same-origin" && site != "none" && r.URL.Path != serve.LoginCallback:
		return "another site asks: open the page itself"
	}
	return ""
}

// viewer returns the viewer for the cookie of a request.
func (a *access) viewer(r *http.Request) (v viewer, known bool) {
	cookie, err := r.Cookie(a.cookie)
	if err != nil {
		return viewer{}, false
	}
	sum := sha256.Sum256([]byte(cookie.Value))
	a.mu.Lock()
	defer a.mu.Unlock()
	// Hashes are compared, so the time of the comparison reveals nothing about a cookie.
	i := slices.IndexFunc(a.viewers, func(v viewer) bool {
		return v.cookie == sum && (v.expires.IsZero() || a.now().Before(v.expires))
	})
	if i < 0 {
		return viewer{}, false
	}
	return a.viewers[i], true
}

// enter logs a viewer in.
func (a *access) enter(w http.ResponseWriter, v viewer) error {
	value, err := secret()
	if err != nil {
		return err
	}
	v.cookie = sha256.Sum256([]byte(value))
	// The token differs from the cookie, because the page contains it and the cookie must not be readable
	// there.
	v.form, err = secret()
	if err != nil {
		return err
	}
	a.setCookie(w, a.cookie, value, 0, http.SameSiteStrictMode)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.viewers = append(a.viewers, v)
	// The oldest viewers are first in the list.
	a.viewers = a.viewers[max(0, len(a.viewers)-maxViewers):]
	return nil
}

// leave logs a viewer out.
func (a *access) leave(v viewer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.viewers = slices.DeleteFunc(a.viewers, func(other viewer) bool { return other.cookie == v.cookie })
}

// setCookie sets a cookie that scripts cannot read, for a life; 0 means until the browser ends, less removes
// it.
func (a *access) setCookie(
	w http.ResponseWriter, name, value string, life time.Duration, same http.SameSite,
) {
	age := int(life / time.Second)
	if life < 0 {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, MaxAge: age,
		Secure: a.at.Scheme == "https", SameSite: same})
}

// renew replaces the token of the link, unless that happened just now.
func (a *access) renew(now time.Time) (ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.made) < again {
		return false, nil
	}
	a.token, err = secret()
	a.made = now
	return err == nil, err
}

// use consumes the token of the link, which is valid once.
func (a *access) use(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(a.token)) != 1 {
		return false
	}
	// A link in the history of a browser, or in a terminal's output, then opens nothing.
	a.token = ""
	return true
}

func (p *Page) loginForm(w http.ResponseWriter, _ *http.Request) {
	render(w, http.StatusOK, p.loginView(""))
}

// loginForm is the login form; Said is the result of the last attempt.
type loginForm struct{ Said, Issuer string }

// entered is a completed login.
type entered struct{}

// loginView is the login form and the error of the last attempt.
func (p *Page) loginView(said string) *view {
	form := &loginForm{Said: said}
	if p.OIDC != nil {
		form.Issuer = p.OIDC.Issuer
	}
	return &view{Title: "Open the page", Nav: "login", Data: form}
}

func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if r.PostFormValue("another") != "" {
		said := "shown"
		switch ok, err := p.access.renew(p.Now()); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		// The link is shown where the server was started, not in the answer: who asks has not proved
		// anything.
		case ok:
			p.Show(p.Link())
		default:
			said = "soon"
		}
		render(w, http.StatusOK, p.loginView(said))
		return
	}
	if !p.access.use(r.PostFormValue("token")) {
		render(w, http.StatusForbidden, p.loginView("refused"))
		return
	}
	if err := p.access.enter(w, viewer{operator: true}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/sessions", http.StatusSeeOther)
}
