package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s
}

func at(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func fetch(t *testing.T, c *Client, from string, limit int64) (*File, string, error) {
	t.Helper()
	if c.Home == nil {
		c.Home = at(t, from)
	}
	var got bytes.Buffer
	file, err := c.Fetch(t.Context(), at(t, from), limit, &got)
	return file, got.String(), err
}

func TestFetch(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "identity" || r.Header.Get("Cookie") != "" {
			t.Errorf("headers = %v", r.Header)
		}
		w.Header().Set("Content-Type", "Application/Gzip; x=y")
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		fmt.Fprint(w, "hello")
	})
	file, got, err := fetch(t, &Client{}, s.URL+"/x", 5)
	if err != nil || got != "hello" || file.Size != 5 || file.Type != "application/gzip" ||
		file.Digest != "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Errorf("Fetch = %+v, %q, %v", file, got, err)
	}
}

// What a server does wrong is an error that says so.
func TestHostileServer(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/private":
			http.Redirect(w, r, "http://127.0.0.2:1/", http.StatusFound)
		case "/metadata":
			http.Redirect(w, r, "https://169.254.169.254/latest", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/plain":
			http.Redirect(w, r, "http://example.com/x", http.StatusFound)
		case "/user":
			http.Redirect(w, r, "https://a:b@example.com/x", http.StatusFound)
		case "/packed":
			w.Header().Set("Content-Encoding", "gzip")
		case "/long":
			for range 100 {
				fmt.Fprint(w, strings.Repeat("x", 1000))
				w.(http.Flusher).Flush()
			}
		case "/short":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "x")
		case "/denied":
			w.WriteHeader(http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
	})
	for path, want := range map[string]string{
		"/loop": "more than 5 redirects", "/private": "127.0.0.2 is not a public address",
		"/metadata": "169.254.169.254 is not a public address", "/file": "redirected to file:",
		"/plain": "plain http", "/user": "holds credentials", "/packed": "the encoding",
		"/long": "more than 1000 bytes", "/short": "unexpected EOF", "/denied": "needs a token",
		"/gone": "404 Not Found",
	} {
		_, _, err := fetch(t, &Client{}, s.URL+path, 1000)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "a:b") {
			t.Errorf("%s: error = %v, want %q", path, err, want)
		}
	}
	_, _, err := fetch(t, &Client{}, s.URL+"/gone", 1000)
	if status, ok := errors.AsType[*StatusError](err); !ok || status.Status != http.StatusNotFound {
		t.Errorf("error = %v", err)
	}
}

// A token reaches the host that it is for, and no other one that this leads to.
func TestToken(t *testing.T) {
	var seen []string
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, "other "+r.Header.Get("Authorization"))
	})
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, "home "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/other":
			http.Redirect(w, r, other.URL+"/x", http.StatusFound)
		case "/again":
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	})
	c := &Client{Home: at(t, home.URL), Token: "secret"}
	if _, _, err := fetch(t, c, home.URL+"/again", 10); err != nil {
		t.Error(err)
	}
	if _, _, err := fetch(t, c, home.URL+"/other", 10); err == nil {
		t.Error("a neighbour was asked")
	}
	req, err := http.NewRequest(http.MethodGet, other.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	if err := c.redirect(req, 1); err != nil || req.Header.Get("Authorization") != "" {
		t.Errorf("a redirect takes the token along: %v, %v", req.Header, err)
	}
	if want := "home Bearer secret,home Bearer secret,home Bearer secret"; strings.Join(seen, ",") != want {
		t.Errorf("requests = %q, want %q", seen, want)
	}
}

// A server that sends nothing, before its answer or in it, does not hold a command up.
func TestSilentServer(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			fmt.Fprint(w, "x")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	for _, path := range []string{"/head", "/body"} {
		_, _, err := fetch(t, &Client{quiet: 50 * time.Millisecond}, s.URL+path, 100)
		if err == nil || !strings.Contains(err.Error(), "nothing came for 50ms") {
			t.Errorf("%s: error = %v", path, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := (&Client{Home: at(t, s.URL)}).Fetch(ctx, at(t, s.URL), 1, &bytes.Buffer{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

func TestAllowed(t *testing.T) {
	for addr, want := range map[string][2]bool{ // of the user's host, of another
		"127.0.0.1": {true, false}, "10.1.2.3": {true, false}, "169.254.169.254": {false, false},
		"fe80::1": {false, false}, "0.0.0.0": {false, false}, "224.0.0.1": {false, false},
		"::ffff:169.254.169.254": {false, false}, "::ffff:10.0.0.1": {true, false}, "8.8.8.8": {true, true},
	} {
		for i, home := range []bool{true, false} {
			if err := allowed(netip.MustParseAddr(addr), home); (err == nil) != want[i] {
				t.Errorf("%s, home %t: %v", addr, home, err)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"https://example.com/x": "", "http://127.0.0.1:1/x": "", "http://localhost/x": "", "http://[::1]/x": "",
		"http://example.com/x": "plain http", "https://a@example.com/x": "credentials",
		"https://example.com/x?y": "query", "https:///x": "no host", "ftp://h/x": "the protocol",
		"https://h/" + strings.Repeat("x", 3000): "is not a URL", "https:x": "no host",
	} {
		_, err := Parse(text, false)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: error = %v, want %q", text, err, want)
		}
	}
	if _, err := Parse("http://example.com/x", true); err != nil {
		t.Error(err)
	}
}
