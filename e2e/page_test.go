package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/httpauth/oidctest"
)

var pageLink = regexp.MustCompile(`the page: (http://127\.0\.0\.1:\d+/login#[\w-]{43})\n`)

// pageViewer is a browser in which the link of a page was opened.
type pageViewer struct {
	site *site
	base string
	*http.Client
}

// openPage opens the link that a server logged.
func openPage(s *site) *pageViewer {
	s.t.Helper()
	base, token, _ := strings.Cut(s.logged(pageLink), "/login#")
	jar, _ := cookiejar.New(nil)
	v := &pageViewer{s, base, &http.Client{Jar: jar, Timeout: patience}}
	answer, err := v.PostForm(base+"/login", url.Values{"token": {token}})
	if err != nil {
		s.t.Fatal(err)
	}
	answer.Body.Close()
	return v
}

// read decodes what the page answers.
func (v *pageViewer) read(path string, into any) int {
	v.site.t.Helper()
	return v.ask(v.Client, path, "", into)
}

// ask is read for another client, with a token if it has one.
func (v *pageViewer) ask(client *http.Client, path, bearer string, into any) int {
	t := v.site.t
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return answer.StatusCode
}

// TestServePage wants what only a running server knows on its page, to who has the link and not to a client.
func TestServePage(t *testing.T) {
	t.Parallel()
	config := written(t, "config.yaml", "principals: {alice: {record_sessions: 5}}\n")
	s := serveHTTP(t, "--config", config, "--page", "127.0.0.1:0", "--limit", "timeout=7s", "--auth-token-file", tokenFile(t, "alice", "bob"),
		"--skills-root", "builtin="+tree(t, demoSkill()), "--allow-tool", "run_skill_script",
		"--allow-skill-script", "demo:scripts/ok.sh")
	viewer := openPage(s)
	if got := viewer.ask(s.client, "/sessions.json", "alice-token", nil); got != http.StatusUnauthorized {
		t.Errorf("a token of a client opens the page: %d", got)
	}
	for _, name := range []string{"alice-token", "bob-token"} {
		s.open(name).tool("load_skill", map[string]any{"name": "demo"})
	}
	// What a model was shown is with the call that showed it.
	var sessions struct{ Sessions []struct{ ID string } }
	for deadline := time.Now().Add(patience); len(sessions.Sessions) == 0 && time.Now().Before(deadline); {
		viewer.read("/sessions.json?principal=bob", &sessions)
	}
	var session struct {
		Blocks []struct {
			Kind    string
			Outputs []struct {
				Label string
				Bytes int
			}
		}
	}
	if len(sessions.Sessions) == 1 {
		viewer.read("/sessions/"+sessions.Sessions[0].ID+"/session.json", &session)
	}
	if b := session.Blocks; len(b) != 2 || b[1].Kind != "load" || len(b[1].Outputs) != 1 || b[1].Outputs[0].Bytes == 0 {
		t.Errorf("the session of bob is %+v, want the text of the skill that it loaded", b)
	}

	// A client that can ask its user gets the question, and nobody answers.
	asking := s.as("alice-token")
	_, header := asking.status("POST", introduction(able))
	asking.session = header.Get("Mcp-Session-Id")
	asking.tool("load_skill", map[string]any{"name": "demo"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go asking.do(ctx, "POST", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_skill_script",`+
		`"arguments":{"skill":"demo","path":"scripts/ok.sh","args":["<b>one"]}}}`)
	var approvals struct {
		Questions []struct{ Principal, Skill, Text string }
	}
	for deadline := time.Now().Add(patience); len(approvals.Questions) == 0 && time.Now().Before(deadline); {
		viewer.read("/approvals.json", &approvals)
	}
	if q := approvals.Questions; len(q) != 1 || q[0].Principal != "alice" || q[0].Skill != "demo" ||
		!strings.Contains(q[0].Text, "Run scripts/ok.sh of the skill demo (builtin) in a sandbox?") ||
		!strings.Contains(q[0].Text, `"<b>one"`) {
		t.Errorf("open questions are %+v, want the one of alice as she sees it", q)
	}
	var health struct {
		Limits []struct {
			Key, Source string
			Value       any
		}
		Checks []struct{ Verdict, Fact string }
		Server struct {
			Principals []struct {
				Name     string
				Sessions struct{ Used, Most int }
			}
		}
	}
	viewer.read("/health.json", &health)
	if p := health.Server.Principals; len(p) != 2 || p[0].Name != "alice" || p[0].Sessions.Most != 5 ||
		p[0].Sessions.Used < 1 || p[1].Name != "bob" || p[1].Sessions.Most == 5 {
		t.Errorf("principals are %+v, want alice with a quota of 5 sessions, and bob", p)
	}
	if l := health.Limits; len(l) == 0 || l[0].Key != "limits.timeout" || l[0].Value != "7s" || l[0].Source != "--limit" {
		t.Errorf("limits are %+v, want those of the flags of the server", l)
	}
	for _, check := range health.Checks {
		if check.Verdict == "fail" {
			t.Errorf("the page of a server that runs says: fail %s", check.Fact)
		}
	}
	var skills struct{ Skills []struct{ Path string } }
	viewer.read("/skills.json", &skills)
	if len(skills.Skills) != 1 || skills.Skills[0].Path != "demo" {
		t.Errorf("skills are %+v, want those of the flags of the server", skills)
	}
	var skill struct{ Files []struct{ Path, Text string } }
	viewer.read("/skill.json?path=demo", &skill)
	if len(skill.Files) < 2 || skill.Files[0].Path != "SKILL.md" ||
		!strings.Contains(skill.Files[0].Text, "name: demo") {
		t.Errorf("the files of a skill are %+v", skill.Files)
	}
}

// The page of a server that a model may have started in its shell approves no calls.
func TestServePageOfAgent(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"", "1"} {
		s := serveIn(t, []string{"env", "CLAUDECODE=" + agent}, "--page", "127.0.0.1:0", "--skills-root", "builtin="+tree(t, demoSkill()),
			"--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh")
		viewer, client := openPage(s), s.open("")
		client.tool("load_skill", map[string]any{"name": "demo"})
		result := client.script("ok.sh")
		var refused struct{ ApprovalCode string }
		if err := json.Unmarshal(result.object(), &refused); err != nil || refused.ApprovalCode == "" {
			t.Fatalf("no call waits: %s", result.text())
		}
		var approvals struct{ Waiting []struct{ Code string } }
		viewer.read("/approvals.json", &approvals)
		if waits := len(approvals.Waiting) == 1 && approvals.Waiting[0].Code == refused.ApprovalCode; waits != (agent == "") {
			t.Errorf("CLAUDECODE=%s: the page has %+v, and %s waits", agent, approvals.Waiting, refused.ApprovalCode)
		}
	}
}

// TestServePageLogin wants a user of the server's issuer shown what was done with tokens of the same subject, and
// each kind of token accepted where it belongs alone.
func TestServePageLogin(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	secret := written(t, "secret", oidctest.Secret+"\n")
	s := serveHTTP(t, "--auth-issuer", provider.URL, "--auth-audience", "skills", "--page", "127.0.0.1:0",
		"--page-client", oidctest.Client, "--page-secret-file", secret, "--skills-root", "builtin="+tree(t, demoSkill()))
	base := strings.TrimSuffix(s.logged(regexp.MustCompile(`the page: (http://127\.0\.0\.1:\d+/)\n`)), "/")
	token := func(audience, subject string) string {
		return provider.Sign(map[string]any{"iss": provider.URL, "aud": audience, "sub": subject,
			"roles": "page-operator", "exp": time.Now().Add(time.Hour).Unix()})
	}
	for _, subject := range []string{"alice", "bob"} {
		s.open(token("skills", subject)).tool("load_skill", map[string]any{"name": "demo"})
	}
	stranger := &caller{site: s, token: token(oidctest.Client, "alice")}
	response, err := stranger.do(t.Context(), "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("an ID token of the page opens the endpoint: %s", response.Status)
	}
	principals := func(client *http.Client, bearer string) (names []string, status int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/sessions.json", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+bearer)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var found struct{ Sessions []struct{ Principal string } }
		if answer.StatusCode == http.StatusOK {
			err = json.NewDecoder(answer.Body).Decode(&found)
		}
		for _, row := range found.Sessions {
			names = append(names, row.Principal)
		}
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		return names, answer.StatusCode
	}
	if _, status := principals(s.client, token("skills", "alice")); status != http.StatusUnauthorized {
		t.Errorf("a token of the endpoint opens the page: %d", status)
	}
	for role, want := range map[string]string{"page-viewer": "jwt:alice", "page-operator": "jwt:alice jwt:bob"} {
		provider.LogIn(map[string]any{"sub": "alice", "roles": []string{role}})
		jar, _ := cookiejar.New(nil)
		viewer := &http.Client{Jar: jar, Timeout: patience}
		answer, err := viewer.Get(base + "/login/start")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if names, status := principals(viewer, ""); strings.Join(names, " ") != want {
			t.Errorf("%s: %d, sessions of %q, want %s", role, status, names, want)
		}
	}
}
