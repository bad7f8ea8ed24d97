package page

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// policy is the Content-Security-Policy of every answer: nothing inline, nothing from elsewhere, and no
// script that makes elements of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// maxLogin is the longest body of a login.
const maxLogin = 1 << 10

// access decides who sees the page: the browser in which the link of the start was opened. Tokens of clients
// of MCP open nothing here.
type access struct {
	addr   string   // host and port of the listener
	hosts  []string // that a request may name
	cookie string   // its name has the port: browsers send cookies to every port of a host

	mu      sync.Mutex // guards the fields below
	token   string     // of the link; empty once it was used
	made    time.Time  // when it was
	viewers [][sha256.Size]byte
}

const (
	// maxViewers is how many browsers may be open; the one opened first is forgotten then.
	maxViewers = 16

	// again is how soon another link is shown: anybody on this machine can ask for one.
	again = 10 * time.Second
)

func (a *access) start(addr string, now time.Time) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	a.addr, a.hosts, a.cookie = addr, []string{addr}, "skillsd-page-"+port
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		a.hosts = append(a.hosts, net.JoinHostPort("localhost", port))
	}
	_, err = a.renew(now)
	return err
}

func secret() (string, error) {
	raw := make([]byte, 32)
	_, err := rand.Read(raw)
	return base64.RawURLEncoding.EncodeToString(raw), err
}

// Link returns the address that opens the page, once. What it opens with is behind "#", so it is in no
// request line and in no log.
func (p *Page) Link() string {
	p.access.mu.Lock()
	defer p.access.mu.Unlock()
	return "http://" + p.access.addr + "/login#" + p.access.token
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
		case origin != "" && origin != "http://"+strings.ToLower(r.Host) &&
			(origin != "null" || site != "same-origin"),
			site != "" && site != "same-origin" && site != "none":
			http.Error(w, "another site asks: open the page itself", http.StatusForbidden)
			return
		case r.Method != http.MethodGet && (r.Method != http.MethodPost || r.URL.Path != "/login"):
			h.Set("Allow", "GET")
			http.Error(w, "this page only reads", http.StatusMethodNotAllowed)
			return
		}
		open := r.URL.Path == "/login" || strings.HasPrefix(r.URL.Path, "/static/") ||
			r.URL.Path == "/favicon.ico"
		if open || a.knows(r) {
			next.ServeHTTP(w, r)
			return
		}
		if strings.Contains(r.Header.Get("Accept"), "text/html") && r.Method == http.MethodGet {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		http.Error(w, "open the link that skillsd printed", http.StatusUnauthorized)
	})
}

// knows reports whether a request has the cookie of the viewer.
func (a *access) knows(r *http.Request) bool {
	cookie, err := r.Cookie(a.cookie)
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(cookie.Value))
	a.mu.Lock()
	defer a.mu.Unlock()
	known := 0
	for i := range a.viewers {
		known |= subtle.ConstantTimeCompare(sum[:], a.viewers[i][:])
	}
	return known == 1
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

// use takes the token of the link, once, and returns the value of the cookie.
func (a *access) use(token string) (value string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(a.token)) != 1 {
		return "", false
	}
	value, err := secret()
	if err != nil {
		return "", false
	}
	sum := sha256.Sum256([]byte(value))
	a.token, a.viewers = "", append(a.viewers, sum)
	a.viewers = a.viewers[max(0, len(a.viewers)-maxViewers):]
	return value, true
}

func (p *Page) loginForm(w http.ResponseWriter, _ *http.Request) {
	p.render(w, http.StatusOK, "login", view{Title: "Open the page", Nav: "login", Data: ""})
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
		p.render(w, http.StatusOK, "login", view{Title: "Open the page", Nav: "login", Data: said})
		return
	}
	value, ok := p.access.use(r.PostFormValue("token"))
	if !ok {
		p.render(w, http.StatusForbidden, "login",
			view{Title: "Open the page", Nav: "login", Data: "refused"})
		return
	}
	http.SetCookie(w, &http.Cookie{Name: p.access.cookie, Value: value, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/sessions", http.StatusSeeOther)
}
