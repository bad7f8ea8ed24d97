package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/net/html"

	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// site is a page over records in a directory.
type site struct {
	t    *testing.T
	page *page.Page
	base string
	link string
	jar  []*http.Cookie

	client *http.Client

	ahead *atomic.Int64 // of the clock, in nanoseconds
	shown chan string   // links that the operator was shown
}

// open serves a page over the records in dir, with changes of its options.
func open(t *testing.T, dir string, changes ...func(o *page.Options, addr string)) *site {
	t.Helper()
	records, err := filestore.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	s := &site{t: t, ahead: new(atomic.Int64), shown: make(chan string, 1)}
	skill := t.TempDir()
	for name, text := range map[string]string{"SKILL.md": hostile, "changed.md": "secret"} {
		if err := os.WriteFile(filepath.Join(skill, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said := map[string]string{
		"allow": `[{"script":"a:scripts/<img src=x>.sh","state":"changed","detail":"it; ` + "`skillsd allow x`" + `"}]`,
		"list": fmt.Sprintf(`[{"path":"<b>bold</b>","description":"[a](javascript:x)","tier":"user","scripts":[{"path":"scripts/a.sh"}],`+
			`"file":%q,"digest":%q,"resources":[{"path":"gone","text":true},{"path":"<img>.png"},{"path":"changed.md","text":true}]}]`,
			filepath.Join(skill, "SKILL.md"), digest.FromString(hostile)),
		"update": `[{"name":"<b>x","state":"changed","before":{"tree":"sha256:1"},"after":{"tree":"sha256:2","commit":"<i>"},` +
			`"files":[{"path":"<img>","change":"changed","diff":"-<script>\n+\u202e"}],"allowedToolsAdded":["<b>"]},` +
			`{"name":"same","state":"unchanged"},{"name":"y","state":"failed","error":"<b>"}]`,
		"config": `[{"key":"limits.timeout","value":"<b>","source":"<i>"},{"key":"roots","value":["secret place"]}]`,
		"doctor": `[{"verdict":"ok","area":"b","fact":"c"},{"verdict":"fail","area":"<i>","fact":"c","hint":"run: skillsd sync",` +
			`"script":"a:<img src=x>"}]`,
	}
	options := page.Options{Records: records, Directory: "/records",
		Now:  func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
		Show: func(link string) { s.shown <- link },
		Printed: func(_ context.Context, words ...string) ([]byte, error) {
			return []byte(said[words[0]]), nil
		}}
	addr := server.Listener.Addr().String()
	for _, change := range changes {
		change(&options, addr)
	}
	p, err := page.New(options, addr)
	if err != nil {
		t.Fatal(err)
	}
	p.Look(t.Context())
	server.Config.Handler = p.Handler()
	if options.OIDC != nil && options.OIDC.URL.Scheme == "https" {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		server.Close()
		p.Close()
		records.Close()
	})
	s.page, s.base, s.link, s.client = p, server.URL, p.Link(), server.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// ask sends a request and returns the answer, whose body it reads. Redirects are not followed.
func (s *site) ask(method, path string, header http.Header, form url.Values) (*http.Response, string) {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for key, values := range header {
		r.Header[key] = values
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	for _, cookie := range s.jar {
		r.AddCookie(cookie)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, string(text)
}

// login opens the link, and reports whether that was accepted.
func (s *site) login() bool {
	s.t.Helper()
	_, token, _ := strings.Cut(s.link, "#")
	answer, _ := s.ask(http.MethodPost, "/login", nil, url.Values{"token": {token}})
	if answer.StatusCode == http.StatusSeeOther {
		s.jar = answer.Cookies()
		return true
	}
	return false
}

// get returns the text of a path, which must be there.
func (s *site) get(path string) string {
	s.t.Helper()
	answer, text := s.ask(http.MethodGet, path, nil, nil)
	if answer.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s = %d\n%s", path, answer.StatusCode, text)
	}
	return text
}

const hostile = "<script>document.title='pwned'</script><img src=x onerror=alert(1)>\"'`{{.}}" +
	"\u202etxt.exe\u2066\x1b[31m\u200b[click](javascript:alert(1)) https://evil.example/ \xff &lt;b&gt;"

// corpus records in dir, which it returns, a session in which every text that others choose is text.
func corpus(t *testing.T, dir, id, text string) string {
	t.Helper()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	record(t, store, id, text)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func record(t *testing.T, store provenance.Writer, id, text string) {
	t.Helper()
	var err error
	text = strings.ToValidUTF8(text, "\ufffd")
	add := func(kind provenance.Kind, detail string, row, decision any, files ...provenance.File) {
		t.Helper()
		e := &provenance.Event{Session: id, Kind: kind, Principal: text, Client: text, Skill: text, Path: text,
			Detail: detail, Files: files}
		if row != nil {
			e.Row, err = json.Marshal(row)
		}
		if decision != nil && err == nil {
			e.Decision, err = json.Marshal(decision)
		}
		if err == nil {
			err = store.Append(t.Context(), e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	output := func(n int) string { return fmt.Sprintf("%s:run_skill_script:%d", id, n) }
	request := func(n int) *cfharness.ScriptRequest {
		return &cfharness.ScriptRequest{Type: cfharness.TypeScriptRequest, OutputID: output(n)}
	}
	add(provenance.KindSessionStarted, text, &provenance.SessionInfo{ClientSession: text, Profile: text,
		Mode: "enforce-explicit"}, nil)
	add(provenance.KindSkillActivated, "model-tool", map[string]any{"name": text, "source": "model-tool"}, nil)
	add(provenance.KindScriptRequested, "requested", request(1), nil)
	asked := request(1)
	asked.Args, asked.CWD, asked.Target = []string{text, text}, text, text
	add(provenance.KindApprovalAsked, text, asked, nil)
	add(provenance.KindScriptRequested, "requested", request(2), nil)
	add(provenance.KindApprovalAnswered, cfharness.ApprovalAccepted, request(2), nil)
	name := provenance.OutputName(output(2), "stdout")
	file, err := store.Put(t.Context(), id, name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	exit := 0
	add(provenance.KindScriptExecuted, "exited", &cfharness.ScriptExecution{OutputID: output(2),
		Status: "executed", Args: []string{text}, ExitCode: &exit,
		Skillsd: &cfharness.RunExtension{Backend: text, Network: text, DurationMS: 12}}, nil, file)
	add(provenance.KindScriptRequested, "requested", request(3), nil)
	add(provenance.KindPolicyDenied, text, &cfharness.PolicyEvent{ObservationDenied: &cfharness.ObservationDenied{
		Code: "script_not_allowlisted", Detail: text, Remedy: text}},
		map[string]any{"decision": "denied", "skillsd": map[string]any{"code": text, "outputId": output(3),
			"operator": "`skillsd allow " + text + "`"}})
	add(provenance.KindDriftDetected, text, nil, nil)
	add(provenance.KindSessionEnded, "ended", nil, nil)
}

// routes are the paths of all screens about a session.
func routes(id string) []string {
	return []string{"/sessions", "/sessions?denied=1&skill=a&principal=%3Cb%3E&state=ended",
		"/sessions/" + id, "/sessions/" + id + "/replay", "/sessions/" + id + "/events/4", "/refusals",
		"/refusals?by=skill&only=x", "/approvals", "/allowed", "/skills", "/skill?path=%3Cb%3Ebold%3C/b%3E", "/health"}
}

// verified waits until the record of a session was looked at, and returns what is known of it then.
func (s *site) verified(id string) (got page.Session) {
	s.t.Helper()
	for got.Verdict == nil || got.Verdict.State == "being verified" {
		got = read[page.Session](s, "/sessions/"+id+"/session.json")
	}
	return got
}

// read returns what a path has, which must be there.
func read[T any](s *site, path string) (value T) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.get(path)), &value); err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	return value
}

// TestAccess wants nothing shown but to the browser that opened the link, once.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := open(t, corpus(t, t.TempDir(), "ses_a", "plain"))
	closed := append(routes("ses_a"), "/", "/skill.json?path=%3Cb%3Ebold%3C/b%3E", "/sessions.json", "/sessions/ses_a/session.json", "/live",
		"/sessions/ses_a/events/1/line.json", "/sessions/ses_a/replay.jsonl",
		"/sessions/ses_a/outputs/ses_a_run_skill_script_2.stdout")
	for _, path := range closed {
		if answer, text := s.ask(http.MethodGet, path, nil, nil); answer.StatusCode != http.StatusUnauthorized ||
			strings.Contains(text, "plain") {
			t.Errorf("GET %s without a login = %d %q, want 401", path, answer.StatusCode, text)
		}
		bearer := http.Header{"Authorization": {"Bearer token"}, "Accept": {"text/html"}}
		if answer, _ := s.ask(http.MethodGet, path, bearer, nil); answer.StatusCode != http.StatusSeeOther ||
			answer.Header.Get("Location") != "/login" {
			t.Errorf("GET %s of a browser without a login = %d, want the login", path, answer.StatusCode)
		}
	}
	_, token, _ := strings.Cut(s.link, "#")
	for _, form := range []url.Values{{}, {"token": {""}}, {"token": {"x"}}, {"token": {strings.Repeat("A", 43)}},
		{"token": {token}, "more": {strings.Repeat("x", 1<<10)}}} {
		answer, _ := s.ask(http.MethodPost, "/login", nil, form)
		if answer.StatusCode != http.StatusForbidden || len(answer.Cookies()) > 0 {
			t.Errorf("login with %v = %d, want 403", form, answer.StatusCode)
		}
	}
	used := s.link
	if !s.login() {
		t.Fatal("the link does not open the page")
	}
	if c := s.jar[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
		t.Errorf("the cookie is %v, want HttpOnly and SameSite=Strict", c)
	}
	for _, path := range closed {
		if path != "/live" && path != "/" {
			s.get(path)
		}
	}
	again := &site{t: t, base: s.base, link: used, client: s.client}
	if again.login() {
		t.Error("the link opens the page twice")
	}
	// Anybody may have another link printed, not too often, and the operator alone sees it.
	if _, text := again.ask(http.MethodPost, "/login", nil, url.Values{"another": {"1"}}); len(s.shown) > 0 ||
		!strings.Contains(text, "printed just now") {
		t.Errorf("a link was printed at once: %s", text)
	}
	s.ahead.Store(int64(time.Minute))
	_, text := again.ask(http.MethodPost, "/login", nil, url.Values{"another": {"1"}})
	again.link = <-s.shown
	if _, key, _ := strings.Cut(again.link, "#"); strings.Contains(text, key) || !again.login() {
		t.Error("the second link does not open the page, or is in the answer")
	}
	s.get("/sessions") // the browser before stays
	again.jar = []*http.Cookie{{Name: s.jar[0].Name, Value: "x"}}
	if answer, _ := again.ask(http.MethodGet, "/sessions", nil, nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a made up cookie = %d, want 401", answer.StatusCode)
	}
	for range 256 {
		s.ahead.Add(int64(time.Minute))
		again.ask(http.MethodPost, "/login", nil, url.Values{"another": {"1"}})
		again.link = <-s.shown
		if !again.login() {
			t.Fatal("a link does not open the page")
		}
	}
	if answer, _ := s.ask(http.MethodGet, "/sessions", nil, nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the first of 258 browsers gets %d, want 401", answer.StatusCode)
	}
	again.get("/sessions")
}

// TestForeignRequests wants refused what another site sends, or what comes under another name.
func TestForeignRequests(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	if !s.login() {
		t.Fatal("the link does not open the page")
	}
	host := strings.TrimPrefix(s.base, "http://")
	_, port, _ := strings.Cut(host, ":")
	for _, test := range []struct {
		header http.Header
		want   int
	}{
		{http.Header{"Host": {"evil.example:" + port}}, http.StatusForbidden},
		{http.Header{"Host": {"127.0.0.1"}}, http.StatusForbidden},
		{http.Header{"Host": {"localhost:" + port}}, http.StatusOK},
		{http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		{http.Header{"Origin": {"null"}}, http.StatusForbidden},
		{http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden},
		{http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"same-origin"}}, http.StatusOK},
		{http.Header{"Origin": {s.base}}, http.StatusOK},
		{http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden},
		{http.Header{"Sec-Fetch-Site": {"same-site"}}, http.StatusForbidden},
		{http.Header{"Sec-Fetch-Site": {"same-origin"}}, http.StatusOK},
	} {
		answer, _ := s.ask(http.MethodGet, "/sessions", test.header, nil)
		if answer.StatusCode != test.want {
			t.Errorf("GET with %v = %d, want %d", test.header, answer.StatusCode, test.want)
		}
		// All of them, as they are: what is missing here is what an attacker looks for.
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; " +
				"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
				"require-trusted-types-for 'script'",
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control": "no-store"} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("GET with %v: %s is %q, want %q", test.header, name, got, want)
			}
		}
	}
	for _, pattern := range s.page.Routes() {
		_, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path)
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if method == "POST" && (path == "/login" || path == "/logout" || path == "/approvals/code") {
				continue
			}
			if answer, _ := s.ask(method, path, nil, nil); answer.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s = %d, want 405", method, path, answer.StatusCode)
			}
		}
	}
}

// TestHostileText wants the same elements and attributes of a page whatever a record says.
func TestHostileText(t *testing.T) {
	t.Parallel()
	s, evil := open(t, corpus(t, t.TempDir(), "ses_a", "plain")), open(t, corpus(t, t.TempDir(), "ses_a", hostile))
	if !s.login() || !evil.login() {
		t.Fatal("the link does not open the page")
	}
	s.verified("ses_a")
	evil.verified("ses_a")
	for _, path := range routes("ses_a") {
		want, got := elements(t, s.get(path)), elements(t, evil.get(path))
		// Characters that do not show get marks, and a command with one is not offered.
		for _, list := range []*[]string{&want, &got} {
			*list = slices.DeleteFunc(*list, func(e string) bool {
				return e == "span class" || e == "button data-copy type" || e == "code" || e == "bdi"
			})
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s has other elements for hostile text:\n%v\n%v", path, want, got)
		}
		text := evil.get(path)
		for _, r := range "\u202e\u2066\x1b\u200b" {
			if strings.ContainsRune(text, r) {
				t.Errorf("%s contains %U", path, r)
			}
		}
	}
	if text := evil.get("/sessions/ses_a"); !strings.Contains(text, `<span class="mark">U+202E</span>`) {
		t.Errorf("the page of a session does not mark U+202E:\n%s", text)
	}
	answer, text := evil.ask(http.MethodGet, "/sessions/ses_a/outputs/ses_a_run_skill_script_2.stdout", nil, nil)
	if answer.Header.Get("Content-Disposition") != `attachment; filename="output.txt"` ||
		answer.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.Contains(answer.Header.Get("Content-Security-Policy"), "sandbox") ||
		!strings.Contains(text, "<script>") {
		t.Errorf("an output is answered with %v", answer.Header)
	}
}

// TestLinks wants no link elsewhere, and foreign text that is part of an address to stay in its place there.
func TestLinks(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"/sessions?a=b#c": "/sessions?a=b#c", "/": "/", "?only=bad": "?only=bad",
		"#main": "#main", "": "#", "javascript:alert(1)": "#", " javascript:alert(1)": "#", "https://evil.example/": "#",
		"data:text/html,x": "#", "//evil.example/": "#", `/\evil.example/`: "#", "evil": "#"} {
		if got := page.Link(address); got != `<a href="`+want+`"></a>` {
			t.Errorf("a link to %q is %s, want one to %q", address, got, want)
		}
	}
	const text = `"><b>&by=code&only=x&path=y#z?/../` + "\\ +%41"
	s := open(t, corpus(t, t.TempDir(), "ses_a", text), func(o *page.Options, _ string) {
		o.Printed = func(_ context.Context, _ ...string) ([]byte, error) {
			return json.Marshal([]map[string]string{{"path": text}})
		}
	})
	s.login()
	for _, test := range []struct{ path, key, by string }{{"/refusals?by=code", "only", "code"},
		{"/refusals?by=skill", "only", "skill"}, {"/refusals?by=principal", "only", "principal"}, {"/skills", "path", ""}} {
		screen, found := s.get(test.path), false
		if strings.Contains(screen, "<b>") {
			t.Errorf("%s has a foreign element:\n%s", test.path, screen)
		}
		root, err := html.Parse(strings.NewReader(screen))
		if err != nil {
			t.Fatal(err)
		}
		for node := range root.Descendants() {
			for _, a := range node.Attr {
				if a.Key != "href" || !strings.Contains(a.Val, test.key+"=") {
					continue
				}
				address, err := url.Parse(a.Val)
				if err != nil || address.Fragment != "" || address.Query().Get(test.key) != text ||
					address.Query().Get("by") != test.by {
					t.Errorf("%s leads for %q to %q", test.path, text, a.Val)
				}
				found = true
			}
		}
		if !found {
			t.Errorf("%s does not lead to %q", test.path, text)
		}
	}
}

// TestForeignText wants what does not show marked, and what is long cut, in whole characters.
func TestForeignText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2047) + "é"
	for _, test := range []struct{ text, line, block string }{
		{"plain é 漢", "plain é 漢", "plain é 漢"},
		{"a\tb\nc\r", "a[U+0009]b[U+000A]c[U+000D]", "a\tb\nc[U+000D]"},
		{"\u202e\u200b\x1b\x00", "[U+202E][U+200B][U+001B][U+0000]", "[U+202E][U+200B][U+001B][U+0000]"},
		{"a\xffb\ufffd", "a[byte FF]b\ufffd", "a[byte FF]b\ufffd"},
		{long, long[:2047] + "[… 2 more bytes]", long},
		{strings.Repeat("y", 64<<10) + "z", strings.Repeat("y", 2048) + "[… 63489 more bytes]",
			strings.Repeat("y", 64<<10) + "[… 1 more byte]"},
	} {
		if got := page.Foreign(test.text, false); got != test.line {
			t.Errorf("%.20q in a line is %.3000q", test.text, got)
		}
		if got := page.Foreign(test.text, true); got != test.block {
			t.Errorf("%.20q in a block is %.3000q", test.text, got)
		}
	}
	s := open(t, corpus(t, t.TempDir(), "ses_a", strings.Repeat("x", 5000)))
	s.login()
	text := s.get("/sessions/ses_a")
	if strings.Contains(text, strings.Repeat("x", 4097)) ||
		!strings.Contains(text, "<code><bdi>"+strings.Repeat("x", 80)+`<span class="mark">`) {
		t.Error("a name or an argument of 5,000 bytes is shown whole")
	}
}

// elements returns the elements of a page with the names of their attributes, sorted.
func elements(t *testing.T, text string) (list []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		names := []string{node.Data}
		for _, a := range node.Attr {
			names = append(names, a.Key)
			if (a.Key == "href" || a.Key == "src") && !strings.HasPrefix(a.Val, "/") &&
				!strings.HasPrefix(a.Val, "?") && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("<%s %s=%q> leads elsewhere", node.Data, a.Key, a.Val)
			}
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
				t.Errorf("<%s> has %s", node.Data, a.Key)
			}
		}
		slices.Sort(names[1:])
		list = append(list, strings.Join(names, " "))
	}
	slices.Sort(list)
	return list
}

// TestVerify wants a session verified in the background, and a changed byte found.
func TestVerify(t *testing.T) {
	t.Parallel()
	dir := corpus(t, t.TempDir(), "ses_a", "plain")
	corpus(t, dir, "ses_b", "plain")
	name := dir + "/ses_b/" + provenance.ActivationsFile
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "plain", "pl4in", 1))
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	s.login()
	for id, want := range map[string]string{"ses_a": "verified", "ses_b": "differs"} {
		got := s.verified(id)
		if got.Verdict.State != want || got.Verdict.Head == 0 {
			t.Errorf("%s: %+v, want %s", id, got.Verdict, want)
		}
	}
	if text := s.get("/sessions/ses_b"); !strings.Contains(text, "skillsd session verify ses_b") {
		t.Error("a record that differs is shown without the command that says more")
	}
}

// silent is records whose cluster does not answer.
type silent struct {
	provenance.Reader
	from, verifies atomic.Bool // when the list is asked for, or a verification
}

func (s *silent) Sessions(ctx context.Context, since time.Time) iter.Seq2[provenance.Session, error] {
	if s.from.Load() {
		return func(yield func(provenance.Session, error) bool) { yield(provenance.Session{}, provenance.ErrSilent) }
	}
	return s.Reader.Sessions(ctx, since)
}

func (s *silent) Verify(ctx context.Context, id string, keys ...note.Verifier) (*provenance.Report, error) {
	if s.verifies.Swap(false) {
		return nil, provenance.ErrSilent
	}
	return s.Reader.Verify(ctx, id, keys...)
}

// TestSilent wants what does not need the records shown without them, and nothing said of a record that
// cannot be read at the moment.
func TestSilent(t *testing.T) {
	t.Parallel()
	records := &silent{}
	records.verifies.Store(true)
	s := open(t, corpus(t, t.TempDir(), "ses_a", "plain"), func(o *page.Options, _ string) {
		records.Reader, o.Records = o.Records, records
	})
	s.login()
	if got := s.verified("ses_a"); got.Verdict.State != "verified" {
		t.Errorf("verified when the cluster answered again: %+v", got.Verdict)
	}
	if text := s.get("/skills"); strings.Contains(text, "cannot be read") {
		t.Errorf("records that can be read cannot:\n%s", text)
	}
	records.from.Store(true)
	s.ahead.Store(int64(time.Minute))
	for path, want := range map[string]string{"/skills": "&lt;b&gt;bold", "/skill?path=" + url.QueryEscape("<b>bold</b>"): "Files",
		"/health": "<i>"} {
		text := s.get(path)
		if path == "/health" {
			want = html.EscapeString(want)
		}
		if !strings.Contains(text, want) || !strings.Contains(text, "the cluster does not answer") {
			t.Errorf("%s has no %q, or no word of the records:\n%s", path, want, text)
		}
	}
	if answer, _ := s.ask(http.MethodGet, "/sessions", nil, nil); answer.StatusCode != http.StatusInternalServerError {
		t.Errorf("a list that cannot be read = %d", answer.StatusCode)
	}
}

// TestGrouping wants one block for each call, whatever events it has.
func TestGrouping(t *testing.T) {
	t.Parallel()
	s := open(t, corpus(t, t.TempDir(), "ses_a", "plain"))
	s.login()
	got := read[page.Session](s, "/sessions/ses_a/session.json")
	var blocks []string
	for _, b := range got.Blocks {
		line := b.Kind + " " + b.Outcome + ":"
		for _, step := range b.Steps {
			line += fmt.Sprintf(" %d", step.Seq)
		}
		blocks = append(blocks, line)
	}
	want := []string{"session started: 1", "load shown to the model: 2", "run exited 0: 3 4 5 6 7",
		"run refused: 8 9", "other file changed: 10", "session ended: 11"}
	if !slices.Equal(blocks, want) {
		t.Errorf("blocks are %q, want %q", blocks, want)
	}
}

// TestGroupingByCall asks twice about one script and answers the second question first: calls say which answer
// belongs to which.
func TestGroupingByCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind provenance.Kind, call string, output int) {
		t.Helper()
		e := &provenance.Event{Session: "ses_a", Kind: kind, Principal: "local", Skill: "demo", Path: "scripts/a.sh",
			Call: call, Detail: "requested"}
		if output > 0 {
			e.Row, err = json.Marshal(&cfharness.ScriptRequest{Type: cfharness.TypeScriptRequest,
				OutputID: fmt.Sprintf("ses_a:run_skill_script:%d", output)})
		}
		if err := errors.Join(err, store.Append(t.Context(), e)); err != nil {
			t.Fatal(err)
		}
	}
	add(provenance.KindSessionStarted, "", 0)
	for n, call := range []string{"first", "second"} {
		add(provenance.KindScriptRequested, call, n+1)
		add(provenance.KindApprovalAsked, call, n+1)
	}
	for n, call := range []string{"second", "first"} {
		add(provenance.KindScriptRequested, call, n+3)
		add(provenance.KindApprovalAnswered, call, n+3)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	s.login()
	got := read[page.Session](s, "/sessions/ses_a/session.json")
	var blocks []string
	for _, b := range got.Blocks {
		line := b.Note
		for _, step := range b.Steps {
			line += fmt.Sprintf(" %d", step.Seq)
		}
		blocks = append(blocks, line)
	}
	if want := []string{" 1", " 2 3 8 9", " 4 5 6 7"}; !slices.Equal(blocks, want) {
		t.Errorf("blocks are %q, want %q", blocks, want)
	}
}

// TestAdvice wants a command offered for copying where our text has one, and never one that a name brings along.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"the operator can allow it with `skillsd allow a:b` or --allow-skill-script a:b", "skillsd allow a:b"},
		{"run: skillsd sync", "skillsd sync"},
		{"no skill with that path is served; to remove it: skillsd disallow a:b", "skillsd disallow a:b"},
		{"allow it with `skillsd allow 'a:`skillsd remove x`'` or a:`skillsd remove x`", ""},
		{"the skill has no such script: a:`skillsd remove x`", ""},
		{"a-b: skillsd remove x", ""},
		{"run: skillsd sync, or `skillsd remove x`", ""},
		{"run: skillsd sync, or another", ""},
		{"`skillsd remove \u202ex`", ""},
		{"run: skillsd remove x\u200b", ""},
		{"`rm x`", ""},
		{"to approve this call, within ten minutes: `skillsd approve K7QM-2XPD`, then make it again; to allow it " +
			"without a question: `skillsd allow --ask never a:b`", "skillsd approve K7QM-2XPD | skillsd allow --ask never a:b"},
		{"to allow it: `skillsd allow 'a'\\'' `skillsd allow x:y` '\\'':b'`", ""},
		{"to allow it: `skillsd allow 'a'\\''b:c'`", "skillsd allow 'a'\\''b:c'"},
	} {
		if got := page.Advised(test.text); got != test.want {
			t.Errorf("%q offers %q, want %q", test.text, got, test.want)
		}
	}
}

// TestWorst wants the call of a session to look at first in the list, and all refusals counted.
func TestWorst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	exit := func(code int) any {
		return &cfharness.ScriptExecution{OutputID: "x", Status: "executed", ExitCode: &code,
			Skillsd: &cfharness.RunExtension{Backend: "native"}}
	}
	const ran, denied = provenance.KindScriptExecuted, provenance.KindPolicyDenied
	type step struct {
		call string
		kind provenance.Kind
		row  any
	}
	unknown := map[string]any{"status": "error", "error": map[string]string{"code": "outcome_unknown"}}
	late := &cfharness.ScriptExecution{OutputID: "x", Status: "executed", ExitCode: new(int),
		Skillsd: &cfharness.RunExtension{Backend: "native", Late: true}}
	tests := []struct {
		id    string
		steps []step
		want  string
	}{
		{"ses_late", []step{{"1", ran, unknown}, {"1", ran, late}}, ""},
		{"ses_fine", []step{{"1", ran, exit(0)}}, ""},
		{"ses_withheld", []step{{"1", denied, nil}, {"1", denied, nil}, {"1", ran, exit(0)}, {"2", ran, exit(0)}},
			"exited 0, output withheld"},
		{"ses_refused", []step{{"1", denied, nil}, {"2", ran, exit(0)}, {"3", provenance.KindDriftDetected, nil},
			{"4", provenance.KindResourceRead, map[string]any{"status": "error", "error": map[string]string{"code": "x"}}}}, "refused"},
		{"ses_failed", []step{{"1", ran, exit(2)}, {"2", ran, exit(3)}, {"3", denied, nil}, {"4", ran, exit(0)}}, "exited 3"},
		{"ses_old", []step{{"1", denied, nil}}, "refused"},
	}
	add := func(id string, s step) {
		t.Helper()
		e := &provenance.Event{Session: id, Kind: s.kind, Principal: "local", Skill: "a", Path: "scripts/a.sh", Call: s.call,
			Decision: []byte(`{"decision":"denied"}`)}
		if id == "ses_old" {
			e.Time = time.Now().Add(-10 * 24 * time.Hour)
		}
		if s.row != nil {
			e.Row, err = json.Marshal(s.row)
		}
		if err := errors.Join(err, store.Append(t.Context(), e)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range tests {
		add(test.id, step{"", provenance.KindSessionStarted, nil})
		for _, s := range test.steps {
			add(test.id, s)
		}
	}
	s := open(t, dir)
	s.login()
	if b := read[page.Session](s, "/sessions/ses_late/session.json").Blocks; b[1].Outcome != "exited 0, after its call had ended" || b[1].Code != "" {
		t.Errorf("an outcome that came late is shown as %+v", b[1])
	}
	for i, crashed := range []bool{false, true} { // while the writer has them, and after
		if crashed {
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			s.ahead.Store(int64(time.Minute))
		}
		for _, test := range tests {
			s.verified(test.id)
		}
		list := read[page.Sessions](s, "/sessions.json")
		for _, test := range tests {
			at := slices.IndexFunc(list.Sessions, func(row page.Summary) bool { return row.ID == test.id })
			got := ""
			if worst := list.Sessions[at].Worst; worst != nil {
				got = worst.Outcome
			}
			if got != test.want {
				t.Errorf("%d: the worst of %s is %q, want %q", i, test.id, got, test.want)
			}
		}
	}
	for query, want := range map[string]string{"": "7 days by code: [{ 4}] 4 of 3", "?by=skill": "7 days by skill: [{a 4}] 4 of 3",
		"?by=principal": "7 days by principal: [{local 4}] 4 of 3", "?by=skill&only=b": "7 days by skill: [{a 4}] 4 of 0",
		"?by=skill&only=a&days=30": "30 days by skill: [{a 5}] 5 of 4"} {
		found := read[struct {
			Days, Total int
			By          string
			Groups      []struct {
				Name  string
				Count int
			}
			Calls []struct{}
		}](s, "/refusals.json"+query)
		got := fmt.Sprintf("%d days by %s: %v %d of %d", found.Days, found.By, found.Groups, found.Total, len(found.Calls))
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for query, want := range map[string]int{"?state=crashed+or+damaged": 6, "?state=crashed": 6, "?state=damaged": 0} {
		if list := read[page.Sessions](s, "/sessions.json"+query); list.Of != want {
			t.Errorf("%s: %d sessions, want %d", query, list.Of, want)
		}
	}
}

// TestSkillText wants the texts of a skill, but none that changed since the skill was listed.
func TestSkillText(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	s.login()
	got := read[page.Skill](s, "/skill.json?path=%3Cb%3Ebold%3C/b%3E")
	var lines []string
	for _, f := range got.Files {
		lines = append(lines, f.Path+" "+f.Missing)
		if f.Missing != "" && f.Text != "" {
			t.Errorf("%s is missing and %q", f.Path, f.Text)
		}
	}
	want := []string{"SKILL.md ", "gone it cannot be read", "<img>.png it is not text", "changed.md it changed just now"}
	if !slices.Equal(lines, want) || got.Files[0].Text != strings.ToValidUTF8(hostile, "\ufffd") {
		t.Errorf("files are %q, want %q", lines, want)
	}
	if answer, _ := s.ask(http.MethodGet, "/skill?path=../x", nil, nil); answer.StatusCode != http.StatusNotFound {
		t.Errorf("a skill that is not there = %d", answer.StatusCode)
	}
}

// TestPages wants a long record in pages, all of it once.
func TestPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const events = 2_000 // each page reads them all
	long(t, dir, "ses_long", events)
	corpus(t, dir, "ses_bad", "plain")
	s := open(t, dir)
	s.login()
	seen := 0
	for from, total := 0, 1; from < total; {
		var got page.Session
		text := s.get(fmt.Sprintf("/sessions/ses_long/session.json?from=%d", from))
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Blocks) == 0 || len(got.Blocks) > 200 || got.From != from {
			t.Fatalf("from %d: %d blocks from %d", from, len(got.Blocks), got.From)
		}
		for _, b := range got.Blocks {
			seen++
			if b.First() != uint64(seen) {
				t.Fatalf("block %d begins with event %d", seen, b.First())
			}
		}
		from, total = from+len(got.Blocks), got.Of
	}
	if seen != events {
		t.Errorf("the pages have %d events, want %d", seen, events)
	}
	bad := read[page.Session](s, "/sessions/ses_bad/session.json?only=bad")
	if bad.Bad != 1 || bad.Of != 1 || len(bad.Blocks) != 1 || bad.Blocks[0].Outcome != "refused" {
		t.Errorf("what failed or was refused is %+v, want the refusal", bad.Blocks)
	}
	if text := s.get("/sessions/ses_bad"); !strings.Contains(text, `href="?only=bad"`) {
		t.Error("what was refused is not one click away")
	}
	if text := s.get("/sessions/ses_long?at=1001"); !strings.Contains(text, `id="e1001"`) {
		t.Error("?at=1001 is not the page with event 1001")
	}
}

// long records a session of many reads.
func long(t *testing.T, dir, id string, events int) {
	t.Helper()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	row, err := json.Marshal(map[string]string{"status": "read"})
	for i := range events {
		e := &provenance.Event{Session: id, Kind: provenance.KindResourceRead, Principal: "local", Skill: "pdf",
			Path: "reference.md", Detail: "read", Row: row}
		if i == 0 {
			e.Kind, e.Row = provenance.KindSessionStarted, []byte(`{"server":{"version":"1","protocol":"x"}}`)
		}
		if err == nil {
			err = store.Append(t.Context(), e)
		}
	}
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A run that changed a workspace has the command that undoes it, until it was undone.
func TestUndone(t *testing.T) {
	dir := t.TempDir()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	add := func(id, parent, client string, kind provenance.Kind, row any) {
		t.Helper()
		data, err := json.Marshal(row)
		if err == nil {
			err = store.Append(t.Context(), &provenance.Event{Session: id, Parent: parent, Kind: kind, Principal: "local",
				Client: client, Skill: "tidy", Path: "scripts/a.sh", Detail: "detail", Row: data})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	exit := 0
	run := func(n int, problem string) {
		add("s", "", "client 1", provenance.KindScriptExecuted, &cfharness.ScriptExecution{
			OutputID: fmt.Sprintf("s:run_skill_script:%d", n), Status: "executed", ExitCode: &exit,
			Skillsd: &cfharness.RunExtension{Backend: "native", Kept: &cfharness.Kept{Entries: 2, Problem: problem}}})
	}
	add("s", "", "client 1", provenance.KindSessionStarted, &provenance.SessionInfo{})
	run(1, "")
	run(2, "it is <b>large</b>")
	get := func(path string) string { // without what an earlier page still has in memory
		t.Helper()
		s := open(t, dir)
		if !s.login() {
			t.Fatal("no login")
		}
		return s.get(path)
	}
	const undo = "skillsd undo s:run_skill_script:1"
	text := get("/sessions/s")
	if !strings.Contains(text, undo) || strings.Contains(text, "skillsd undo s:run_skill_script:2") ||
		!strings.Contains(text, "cannot be undone: <bdi>it is &lt;b&gt;large") {
		t.Errorf("the session is shown as\n%s", text)
	}
	undone := func(output string) {
		id := "undo-" + strings.ReplaceAll(output, ":", "-")
		add(id, "s", "skillsd-undo 1", provenance.KindSessionStarted, &provenance.SessionInfo{Child: true})
		add(id, "s", "skillsd-undo 1", provenance.KindWorkspaceUndone,
			&cfharness.Undone{Type: cfharness.TypeUndone, Run: "s", OutputID: output})
	}
	undone("s:run_skill_script:9")
	if text := get("/sessions/s"); !strings.Contains(text, undo) {
		t.Errorf("another run was undone:\n%s", text)
	}
	undone("s:run_skill_script:1")
	if text := get("/sessions/s"); strings.Contains(text, undo) || !strings.Contains(text, "were undone at") {
		t.Errorf("after the undoing:\n%s", text)
	}
	if text := get("/sessions/undo-s-run_skill_script-1"); !strings.Contains(text, "undone") {
		t.Errorf("the undoing is shown as\n%s", text)
	}
}

// A client that was built between releases has a short version.
func TestShortClients(t *testing.T) {
	for client, want := range map[string]string{
		"skillsd-run v0.0.0-20261129034205-4f2a9c1d3e5f":         "skillsd-run 4f2a9c1",
		"skillsd-run v1.2.4-0.20261129034205-4f2a9c1d3e5f+dirty": "skillsd-run 4f2a9c1",
		"claude-code 2.1.332":                                    "claude-code 2.1.332", "x": "x", "": "",
	} {
		if got := page.ShortClient(client); got != want {
			t.Errorf("%q is shown as %q, want %q", client, got, want)
		}
	}
}
