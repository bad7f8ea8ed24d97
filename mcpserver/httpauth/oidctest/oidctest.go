// Package oidctest is an OpenID provider for tests: the authorization code flow with PKCE and its checks,
// with a user who is always logged in.
package oidctest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// The client that the provider knows.
const (
	Client = "skillsd-page"
	Secret = "a secret of the client"
)

// Provider answers at the URL of its server, which is the issuer.
type Provider struct {
	*httptest.Server
	Key ed25519.PrivateKey // signs ID tokens; its id is "1"

	mu    sync.Mutex // guards the fields below
	user  map[string]any
	codes map[string]url.Values // the requests they were given for
	forge func(claims map[string]any) (token string)
}

// New returns a provider that the end of the test closes.
func New(t testing.TB) *Provider {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{Key: key, codes: map[string]url.Values{}}
	p.Server = httptest.NewServer(p.handler())
	t.Cleanup(p.Close)
	return p
}

// LogIn makes the user of these claims the one who is logged in.
func (p *Provider) LogIn(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user = claims
}

// Forge has ID tokens made by a function from the claims that they should have; nil ends that.
func (p *Provider) Forge(token func(claims map[string]any) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forge = token
}

// Sign returns a token of the provider with claims.
func (p *Provider) Sign(claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: p.Key},
		new(jose.SignerOptions).WithHeader("kid", "1"))
	if err != nil {
		panic(err) // of a key of ours
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		panic(err) // of claims of a test
	}
	return text
}

func (p *Provider) handler() http.Handler {
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, what any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(what)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize",
			"token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		say(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.Key.Public(), KeyID: "1", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		token, ok := p.exchange(r)
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			say(w, map[string]string{"error": "invalid_grant"})
			return
		}
		say(w, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "id_token": token})
	})
	return mux
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != Client || q.Get("response_type") != "code" ||
		q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" ||
		!slices.Contains(strings.Fields(q.Get("scope")), "openid") {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = q
	p.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// exchange takes a code, once, and returns the ID token.
func (p *Provider) exchange(r *http.Request) (token string, ok bool) {
	client, secret, _ := r.BasicAuth()
	secret, _ = url.QueryUnescape(secret)
	if client != Client || secret != Secret {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	code := r.PostFormValue("code")
	asked, ok := p.codes[code]
	delete(p.codes, code)
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		return "", false
	}
	now := time.Now()
	claims := map[string]any{"iss": p.URL, "aud": Client, "iat": now.Unix(),
		"exp": now.Add(time.Minute).Unix(), "nonce": asked.Get("nonce")}
	maps.Copy(claims, p.user)
	if p.forge != nil {
		return p.forge(claims), true
	}
	return p.Sign(claims), true
}
