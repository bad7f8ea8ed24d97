package httpauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/skillsd/skillsd/mcpserver/httpauth/oidctest"
)

// askProvider sends a browser to the provider, and returns the query it comes back with.
func askProvider(t *testing.T, address string) url.Values {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	back, err := answer.Location()
	if err != nil {
		t.Fatalf("the provider refuses the request: %s", answer.Status)
	}
	return back.Query()
}

// TestLogin wants a user in by an honest flow alone.
func TestLogin(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	provider.LogIn(map[string]any{"sub": "alice", "roles": []string{"staff"}})
	login := func(change func(*LoginConfig)) *Login {
		t.Helper()
		cfg := LoginConfig{Issuer: provider.URL, Client: oidctest.Client, Secret: oidctest.Secret,
			Redirect: "http://127.0.0.1:9465/login/callback"}
		if change != nil {
			change(&cfg)
		}
		l, err := NewLogin(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := login(nil)
	begin := func(l *Login) (flow string, answer url.Values) {
		t.Helper()
		address, flow, err := l.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return flow, askProvider(t, address)
	}
	flow, answer := begin(l)
	principal, claims, err := l.Finish(t.Context(), flow, answer)
	if err != nil || principal != "jwt:alice" || claims["roles"].([]any)[0] != "staff" {
		t.Fatalf("an honest login is %q %v: %v", principal, claims, err)
	}
	if _, _, err := l.Finish(t.Context(), flow, answer); err == nil {
		t.Error("a code counts twice")
	}

	_, stranger, _ := ed25519.GenerateKey(nil)
	other, _ := begin(l)
	part := func(flow string, n int) string { return strings.Split(flow, ".")[n] }
	claim := func(name string, value any) func(map[string]any) string {
		return func(claims map[string]any) string {
			claims[name] = value
			if value == nil {
				delete(claims, name)
			}
			return provider.Sign(claims)
		}
	}
	for _, test := range []struct {
		name  string
		flow  func(flow string) string
		query func(url.Values)
		forge func(claims map[string]any) string
		err   string // empty: let in
	}{
		{name: "honest"},
		{name: "this client among several", forge: func(claims map[string]any) string {
			claims["aud"], claims["azp"] = []string{"other", oidctest.Client}, oidctest.Client
			return provider.Sign(claims)
		}},
		{name: "state of another login", flow: func(string) string { return other }, err: "another login"},
		{name: "no state", query: func(q url.Values) { q.Del("state") }, err: "another login"},
		{name: "no flow", flow: func(string) string { return "" }, err: "another login"},
		{name: "empty flow", flow: func(string) string { return ".." }, query: func(q url.Values) { q.Del("state") },
			err: "another login"},
		{name: "verifier of another login", flow: func(flow string) string {
			return part(flow, 0) + "." + part(flow, 1) + "." + part(other, 2)
		}, err: "invalid_grant"},
		{name: "nonce of another login", flow: func(flow string) string {
			return part(flow, 0) + "." + part(other, 1) + "." + part(flow, 2)
		}, err: "ID token belongs to another login"},
		{name: "no nonce", forge: claim("nonce", nil), err: "ID token belongs to another login"},
		{name: "refusal", query: func(q url.Values) { q.Set("error", "access_denied") }, err: "access_denied"},
		{name: "made up code", query: func(q url.Values) { q.Set("code", "x") }, err: "invalid_grant"},
		{name: "no code", query: func(q url.Values) { q.Del("code") }, err: "invalid_grant"},
		{name: "no ID token", forge: func(map[string]any) string { return "" }, err: "ID token"},
		{name: "long ID token", forge: claim("padding", strings.Repeat("a", maxToken)), err: "bytes"},
		{name: "other issuer", forge: claim("iss", "https://evil.example"), err: "issuer"},
		{name: "other audience", forge: claim("aud", "skills"), err: "audience"},
		{name: "no audience", forge: claim("aud", nil), err: "audience"},
		{name: "several audiences", forge: claim("aud", []string{oidctest.Client, "skills"}), err: "another client"},
		{name: "issued to another client", forge: claim("azp", "skills"), err: "another client"},
		{name: "expired", forge: claim("exp", time.Now().Add(-2*time.Minute).Unix()), err: "expired"},
		{name: "never expires", forge: claim("exp", nil), err: "never expires"},
		{name: "of the future", forge: claim("iat", time.Now().Add(time.Hour).Unix()), err: "future"},
		{name: "no subject", forge: claim("sub", nil), err: "names no principal"},
		{name: "subject of several lines", forge: claim("sub", "a\nb"), err: "names no principal"},
		{name: "alg none", forge: func(claims map[string]any) string {
			text, _ := json.Marshal(claims)
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
				base64.RawURLEncoding.EncodeToString(text) + "."
		}, err: "ID token"},
		{name: "symmetric with the public key", forge: func(claims map[string]any) string {
			return sign(t, jose.HS256, []byte(provider.Key.Public().(ed25519.PublicKey)), "1", claims)
		}, err: "ID token"},
		{name: "key of a stranger", forge: func(claims map[string]any) string {
			return sign(t, jose.EdDSA, stranger, "1", claims)
		}, err: "no key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			flow, answer := begin(l)
			if test.flow != nil {
				flow = test.flow(flow)
			}
			if test.query != nil {
				test.query(answer)
			}
			provider.Forge(test.forge)
			defer provider.Forge(nil)
			principal, _, err := l.Finish(t.Context(), flow, answer)
			switch {
			case test.err == "" && (err != nil || principal != "jwt:alice"):
				t.Errorf("refused: %v", err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || principal != ""):
				t.Errorf("%q, %v; want an error with %q", principal, err, test.err)
			}
		})
	}
	wrong := login(func(cfg *LoginConfig) { cfg.Secret = "x" })
	flow, answer = begin(wrong)
	if _, _, err := wrong.Finish(t.Context(), flow, answer); err == nil || Unavailable(err) {
		t.Errorf("with a wrong secret: %v", err)
	}
}

// TestLoginProvider wants no login at a provider that is not the one that was named, or sends codes elsewhere.
func TestLoginProvider(t *testing.T) {
	t.Parallel()
	document, at := "", ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			w.Write([]byte(strings.ReplaceAll(document, "SELF", at)))
		case "/token":
			http.Redirect(w, r, at+"/elsewhere", http.StatusTemporaryRedirect)
		case "/elsewhere":
			t.Error("the code was sent where a redirect leads")
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	at = server.URL
	for _, test := range []struct{ document, err string }{
		{``, "discovery document"},
		{`{"issuer":"https://evil.example","jwks_uri":"SELF/keys"}`, "issuer"},
		{`{"issuer":"SELF","jwks_uri":"SELF/keys"}`, "no endpoints"},
		{`{"issuer":"SELF","jwks_uri":"SELF/keys","authorization_endpoint":"SELF/a","token_endpoint":"http://evil.example/t"}`, "no endpoints"},
		{`{"issuer":"SELF","jwks_uri":"SELF/keys","authorization_endpoint":"javascript:x","token_endpoint":"SELF/t"}`, "no endpoints"},
	} {
		document = test.document
		l, err := NewLogin(LoginConfig{Issuer: server.URL, Client: "x", Redirect: "https://page.example/login/callback"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.Begin(t.Context()); err == nil || !Unavailable(err) || !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v, want %q", test.document, err, test.err)
		}
	}
	document = `{"issuer":"SELF","jwks_uri":"SELF/keys","authorization_endpoint":"SELF/a","token_endpoint":"SELF/token"}`
	l, err := NewLogin(LoginConfig{Issuer: server.URL, Client: "x", Redirect: "https://page.example/login/callback"})
	if err != nil {
		t.Fatal(err)
	}
	address, flow, err := l.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked, _ := url.Parse(address)
	if _, _, err := l.Finish(t.Context(), flow, url.Values{"state": asked.Query()["state"], "code": {"c"}}); err == nil {
		t.Error("let in by a redirect")
	}
	for _, cfg := range []LoginConfig{{}, {Issuer: server.URL, Redirect: "https://page.example/"},
		{Issuer: "http://issuer.example", Client: "x", Redirect: "https://page.example/"},
		{Issuer: server.URL, Client: "x", Redirect: "http://page.example/"},
		{Issuer: server.URL, Client: "x", Redirect: "https://page.example/", Algorithms: []string{"HS256"}}} {
		if _, err := NewLogin(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
