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

// policy is the Content-Security-Policy of every answer: nothing inline, nothing from elsewhere, and no
// script that makes elements of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// maxLogin is the longest body of a login.
const maxLogin = 1 << 10

// access decides who sees the page: the browser in which the link of the start was opened, or whom an OpenID
// provider knows. Tokens of clients of MCP open nothing here.
type access struct {
	at    *url.URL // of the page, as browsers know it
	hosts []string // that a request may name
	now   func() time.Time

	cookie, flow string // names of the cookies of viewers, and of logins that began

	mu      sync.Mutex // guards the fields below
	token   string     // of the link; empty once it was used
	made    time.Time  // when it was
	viewers []viewer
}

// viewer is who looks at the page in a browser.
type viewer struct {
	operator  bool   // sees the sessions of everybody, and this machine
	principal string // whose sessions are seen otherwise

	expires time.Time // zero for never

	cookie [sha256.Size]byte
	form   string // comes back with a form that changes something, which another site cannot know
}

// Name returns who looks, empty for whoever opened the link.
func (v viewer) Name() string { return strings.TrimPrefix(v.principal, "jwt:") }

type viewerKey struct{}

// viewerOf returns who sent a request; somebody who sees nothing without one.
func viewerOf(ctx context.Context) viewer {
	v, _ := ctx.Value(viewerKey{}).(viewer)
	return v
}

// sees reports whether the viewer may see what is about a principal.
func (v viewer) sees(principal string) bool {
	return v.operator || v.principal != "" && v.principal == principal
}

// errOperators refuses what shows this machine to a viewer who is not an operator.
var errOperators = errors.New("only operators see this: it is about this machine, not about your sessions")

const (
	// maxViewers is how many browsers may be open; the one opened first is forgotten then.
	maxViewers = 256

	// again is how soon another link is shown: anybody on this machine can ask for one.
	again = 10 * time.Second
)

func (a *access) start(addr string, o *Options) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	a.now, a.at = o.Now, &url.URL{Scheme: "http", Host: addr}
	// Browsers send cookies to every port of a host.
	a.cookie, a.flow = "skillsd-page-"+port, "skillsd-login-"+port
	if o.OIDC != nil {
		a.at, a.hosts = o.OIDC.URL, []string{o.OIDC.URL.Host}
		if a.at.Scheme == "https" {
			a.cookie, a.flow = "__Host-skillsd-page", "__Host-skillsd-login"
		}
		return nil
	}
	a.hosts = []string{addr}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
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

// Link returns the address that opens the page, once. What it opens with is behind "#", so it is in no
// request line and in no log. With OIDC it is the page itself.
func (p *Page) Link() string {
	p.access.mu.Lock()
	defer p.access.mu.Unlock()
	if p.OIDC != nil {
		return p.access.at.String() + "/"
	}
	return p.access.at.String() + "/login#" + p.access.token
}

// guard answers requests of the viewer with next, sets the headers of every answer, and refuses those that
// another site sent, or that reached this address under another name.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		site := r.Header.Get("Sec-Fetch-Site")
		switch origin := r.Header.Get("Origin"); {
		case !slices.Contains(a.hosts, strings.ToLower(r.Host)):
			http.Error(w, "the Host header does not name this page: open the address that skillsd "+
				"printed", http.StatusForbidden)
			return
		// A browser that names no referrer sends null with a form of this page.
		case origin != "" && origin != a.at.Scheme+"://"+strings.ToLower(r.Host) &&
			(origin != "null" || site != "same-origin"),
			site != "" && site != "same-origin" && site != "none" && r.URL.Path != serve.LoginCallback:
			http.Error(w, "another site asks: open the page itself", http.StatusForbidden)
			return
		}
		open := r.URL.Path == "/login" || strings.HasPrefix(r.URL.Path, "/login/") ||
			strings.HasPrefix(r.URL.Path, "/static/") || r.URL.Path == "/favicon.ico"
		v, known := a.viewer(r)
		if open || known {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), viewerKey{}, v)))
			return
		}
		if strings.Contains(r.Header.Get("Accept"), "text/html") && r.Method == http.MethodGet {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		http.Error(w, "log in first, at /login", http.StatusUnauthorized)
	})
}

// viewer returns whose cookie a request has.
func (a *access) viewer(r *http.Request) (v viewer, known bool) {
	cookie, err := r.Cookie(a.cookie)
	if err != nil {
		return viewer{}, false
	}
	sum := sha256.Sum256([]byte(cookie.Value))
	a.mu.Lock()
	defer a.mu.Unlock()
	// Sums are compared, so how long it takes says nothing of a cookie.
	i := slices.IndexFunc(a.viewers, func(v viewer) bool {
		return v.cookie == sum && (v.expires.IsZero() || a.now().Before(v.expires))
	})
	if i < 0 {
		return viewer{}, false
	}
	return a.viewers[i], true
}

// enter lets a viewer in.
func (a *access) enter(w http.ResponseWriter, v viewer) error {
	value, err := secret()
	if err != nil {
		return err
	}
	v.cookie = sha256.Sum256([]byte(value))
	v.form, err = secret()
	if err != nil {
		return err
	}
	a.setCookie(w, a.cookie, value, 0, http.SameSiteStrictMode)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.viewers = append(a.viewers, v)
	a.viewers = a.viewers[max(0, len(a.viewers)-maxViewers):]
	return nil
}

// leave forgets a viewer.
func (a *access) leave(v viewer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.viewers = slices.DeleteFunc(a.viewers, func(other viewer) bool { return other.cookie == v.cookie })
}

// setCookie sets a cookie that no script reads, for a life, 0 until the browser ends; less removes it.
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

// renew makes another token for a link in place of the one before, unless that was done just now.
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

// use takes the token of the link, once.
func (a *access) use(token string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(a.token)) != 1 {
		return false
	}
	a.token = ""
	return true
}

func (p *Page) loginForm(w http.ResponseWriter, _ *http.Request) {
	p.render(w, http.StatusOK, p.loginView(""))
}

// loginForm is where somebody logs in; Said is what came of the login before.
type loginForm struct{ Said, Issuer string }

// entered is a login that was accepted.
type entered struct{}

// loginView is the screen of a login with what is said of the one before.
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
		case ok:
			p.Show(p.Link())
		default:
			said = "soon"
		}
		p.render(w, http.StatusOK, p.loginView(said))
		return
	}
	if !p.access.use(r.PostFormValue("token")) {
		p.render(w, http.StatusForbidden, p.loginView("refused"))
		return
	}
	if err := p.access.enter(w, viewer{operator: true}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/sessions", http.StatusSeeOther)
}
