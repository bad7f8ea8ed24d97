package httpauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/skillsd/skillsd/skills/policy"
)

// issuer signs tokens and publishes its keys.
type issuer struct {
	t *testing.T
	*httptest.Server
	mu      sync.Mutex
	keys    jose.JSONWebKeySet
	broken  atomic.Bool
	fetches atomic.Int32
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		if i.broken.Load() {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		w.Write(i.set())
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) set() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	data, err := json.Marshal(i.keys)
	if err != nil {
		i.t.Fatal(err)
	}
	return data
}

func (i *issuer) publish(id string, key crypto.PublicKey, algorithm, use string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys.Keys = append(i.keys.Keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: algorithm, Use: use})
}

func sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	options := &jose.SignerOptions{}
	if id != "" {
		options = options.WithHeader(jose.HeaderKey("kid"), id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// claims are those of a good token, with changes; a nil value removes one.
func claims(changes map[string]any) map[string]any {
	all := map[string]any{
		"iss": "https://issuer.example.com", "aud": "skills", "sub": "alice", "scope": "openid skills:read",
		"exp": testTime.Add(time.Hour).Unix(), "iat": testTime.Unix(),
	}
	for name, value := range changes {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = value
		}
	}
	return all
}

func jwtAuthenticator(t *testing.T, keys string, now func() time.Time) *Authenticator {
	t.Helper()
	a, err := New(Config{Principals: map[string]policy.Principal{"jwt:alice": {Evidence: true}}, JWT: &JWTConfig{
		Issuer: "https://issuer.example.com", Audiences: []string{"skills", "more"}, Keys: keys, Scopes: []string{"skills:read"}, now: now,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestJWT(t *testing.T) {
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	ecKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	i := newIssuer(t)
	i.publish("rsa", rsaKey.Public(), "RS256", "sig")
	i.publish("ec", ecKey.Public(), "", "")
	i.publish("ed", edKey.Public(), "EdDSA", "sig")
	i.publish("enc", stranger.Public(), "EdDSA", "enc")
	a := jwtAuthenticator(t, i.URL, func() time.Time { return testTime })
	good := sign(t, jose.EdDSA, edKey, "ed", claims(nil))
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
	der := rsaKey.PublicKey.N.Bytes()
	for _, tt := range []struct {
		name, token string
		status      int // 0: let in
	}{
		{"EdDSA", good, 0},
		{"RS256", sign(t, jose.RS256, rsaKey, "rsa", claims(nil)), 0},
		{"ES256", sign(t, jose.ES256, ecKey, "ec", claims(nil)), 0},
		{"no key id", sign(t, jose.EdDSA, edKey, "", claims(nil)), 0},
		{"one of several audiences", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"aud": []string{"x", "more"}})), 0},
		{"scopes as a list", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"scope": nil, "scp": []string{"skills:read"}})), 0},
		{"clock a little behind", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"exp": testTime.Add(-30 * time.Second).Unix()})), 0},

		{"algorithm not pinned", sign(t, jose.PS256, rsaKey, "rsa", claims(nil)), 401},
		{"no algorithm", none, 401},
		{"symmetric with the public key", sign(t, jose.HS256, der, "rsa", claims(nil)), 401},
		{"other key under the id", sign(t, jose.EdDSA, stranger, "ed", claims(nil)), 401},
		{"unknown key id", sign(t, jose.EdDSA, edKey, "ed2", claims(nil)), 401},
		{"key for encryption", sign(t, jose.EdDSA, stranger, "enc", claims(nil)), 401},
		{"no signature", parts[0] + "." + parts[1] + ".", 401},
		{"other claims", parts[0] + "." + strings.Split(sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"sub": "bob"})), ".")[1] + "." + parts[2], 401},
		{"other issuer", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"iss": "https://evil.example.com"})), 401},
		{"no issuer", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"iss": nil})), 401},
		{"other audience", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"aud": "other"})), 401},
		{"no audience", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"aud": nil})), 401},
		{"expired", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"exp": testTime.Add(-2 * time.Minute).Unix()})), 401},
		{"never expires", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"exp": nil})), 401},
		{"not yet", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"nbf": testTime.Add(time.Hour).Unix()})), 401},
		{"issued in the future", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"iat": testTime.Add(time.Hour).Unix()})), 401},
		{"no subject", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"sub": nil})), 401},
		{"subject of many lines", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"sub": "a\nb"})), 401},
		{"long subject", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"sub": strings.Repeat("a", 200)})), 401},
		{"no scope", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"scope": nil})), 403},
		{"other scope", sign(t, jose.EdDSA, edKey, "ed", claims(map[string]any{"scope": "skills:readx"})), 403},
		{"junk", "a.b.c", 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name, response := ask(a, "Bearer "+tt.token)
			if tt.status == 0 {
				if name != "jwt:alice" {
					t.Errorf("not let in: %v", response)
				}
				return
			}
			if response == nil {
				t.Fatalf("let in as %s", name)
			}
			problem := map[int]string{401: `error="invalid_token"`, 403: `error="insufficient_scope"`}[tt.status]
			challenge := response.Header.Get("WWW-Authenticate")
			for _, want := range []string{problem, `scope="skills:read"`, `resource_metadata="http://skills.example.com/.well-known/oauth-protected-resource/mcp"`} {
				if !strings.Contains(challenge, want) {
					t.Errorf("challenge %s lacks %s", challenge, want)
				}
			}
			if response.StatusCode != tt.status {
				t.Errorf("status = %d, want %d", response.StatusCode, tt.status)
			}
		})
	}
}

// The issuer may change its keys; tokens that name unknown ones cannot make the server ask often.
func TestKeyRotation(t *testing.T) {
	_, first, _ := ed25519.GenerateKey(rand.Reader)
	_, second, _ := ed25519.GenerateKey(rand.Reader)
	i := newIssuer(t)
	i.publish("1", first.Public(), "", "")
	var clock atomic.Int64
	a := jwtAuthenticator(t, i.URL, func() time.Time { return testTime.Add(time.Duration(clock.Load())) })
	old := "Bearer " + sign(t, jose.EdDSA, first, "1", claims(map[string]any{"exp": testTime.Add(100 * time.Hour).Unix()}))
	next := "Bearer " + sign(t, jose.EdDSA, second, "2", claims(map[string]any{"exp": testTime.Add(100 * time.Hour).Unix()}))
	if name, _ := ask(a, old); name == "" {
		t.Fatal("the first key does not count")
	}
	for range 50 {
		if name, _ := ask(a, next); name != "" {
			t.Fatal("a key counts that is not published")
		}
	}
	if got := i.fetches.Load(); got != 1 {
		t.Errorf("the keys were fetched %d times in one moment", got)
	}
	i.publish("2", second.Public(), "", "")
	clock.Store(int64(2 * time.Minute))
	if name, _ := ask(a, next); name == "" {
		t.Error("the second key does not count")
	}
	i.broken.Store(true)
	clock.Store(int64(16 * time.Minute))
	if name, _ := ask(a, next); name == "" {
		t.Error("keys are forgotten as soon as they cannot be fetched")
	}
	clock.Store(int64(18 * time.Minute))
	if _, response := ask(a, next); response == nil || response.StatusCode != 503 {
		t.Errorf("with keys 16 minutes old the answer is %v", response)
	}
}

// A key that the issuer withdrew does not count once it is old, nor after a reload; a failed reload changes nothing.
func TestWithdrawnKey(t *testing.T) {
	_, first, _ := ed25519.GenerateKey(rand.Reader)
	_, second, _ := ed25519.GenerateKey(rand.Reader)
	old := "Bearer " + sign(t, jose.EdDSA, first, "1", claims(nil))
	for _, reload := range []bool{false, true} {
		i := newIssuer(t)
		i.publish("1", first.Public(), "", "")
		var clock atomic.Int64
		a := jwtAuthenticator(t, i.URL, func() time.Time { return testTime.Add(time.Duration(clock.Load())) })
		if name, _ := ask(a, old); name == "" {
			t.Fatal("the key does not count")
		}
		i.broken.Store(true)
		if err := a.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), i.URL) {
			t.Errorf("reload of a broken issuer: %v", err)
		}
		if name, _ := ask(a, old); name == "" {
			t.Error("a failed reload took the keys away")
		}
		i.broken.Store(false)
		i.mu.Lock()
		i.keys.Keys = nil
		i.mu.Unlock()
		i.publish("2", second.Public(), "", "")
		clock.Store(int64(5*time.Minute + time.Second))
		if reload {
			clock.Store(0)
			if err := a.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		} else if a.jwt.keys.last = nil; i.fetches.Load() != 2 { // the failure was forgotten
			t.Errorf("%d fetches", i.fetches.Load())
		}
		if name, response := ask(a, old); response == nil || response.StatusCode != 401 {
			t.Errorf("reload %v: a withdrawn key counts for %q", reload, name)
		}
	}
}

// The keys are where the issuer's discovery document says.
func TestDiscovery(t *testing.T) {
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	keys := newIssuer(t)
	keys.publish("1", key.Public(), "", "")
	document := func(issuer, place string) string { return `{"issuer":"` + issuer + `","jwks_uri":"` + place + `"}` }
	for _, tt := range []struct {
		name, issuer string // below the server
		files        map[string]string
		err          string
	}{
		{"OpenID", "", map[string]string{"/.well-known/openid-configuration": document("ISSUER", "SERVER/jwks"), "/jwks": "KEYS"}, ""},
		{"OpenID of an issuer with a path", "/realms/a", map[string]string{
			"/realms/a/.well-known/openid-configuration": document("ISSUER", "SERVER/jwks"), "/jwks": "KEYS",
			"/.well-known/jwks.json": `{"keys":[]}`}, ""},
		{"with a slash at the end", "/a/", map[string]string{"/a/.well-known/openid-configuration": document("ISSUER", "SERVER/jwks"), "/jwks": "KEYS"}, ""},
		{"RFC 8414", "/a", map[string]string{"/.well-known/oauth-authorization-server/a": document("ISSUER", "SERVER/jwks"), "/jwks": "KEYS"}, ""},
		{"no document", "", map[string]string{"/.well-known/jwks.json": "KEYS"}, ""},
		{"another issuer", "", map[string]string{"/.well-known/openid-configuration": document("https://evil.example.com", "SERVER/jwks"), "/jwks": "KEYS",
			"/.well-known/jwks.json": "KEYS"}, `of the issuer "https://evil.example.com"`},
		{"unsafe place of keys", "", map[string]string{"/.well-known/openid-configuration": document("ISSUER", "http://keys.example.com/jwks"),
			"/.well-known/jwks.json": "KEYS"}, "not an https URL"},
		{"no place of keys", "", map[string]string{"/.well-known/openid-configuration": `{"issuer":"ISSUER"}`}, "not an https URL"},
		{"not JSON", "", map[string]string{"/.well-known/openid-configuration": "<html>", "/.well-known/jwks.json": "KEYS"}, "discovery document"},
		{"nothing", "", nil, "/.well-known/jwks.json answered 404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var server *httptest.Server
			server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, ok := tt.files[r.URL.Path]
				if !ok {
					http.NotFound(w, r)
					return
				}
				strings.NewReplacer("ISSUER", server.URL+tt.issuer, "SERVER", server.URL, "KEYS", string(keys.set())).WriteString(w, text)
			}))
			defer server.Close()
			a, err := New(Config{JWT: &JWTConfig{Issuer: server.URL + tt.issuer, Audiences: []string{"skills"}, now: func() time.Time { return testTime }}})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Reload(t.Context()); (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("keys: %v, want %q", err, tt.err)
			}
			token := sign(t, jose.EdDSA, key, "1", claims(map[string]any{"iss": server.URL + tt.issuer}))
			if name, response := ask(a, "Bearer "+token); (name != "") != (tt.err == "") {
				t.Errorf("let in as %q: %v", name, response)
			}
		})
	}
}

// FuzzDiscovery holds that keys come only from a place where they cannot be replaced on their way.
func FuzzDiscovery(f *testing.F) {
	f.Add([]byte(`{"issuer":"https://a.example","jwks_uri":"https://a.example/jwks"}`))
	f.Add([]byte(`{"issuer":"https://a.example","jwks_uri":"http://a.example/jwks"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parseDiscovery(data, "https://a.example")
		place := found.Keys
		if u, wrong := url.Parse(place); err == nil && (wrong != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			t.Errorf("keys at %q", place)
		}
	})
}

func TestKeysUnavailable(t *testing.T) {
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	i := newIssuer(t)
	token := "Bearer " + sign(t, jose.EdDSA, key, "1", claims(nil))
	i.broken.Store(true)
	a := jwtAuthenticator(t, i.URL, func() time.Time { return testTime })
	if _, response := ask(a, token); response == nil || response.StatusCode != 503 || response.Header.Get("Retry-After") == "" {
		t.Errorf("answer = %v", response)
	}
}

func TestKeyFile(t *testing.T) {
	_, first, _ := ed25519.GenerateKey(rand.Reader)
	_, second, _ := ed25519.GenerateKey(rand.Reader)
	path := filepath.Join(t.TempDir(), "keys.json")
	i := newIssuer(t)
	i.publish("1", first.Public(), "", "")
	writeFile(t, path, string(i.set()))
	a := jwtAuthenticator(t, path, func() time.Time { return testTime })
	old := "Bearer " + sign(t, jose.EdDSA, first, "1", claims(nil))
	next := "Bearer " + sign(t, jose.EdDSA, second, "2", claims(nil))
	if name, _ := ask(a, old); name == "" {
		t.Error("the first key does not count")
	}
	if name, _ := ask(a, next); name != "" {
		t.Error("a key counts that is not in the file")
	}
	i.publish("2", second.Public(), "", "")
	writeFile(t, path, string(i.set()))
	if name, _ := ask(a, next); name == "" {
		t.Error("the second key does not count")
	}
	private, err := json.Marshal(jose.JSONWebKey{Key: first, KeyID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{`{"keys":[{"kty":"oct","k":"c2VjcmV0","alg":"HS256"}]}`, `{"keys":[` + string(private) + `]}`, `{}`, `x`} {
		writeFile(t, path, set)
		if _, response := ask(a, old); response == nil || response.StatusCode != 503 {
			t.Errorf("with the keys %s the answer is %v", set, response)
		}
	}
}

// Requests that come while the keys are fetched for the first time wait for them, all of them.
func TestKeysAreAwaited(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keys := newIssuer(t)
	keys.publish("k1", key.Public(), "", "sig")
	asked, answer := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		w.Write(keys.set())
	}))
	t.Cleanup(slow.Close)
	a := jwtAuthenticator(t, slow.URL, func() time.Time { return testTime })
	token := sign(t, jose.RS256, key, "k1", claims(nil))
	results := make(chan error, 2)
	identify := func() {
		_, _, err := a.jwt.verify(t.Context(), token)
		results <- err
	}
	go identify()
	<-asked
	go identify()
	for range 10_000 {
		runtime.Gosched()
	}
	close(answer)
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("principal = %v", err)
		}
	}
}
