package httpauth

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/skills/policy"
)

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	// A rename, so that the file changes also when size and time stay the same.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request with an Authorization header for each of headers.
func ask(a *Authenticator, headers ...string) (name string, response *http.Response) {
	r := httptest.NewRequest(http.MethodPost, "http://skills.example.com/mcp", nil)
	for _, header := range headers {
		r.Header.Add("Authorization", header)
	}
	w := httptest.NewRecorder()
	principal, ok := a.Authenticate(w, r)
	if ok {
		return principal.Name, nil
	}
	return "", w.Result()
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, path, "# team\n\nalice: "+hashOf("a1")+"\nbob@example.com:sha256:"+hashOf("b1")+"\r\nalice: "+strings.ToUpper(hashOf("a2"))+"\n")
	a, err := New(Config{TokenFile: path, Principals: map[string]policy.Principal{"alice": {Evidence: true}}})
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]string{
		"Bearer a1": "alice", "bearer a2": "alice", "BEARER  b1": "bob@example.com",
	} {
		if got, _ := ask(a, header); got != want {
			t.Errorf("%q is %q, want %q", header, got, want)
		}
	}
	principal, _ := a.Authenticate(httptest.NewRecorder(), &http.Request{Header: http.Header{"Authorization": {"Bearer a1"}}})
	if !principal.Evidence {
		t.Error("what alice says is not believed")
	}
	for _, tt := range []struct {
		name      string
		headers   []string
		status    int
		challenge string
	}{
		{"none", nil, 401, `Bearer realm="skillsd"`},
		{"other scheme", []string{"Basic YTpi"}, 401, `Bearer realm="skillsd"`},
		{"unknown", []string{"Bearer a3"}, 401, `Bearer realm="skillsd", error="invalid_token"`},
		{"the hash", []string{"Bearer " + hashOf("a1")}, 401, `Bearer realm="skillsd", error="invalid_token"`},
		{"a prefix", []string{"Bearer a"}, 401, `Bearer realm="skillsd", error="invalid_token"`},
		{"empty", []string{"Bearer "}, 401, `Bearer realm="skillsd"`},
		{"variable", []string{"Bearer ${SKILLS_TOKEN}"}, 401, `Bearer realm="skillsd"`},
		{"two words", []string{"Bearer a1 a2"}, 400, `Bearer realm="skillsd", error="invalid_request"`},
		{"two headers", []string{"Bearer a1", "Bearer a2"}, 400, `Bearer realm="skillsd", error="invalid_request"`},
		{"long", []string{"Bearer " + strings.Repeat("a", maxToken+1)}, 400, `Bearer realm="skillsd", error="invalid_request"`},
		{"quote", []string{`Bearer a"1`}, 400, `Bearer realm="skillsd", error="invalid_request"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name, response := ask(a, tt.headers...)
			if response == nil {
				t.Fatalf("let in as %q", name)
			}
			if got := response.Header.Get("WWW-Authenticate"); response.StatusCode != tt.status || got != tt.challenge {
				t.Errorf("answer = %d %s, want %d %s", response.StatusCode, got, tt.status, tt.challenge)
			}
		})
	}
}

// What is configured of a principal is its alone, and never its name.
func TestPrincipals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, path, "alice: "+hashOf("a1")+"\nbob: "+hashOf("b1")+"\n")
	principals := map[string]policy.Principal{"alice": {Name: "mallory", Evidence: true, Profile: "readers"}, "carol": {Evidence: true}}
	a, err := New(Config{TokenFile: path, Principals: principals})
	if err != nil {
		t.Fatal(err)
	}
	principals["bob"] = policy.Principal{Evidence: true} // is changed too late
	for token, want := range map[string]policy.Principal{"a1": {Name: "alice", Evidence: true, Profile: "readers"}, "b1": {Name: "bob"}} {
		got, ok := a.Authenticate(httptest.NewRecorder(), &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
		if !ok || got != want {
			t.Errorf("the principal of %s is %+v, %v, want %+v", token, got, ok, want)
		}
	}
}

// The file counts as it is now; while it cannot be read nobody is let in.
func TestTokenFileChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, path, "alice: "+hashOf("a1")+"\n")
	a, err := New(Config{TokenFile: path})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, "alice: "+hashOf("a2")+"\n")
	if name, _ := ask(a, "Bearer a1"); name != "" {
		t.Errorf("a token that was replaced counts for %s", name)
	}
	if name, _ := ask(a, "Bearer a2"); name != "alice" {
		t.Errorf("the token in its place counts for %q", name)
	}
	for _, broken := range []string{"alice " + hashOf("a2") + "\n", "", "\x00"} {
		writeFile(t, path, broken)
		if _, response := ask(a, "Bearer a2"); response == nil || response.StatusCode != 503 {
			t.Errorf("with the file %q the answer is %v", broken, response)
		}
	}
	os.Remove(path)
	if _, response := ask(a, "Bearer a2"); response == nil || response.StatusCode != 503 {
		t.Errorf("without the file the answer is %v", response)
	}
	writeFile(t, path, "alice: "+hashOf("a2")+"\n")
	if name, _ := ask(a, "Bearer a2"); name != "alice" {
		t.Error("the file is back and alice is not let in")
	}
}

func TestParseTokens(t *testing.T) {
	good := hashOf("x")
	for _, text := range []string{
		"", "# nothing\n", "alice\n", "alice: x\n", "alice: " + good[:63], "alice: " + good + "0", ": " + good,
		"al ice: " + good, "jwt:alice: " + good, "älice: " + good, strings.Repeat("a", 129) + ": " + good,
		"a: " + good + "\nb: " + good, "a: " + hashOf(""), "alice: " + good + " # comment", "a\x00b: " + good,
	} {
		if set, err := parseTokens([]byte(text)); err == nil {
			t.Errorf("parseTokens(%.80q) = %v, want an error", text, set)
		}
	}
	for _, text := range []string{"alice: " + good, "\ufeffalice: sha256:" + good + "\r\n", "\ufeff# comment\nalice: " + good + "\n"} {
		if set, err := parseTokens([]byte(text)); err != nil || len(set) != 1 || set[0].principal != "alice" {
			t.Errorf("parseTokens(%q) = %v, %v", text, set, err)
		}
	}
}

func TestNewErrors(t *testing.T) {
	dir := t.TempDir()
	jwt := func(adjust func(*JWTConfig)) *JWTConfig {
		c := &JWTConfig{Issuer: "https://i", Audiences: []string{"a"}, Keys: "https://i/keys"}
		adjust(c)
		return c
	}
	for name, cfg := range map[string]Config{
		"nothing":                              {},
		"no file":                              {TokenFile: filepath.Join(dir, "none")},
		"directory":                            {TokenFile: dir},
		"no issuer":                            {JWT: jwt(func(c *JWTConfig) { c.Issuer = "" })},
		"no audience":                          {JWT: jwt(func(c *JWTConfig) { c.Audiences = nil })},
		"empty audience":                       {JWT: jwt(func(c *JWTConfig) { c.Audiences = []string{""} })},
		"keys to be found by an unsafe issuer": {JWT: jwt(func(c *JWTConfig) { c.Issuer, c.Keys = "http://i", "" })},
		"keys over http":                       {JWT: jwt(func(c *JWTConfig) { c.Keys = "http://i/keys" })},
		"keys with password":                   {JWT: jwt(func(c *JWTConfig) { c.Keys = "https://u:p@i/keys" })},
		"keys of a file URL":                   {JWT: jwt(func(c *JWTConfig) { c.Keys = "file:///etc/passwd" })},
		"no key file":                          {JWT: jwt(func(c *JWTConfig) { c.Keys = filepath.Join(dir, "none") })},
		"symmetric algorithm":                  {JWT: jwt(func(c *JWTConfig) { c.Algorithms = []string{"HS256"} })},
		"no algorithm":                         {JWT: jwt(func(c *JWTConfig) { c.Algorithms = []string{"none"} })},
		"relative resource":                    {JWT: jwt(func(*JWTConfig) {}), Resource: "/mcp"},
		"resource, fragment":                   {JWT: jwt(func(*JWTConfig) {}), Resource: "https://a/mcp#x"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMetadata(t *testing.T) {
	for _, tt := range []struct {
		name, resource, url string
		status              int
		want                string
	}{
		{"plain", "", "http://localhost:8080/.well-known/oauth-protected-resource", 200, "http://localhost:8080/mcp"},
		{"with path", "", "http://localhost:8080/.well-known/oauth-protected-resource/mcp", 200, "http://localhost:8080/mcp"},
		{"public", "https://skills.example.com/team/mcp", "http://localhost/.well-known/oauth-protected-resource/team/mcp", 200, "https://skills.example.com/team/mcp"},
		{"other path", "", "http://localhost/.well-known/oauth-protected-resource/x", 404, ""},
		{"elsewhere", "", "http://localhost/", 404, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := New(Config{Resource: tt.resource, JWT: &JWTConfig{
				Issuer: "https://issuer.example.com", Audiences: []string{"skills"}, Keys: "https://issuer.example.com/keys", Scopes: []string{"skills:read"}}})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.url, nil))
			if w.Code != tt.status {
				t.Fatalf("status = %d, want %d", w.Code, tt.status)
			}
			if tt.want == "" {
				return
			}
			var got struct {
				Resource string   `json:"resource"`
				Servers  []string `json:"authorization_servers"`
				Scopes   []string `json:"scopes_supported"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.Resource != tt.want || len(got.Servers) != 1 || got.Servers[0] != "https://issuer.example.com" || len(got.Scopes) != 1 {
				t.Errorf("metadata = %s", w.Body)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, path, "alice: "+hashOf("a1"))
	a, err := New(Config{TokenFile: path})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/.well-known/oauth-protected-resource", nil))
	if w.Code != 404 {
		t.Errorf("without an issuer there is metadata: %d", w.Code)
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add([]byte("alice: " + hashOf("x") + "\n"))
	f.Add([]byte("# c\r\n\r\nbob: sha256:" + hashOf("y")))
	f.Add([]byte("a: b: c"))
	f.Add([]byte{0xff, ':'})
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := parseTokens(data)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, token := range set {
			if checkPrincipal(token.principal) != nil || strings.HasPrefix(token.principal, jwtPrefix) {
				t.Errorf("principal %q", token.principal)
			}
			if seen[string(token.hash[:])] {
				t.Errorf("a token twice")
			}
			seen[string(token.hash[:])] = true
		}
		if name, ok := set.principal(""); ok {
			t.Errorf("the empty token is %s's", name)
		}
	})
}

func FuzzBearer(f *testing.F) {
	for _, seed := range []string{"Bearer abc", "bearer  x", "Basic eA==", "Bearer", "Bearer \x00", "Bearer a b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token, err := bearer([]string{header})
		if err == nil && (token == "" || len(token) > maxToken || strings.ContainsAny(token, " \t\r\n\"\x00,;")) {
			t.Errorf("bearer(%q) = %q", header, token)
		}
	})
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeys(data)
		if err != nil {
			return
		}
		for _, key := range keys {
			if !key.IsPublic() || !key.Valid() {
				t.Errorf("key %+v", key)
			}
		}
	})
}

var testTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
