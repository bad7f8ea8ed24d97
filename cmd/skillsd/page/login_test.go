package page_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/httpauth"
	"github.com/skillsd/skillsd/mcpserver/httpauth/oidctest"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// oidc has a page let in by a provider, over TLS if the scheme is https, under the name of another host if one is
// given.
func oidc(provider *oidctest.Provider, scheme string, host ...string) func(*page.Options, string) {
	return func(o *page.Options, addr string) {
		for _, name := range host {
			addr = strings.Replace(addr, "127.0.0.1", name, 1)
		}
		at := &url.URL{Scheme: scheme, Host: addr}
		login, err := httpauth.NewLogin(httpauth.LoginConfig{Issuer: provider.URL, Client: oidctest.Client,
			Secret: oidctest.Secret, Redirect: at.String() + serve.LoginCallback})
		if err != nil {
			panic(err) // of constants
		}
		o.OIDC = &serve.Login{Login: login, URL: at, Issuer: provider.URL, Claim: "roles", Operator: "ops",
			Viewer: "staff"}
	}
}

// signIn goes to the provider and back, and returns the last answer with the cookies that a browser has then.
func (s *site) signIn() (answer *http.Response, text string) {
	s.t.Helper()
	s.jar = nil
	begun, _ := s.ask(http.MethodGet, "/login/start", nil, nil)
	s.jar = begun.Cookies()
	asked, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, begun.Header.Get("Location"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	back, err := s.client.Transport.RoundTrip(asked)
	if err != nil {
		s.t.Fatal(err)
	}
	back.Body.Close()
	to, err := back.Location()
	if err != nil {
		s.t.Fatalf("the provider answers %s", back.Status)
	}
	answer, text = s.ask(http.MethodGet, to.RequestURI(), http.Header{"Sec-Fetch-Site": {"cross-site"}}, nil)
	s.jar = slices.DeleteFunc(answer.Cookies(), func(c *http.Cookie) bool { return c.MaxAge < 0 })
	return answer, text
}

// TestSignIn wants in whom the provider knows, with a role, for an hour or until they sign out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	s := open(t, corpus(t, t.TempDir(), "ses_a", "plain"), oidc(provider, "https"))
	if answer, text := s.ask(http.MethodGet, "/login", nil, nil); answer.StatusCode != http.StatusOK ||
		!strings.Contains(text, `href="/login/start"`) || strings.Contains(text, "token") {
		t.Errorf("the login is %d %s", answer.StatusCode, text)
	}
	for _, test := range []struct {
		name   string
		claims map[string]any
		status int
		places string // of what shows this machine
	}{
		{"operator", map[string]any{"sub": "olga", "roles": []string{"staff", "ops"}}, 200, "200"},
		{"viewer", map[string]any{"sub": "vera", "roles": "staff"}, 200, "403"},
		{"other roles", map[string]any{"sub": "mallory", "roles": []string{"ops ", "OPS", "staffs"}}, 403, "401"},
		{"roles of another type", map[string]any{"sub": "mallory", "roles": map[string]any{"ops": true}}, 403, "401"},
		{"no role", map[string]any{"sub": "mallory", "groups": "ops"}, 403, "401"},
		{"no subject", map[string]any{"roles": "ops"}, 403, "401"},
	} {
		t.Run(test.name, func(t *testing.T) {
			provider.LogIn(test.claims)
			answer, text := s.signIn()
			if answer.StatusCode != test.status || (len(s.jar) > 0) != (test.status == 200) {
				t.Errorf("signing in is %d with %v: %s", answer.StatusCode, s.jar, text)
			}
			if got, _ := s.ask(http.MethodGet, "/allowed.json", nil, nil); fmt.Sprint(got.StatusCode) != test.places {
				t.Errorf("/allowed.json = %d, want %s", got.StatusCode, test.places)
			}
		})
	}

	provider.LogIn(map[string]any{"sub": "olga", "roles": "ops"})
	s.signIn()
	c := s.jar[0]
	if c.Name != "__Host-skillsd-page" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode ||
		c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
	other := &site{t: t, base: s.base, client: s.client}
	other.signIn()
	s.get("/sessions.json")
	if answer, _ := s.ask(http.MethodPost, "/logout", nil, url.Values{}); answer.StatusCode != http.StatusSeeOther ||
		answer.Cookies()[0].MaxAge >= 0 {
		t.Errorf("signing out is %d", answer.StatusCode)
	}
	if answer, _ := s.ask(http.MethodGet, "/sessions.json", nil, nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("who signed out gets %d", answer.StatusCode)
	}
	other.get("/sessions.json") // the other browser stays
	s.ahead.Store(int64(59 * time.Minute))
	other.get("/sessions.json")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(other.jar[0])
	live, err := s.client.Do(r)
	if err != nil || live.StatusCode != http.StatusOK {
		t.Fatalf("a live connection: %v, %v", live, err)
	}
	defer live.Body.Close()
	s.ahead.Store(int64(time.Hour + time.Second))
	if _, err := io.ReadAll(live.Body); err != nil {
		t.Errorf("a live connection outlasts the login: %v", err)
	}
	if answer, _ := other.ask(http.MethodGet, "/sessions.json", nil, nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("after an hour: %d", answer.StatusCode)
	}
}

// TestSignInRefusals wants nobody in by the answer to another browser, by a link, or by a token of MCP.
func TestSignInRefusals(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	provider.LogIn(map[string]any{"sub": "olga", "roles": "ops"})
	dir := t.TempDir()
	corpus(t, dir, "ses_a", "plain")
	s := open(t, dir, oidc(provider, "http"))
	answer, _ := s.ask(http.MethodGet, "/login/start", nil, nil)
	c := answer.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.MaxAge != 600 {
		t.Errorf("the cookie of a login is %v", c)
	}
	asked, err := answer.Location()
	if err != nil || asked.Query().Get("redirect_uri") != s.base+"/login/callback" {
		t.Fatalf("the browser is sent to %v, %v", asked, err)
	}
	flow := answer.Cookies()
	back, err := s.client.Get(asked.String())
	if err != nil {
		t.Fatal(err)
	}
	back.Body.Close()
	to, _ := back.Location()
	for _, test := range []struct {
		name string
		jar  []*http.Cookie
		path string
		want int
	}{
		{"another browser", nil, to.RequestURI(), 403},
		{"a cookie of its own", []*http.Cookie{{Name: c.Name, Value: strings.Repeat("a", 43) + ".b.c"}}, to.RequestURI(), 403},
		{"another state", flow, "/login/callback?code=x&state=" + strings.Repeat("a", 43), 403},
		{"itself", flow, to.RequestURI(), 200},
		{"a replay", flow, to.RequestURI(), 403},
	} {
		s.jar = test.jar
		answer, text := s.ask(http.MethodGet, test.path, nil, nil)
		in := slices.ContainsFunc(answer.Cookies(), func(c *http.Cookie) bool { return c.MaxAge >= 0 })
		over := slices.ContainsFunc(answer.Cookies(), func(gone *http.Cookie) bool {
			return gone.Name == c.Name && gone.MaxAge < 0
		})
		if answer.StatusCode != test.want || in != (test.want == 200) || !over {
			t.Errorf("%s is answered with %d %v: %s", test.name, answer.StatusCode, answer.Cookies(), text)
		}
	}
	now := time.Now()
	for _, audience := range []string{oidctest.Client, "https://skills.example/mcp"} {
		token := provider.Sign(map[string]any{"iss": provider.URL, "aud": audience, "sub": "olga", "roles": "ops",
			"iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
		s.jar = []*http.Cookie{{Name: "skillsd-page-" + asked.Port(), Value: token}}
		header := http.Header{"Authorization": {"Bearer " + token}}
		if answer, _ := s.ask(http.MethodGet, "/sessions.json", header, nil); answer.StatusCode != 401 {
			t.Errorf("a token for %s opens the page: %d", audience, answer.StatusCode)
		}
	}
	s.jar = nil
	if answer, _ := s.ask(http.MethodPost, "/login", nil, url.Values{"token": {""}}); answer.StatusCode < 400 {
		t.Errorf("a link is answered with %d", answer.StatusCode)
	}
	provider.Close()
	if answer, text := s.ask(http.MethodGet, "/login/callback?code=x", nil, nil); answer.StatusCode != 403 {
		t.Errorf("without a login that began: %d %s", answer.StatusCode, text)
	}
	dead := open(t, dir, oidc(provider, "http"))
	if answer, text := dead.ask(http.MethodGet, "/login/start", nil, nil); answer.StatusCode != 502 ||
		!strings.Contains(text, "does not answer") {
		t.Errorf("without a provider: %d %s", answer.StatusCode, text)
	}
}

// TestPrincipals wants each viewer shown what is theirs, by every route that there is.
func TestPrincipals(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	dir := t.TempDir()
	const mine, theirs = "jwt:alice", "jwt:bobby"
	corpus(t, dir, "ses_mine", mine)
	corpus(t, dir, "ses_yours", theirs)
	live := serve.Live{Queue: admit.State{Free: 3, Waiting: 77}}
	for _, name := range []string{mine, theirs} {
		live.Pending = append(live.Pending, approval.Pending{State: approval.State{Principal: name, Session: name,
			Skill: name}, Form: approval.Form{Message: name}})
		live.Uses = append(live.Uses, filestore.Use{Principal: name})
		live.Queue.Shares = append(live.Queue.Shares, admit.Share{Principal: name, Waiting: 5})
	}
	s := open(t, dir, oidc(provider, "http"), func(o *page.Options, _ string) {
		o.Live = func(context.Context) (serve.Live, error) { return live, nil }
	})
	enter := func(subject, role string) *site {
		t.Helper()
		provider.LogIn(map[string]any{"sub": subject, "roles": role})
		viewer := &site{t: t, base: s.base, client: s.client}
		if answer, text := viewer.signIn(); answer.StatusCode != http.StatusOK {
			t.Fatalf("%s is not let in: %s", subject, text)
		}
		return viewer
	}
	alice, nobody, operator := enter("alice", "staff"), enter("carol", "staff"), enter("olga", "ops")

	// What each route shows of a principal is for that one and for operators; false is for what is about no
	// session. A route that is not here fails the test.
	personal := map[string]bool{
		"GET /static/{name}": false, "GET /favicon.ico": false, "GET /login": false, "GET /login/start": false,
		"GET /login/callback": false, "POST /logout": false, "GET /{$}": false,
		"GET /sessions": true, "GET /sessions.json": true, "GET /sessions/{id}": true,
		"GET /sessions/{id}/session.json": true, "GET /sessions/{id}/replay": false,
		"GET /sessions/{id}/replay.jsonl": false, "GET /sessions/{id}/events/{seq}": true,
		"GET /sessions/{id}/events/{seq}/line.json": true, "GET /sessions/{id}/outputs/{name}": true,
		"GET /refusals": true, "GET /refusals.json": true, "GET /approvals": true, "GET /approvals.json": true,
		"POST /approvals/{code}": true,
		"GET /allowed":           false, "GET /allowed.json": false, "GET /skills": false, "GET /skills.json": false,
		"GET /skill": false, "GET /skill.json": false, "GET /health": true, "GET /health.json": true, "GET /live": false,
	}
	queries := []string{"", "?principal=obb", "?principal=", "?skill=obb", "?client=obb", "?state=ended", "?denied=1",
		"?at=4", "?by=principal", "?by=skill&only=jwt:bobby", "?by=principal&only=jwt:bobby", "?days=3650", "?from=1"}
	for _, pattern := range s.page.Routes() {
		shows, known := personal[pattern]
		if !known {
			t.Errorf("%s: say here whom it shows", pattern)
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		if method != http.MethodGet || pattern == "GET /live" {
			continue
		}
		path = strings.NewReplacer("{$}", "", "{seq}", "4", "{name}", "ID_run_skill_script_2.stdout").Replace(path)
		of := func(id string) string {
			return strings.NewReplacer("{id}", id, "ID", id).Replace(path)
		}
		for _, query := range queries {
			for _, viewer := range []*site{alice, nobody} {
				for _, id := range []string{"ses_mine", "ses_yours"} {
					_, text := viewer.ask(http.MethodGet, of(id)+query, nil, nil)
					secrets := []string{"ses_yours", "/records", dir}
					if !strings.Contains(query, theirs) { // which is shown again as it was asked for
						secrets = append(secrets, theirs)
					}
					if viewer == nobody {
						secrets = append(secrets, "ses_mine", mine)
					}
					for _, secret := range secrets {
						if strings.Contains(text, secret) {
							t.Errorf("%s of %s%s shows %s:\n%s", pattern, id, query, secret, text)
						}
					}
				}
			}
		}
		if _, own := alice.ask(http.MethodGet, of("ses_mine"), nil, nil); shows && !strings.Contains(own, mine) {
			t.Errorf("%s does not show alice her own:\n%s", pattern, own)
		}
		if _, all := operator.ask(http.MethodGet, of("ses_yours"), nil, nil); shows && !strings.Contains(all, theirs) {
			t.Errorf("%s does not show bobby to the operator:\n%s", pattern, all)
		}
		if strings.Contains(path, "{id}") {
			for id, want := range map[string]int{"ses_mine": 200, "ses_yours": 404} {
				if answer, _ := alice.ask(http.MethodGet, of(id), nil, nil); answer.StatusCode != want {
					t.Errorf("alice gets %d for %s, want %d", answer.StatusCode, of(id), want)
				}
			}
		}
	}
	if text := alice.get("/health.json"); !strings.Contains(text, `"waiting": 5,`) || strings.Contains(text, ": 77") ||
		strings.Contains(text, "verdict") {
		t.Errorf("alice's health is %s", text)
	}
	if text := alice.get("/sessions"); strings.Contains(text, "/allowed") || strings.Contains(text, "/skills") {
		t.Error("alice is offered screens that only operators see")
	}

	// A record that cannot be read says so without naming its place.
	corpus(t, dir, "ses_broken", mine)
	record := filepath.Join(dir, "ses_broken", provenance.EventsFile)
	lines, err := os.ReadFile(record)
	if err == nil {
		err = os.WriteFile(record, append(lines[:len(lines)/2], "\n{}\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.ahead.Add(int64(2 * time.Second))
	for _, path := range []string{"/sessions/ses_broken", "/sessions/ses_broken/replay", "/sessions/ses_broken/replay.jsonl",
		"/sessions/ses_broken/session.json", "/sessions/ses_broken/events/9", "/sessions/ses_broken/outputs/x", "/refusals.json"} {
		if _, text := alice.ask(http.MethodGet, path, nil, nil); strings.Contains(text, dir) {
			t.Errorf("%s names the directory of the records: %s", path, text)
		}
	}
	for viewer, want := range map[*site]string{alice: "the log of skillsd says why", operator: "line"} {
		answer, text := viewer.ask(http.MethodGet, "/sessions/ses_broken/events/9/line.json", nil, nil)
		if answer.StatusCode != http.StatusInternalServerError || !strings.Contains(text, want) {
			t.Errorf("an event that cannot be read is %d %s, want %q", answer.StatusCode, text, want)
		}
	}
	if got := alice.verified("ses_broken"); got.Verdict.State != "differs" || got.Fault == "" {
		t.Errorf("a broken record is %+v, %q", got.Verdict, got.Fault)
	}

	// What changes in the sessions of others is not told. A verification that ends is a change.
	alice.verified("ses_mine")
	state := func(viewer *site, path string) string {
		t.Helper()
		s.ahead.Add(int64(2 * time.Second)) // what is known is a second old at most
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(viewer.jar[0])
		answer, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatalf("%s is %s", path, answer.Status)
		return ""
	}
	// Many live pages of one viewer leave others theirs; closed ones make room.
	var open []*http.Response
	connect := func() int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(alice.jar[0])
		answer, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, answer)
		return answer.StatusCode
	}
	for range 16 {
		connect()
	}
	if got := connect(); got != http.StatusServiceUnavailable {
		t.Errorf("the 17th live page of a viewer is %d", got)
	}
	state(operator, "/live")
	for _, answer := range open {
		answer.Body.Close()
	}
	for status := 0; status != http.StatusOK; {
		status = connect()
		if status != http.StatusOK {
			open[len(open)-1].Body.Close()
		}
	}
	open[len(open)-1].Body.Close()

	if got, want := state(alice, "/live?session=ses_yours"), state(alice, "/live?session=nope"); got != want {
		t.Error("the state of another's session is told")
	}
	before := [2]string{state(alice, "/live"), state(operator, "/live")}
	corpus(t, dir, "ses_yours2", theirs)
	if after := state(alice, "/live"); after != before[0] {
		t.Error("alice is told that another's session changed")
	}
	if after := state(operator, "/live"); after == before[1] {
		t.Error("the operator is not told that a session changed")
	}
	corpus(t, dir, "ses_mine2", mine)
	if after := state(alice, "/live"); after == before[0] {
		t.Error("alice is not told that her session changed")
	}
}
