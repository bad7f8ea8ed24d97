package e2e

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// The guard has the options of the command line, and refuses before anyone is asked who they are. A server that
// asks nobody grants pages of other programs of the machine no more than every page. TestHTTPGuard of mcpserver/wire
// has every verb and path of the addresses that are and are not allowed.
func TestHTTPGuard(t *testing.T) {
	const app, evil = "https://app.example.com", "http://evil.example.com"
	root := tree(t, demoSkill())
	s := serveHTTP(t, "--skills-root", root, "--auth-token-file", tokenFile(t, "alice"), "--allowed-origin", app,
		"--public-url", "https://skills.example.com:443/mcp")
	alice := s.open("alice-token")
	nobody := &caller{site: s, session: alice.session}
	unasked := serveHTTP(t, "--skills-root", root, "--insecure-no-auth").as("")
	for _, tt := range []struct {
		c                  *caller
		verb, host, origin string
		status             int
	}{
		{alice, "POST", "", evil, 403}, {nobody, "POST", "", evil, 403},
		{alice, "GET", "", evil, 403}, {nobody, "GET", "", evil, 403},
		{alice, "DELETE", "", evil, 403}, {nobody, "DELETE", "", evil, 403},
		{alice, "OPTIONS", "", evil, 403}, {nobody, "OPTIONS", "", evil, 403},
		{alice, "PUT", "", evil, 403}, {nobody, "PUT", "", evil, 403},
		{alice, "POST", "", "null", 403}, {alice, "POST", "", app + ".evil.example.com", 403},
		{nobody, "GET", "evil.example.com", "", 403}, {nobody, "GET", "localhost.evil.example.com", "", 403},
		{alice, "POST", "", app, 200}, {alice, "POST", "", "http://localhost:6274", 200},
		{alice, "POST", "", "https://skills.example.com", 200}, {alice, "POST", "skills.example.com", "", 200},
		{unasked, "OPTIONS", "", "http://localhost:3000", 403}, {unasked, "OPTIONS", "", "http://[::1]:8000", 403},
		{unasked, "OPTIONS", "", "http://" + unasked.host(), 204},
	} {
		headers := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type"}
		for name, value := range map[string]string{"Host": tt.host, "Origin": tt.origin} {
			if value != "" {
				headers = append(headers, name, value)
			}
		}
		status, header := tt.c.status(tt.verb, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, headers...)
		granted := header.Get("Access-Control-Allow-Origin") != ""
		if status != tt.status || granted != (tt.origin != "" && status != 403) {
			t.Errorf("%s with token %q to %q from %q = %d, %v", tt.verb, tt.c.token, tt.host, tt.origin, status, header)
		}
	}
	s.logged(regexp.MustCompile(`"level":"WARN","msg":"a request was refused: its Origin is not allowed",` +
		`"origin":"(http://evil.example.com)","hint":"if it is yours, start the server with --allowed-origin"`))
}

// A body of 4 MiB is read, a byte more is not, and however long it is, it costs no more. TestHTTPBodyLimit of
// mcpserver/wire has each size with and without a length ahead.
func TestHTTPBodyBounds(t *testing.T) {
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()))
	c := s.open("")
	s.client.Transport = &http.Transport{ExpectContinueTimeout: patience}
	const limit, frame = 4 << 20, `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"%s"}}`
	for _, tt := range []struct {
		size    int
		chunked bool
		status  int
		want    string
	}{
		{limit, false, 200, `"result"`}, {limit + 1, true, 413, `-32600`},
		{8 * limit, false, 413, `-32600`}, {8 * limit, true, 413, `-32600`},
	} {
		var body io.Reader = strings.NewReader(fmt.Sprintf(frame, strings.Repeat("x", tt.size-len(frame)+len("%s"))))
		if tt.chunked {
			body = struct{ io.Reader }{body}
		}
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Session-Id": {c.session}, "Expect": {"100-continue"}}
		response, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != tt.status || !strings.Contains(string(answer), tt.want) {
			t.Errorf("%d bytes, chunked %v: %d %.200s %v", tt.size, tt.chunked, response.StatusCode, answer, err)
		}
	}
	if status, _, err := c.request(t.Context(), "ping", "", ""); err != nil || status != 200 {
		t.Errorf("afterwards: %d %v", status, err)
	}
	if peak := peakMemory(t, s.cmd.Process.Pid); peak > 128<<20 {
		t.Errorf("the server grew to %d MiB", peak>>20)
	}
}

// A line of 8 MiB is read, one byte more is answered with an error and costs no more.
func TestStdioLineBounds(t *testing.T) {
	p := serve(t, "--skills-root", tree(t, demoSkill()))
	p.initialize()
	const limit, frame = 8 << 20, `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"%s"}}`
	for size, want := range map[int]string{limit: `{"jsonrpc":"2.0","id":7,"result":{}}`, limit + 1: `{"jsonrpc":"2.0","id":null,"error":{"code":-32600`} {
		p.send(fmt.Sprintf(frame, strings.Repeat("x", size-len(frame)+len("%s"))))
		if got := p.receive(); !strings.HasPrefix(got, want) {
			t.Errorf("a line of %d bytes is answered %s, want %s", size, got, want)
		}
	}
	if got := p.ask("ping", "{}"); got.Error != nil {
		t.Errorf("afterwards: %+v", got.Error)
	}
}

// Who asks too often is told when to come back; another principal is not.
func TestHTTPRateLimit(t *testing.T) {
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()), "--auth-token-file", tokenFile(t, "alice", "bob"),
		"--rate-limit", "0.001")
	for i, tt := range []struct {
		token  string
		status int
	}{
		{"alice-token", 400}, {"alice-token", 429}, {"bob-token", 400},
		// Without a token nobody's allowance is used, nor is anyone asked to wait.
		{"none", 401}, {"none", 401}, {"none", 401},
	} {
		status, header := s.as(tt.token).status("POST", `{}`)
		after := header.Get("Retry-After")
		wait, err := strconv.Atoi(after)
		if status != tt.status || status == 429 && (err != nil || wait < 900 || wait > 1000) {
			t.Errorf("request %d, with %s: %d, Retry-After %q", i, tt.token, status, after)
		}
	}
}

// At the cap of what is read at a time further requests are told to come back, and have room again
// when it is there.
func TestHTTPBusy(t *testing.T) {
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()))
	c := s.open("")
	var conns []net.Conn
	begin := func() {
		t.Helper()
		conn, err := net.Dial("tcp", s.host())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		conns = append(conns, conn)
	}
	for range 256 {
		begin()
	}
	until := func(want int, otherwise func()) http.Header {
		t.Helper()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			response, err := c.do(t.Context(), "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode == want {
				return response.Header
			}
			if response.StatusCode != 200 && response.StatusCode != 503 {
				t.Fatalf("ping = %s", response.Status)
			}
			otherwise()
		}
		t.Fatalf("no answer is a %d", want)
		return nil
	}
	// A ping may have had the last place when the last of them came.
	if header := until(503, begin); header.Get("Retry-After") == "" {
		t.Error("a busy server does not say when to come back")
	}
	if response, err := s.client.Get("http://" + s.host() + "/healthz"); err != nil || response.StatusCode != 200 {
		t.Errorf("/healthz of a busy server: %v %v", response, err)
	}
	for _, conn := range conns {
		conn.Close()
	}
	until(200, func() {})
}

// Rubbish, and connections that close one way or both in the middle, cost nobody else anything.
func TestHTTPGarbage(t *testing.T) {
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()))
	c := s.open("")
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: " + c.session + "\r\n"
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	noise := make([]byte, 64<<10)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		for name, sent := range map[string]string{
			"noise": string(noise[i*100:]), "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
			"half": head + "Content-Length: 100\r\n\r\n{", "whole": head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(ping), ping),
		} {
			conn, err := net.Dial("tcp", s.host())
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(patience))
			io.WriteString(conn, sent)
			if i%2 == 0 {
				conn.(*net.TCPConn).CloseWrite()
				answer, _ := io.ReadAll(conn)
				// Who closes one way after a whole request may count as gone.
				if name != "whole" && bytes.Contains(answer, []byte(`"result"`)) {
					t.Errorf("%s, half closed, is answered %s", name, answer)
				}
			}
			conn.Close()
		}
	}
	c.load()
	s.interrupt()
}

// Tokens of an issuer: what the refusals say, where they point to, and what stands there.
func TestHTTPIssuer(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys.json")
	set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"k","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	if err := os.WriteFile(keys, []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	const issuer = "https://issuer.example.com"
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()), "--auth-issuer", issuer, "--auth-audience", "skills", "--auth-scope", "skills:read", "--auth-jwks", keys)
	token := func(audience, scope string, life time.Duration) string {
		claims := fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"alice","scope":%q,"exp":%d}`, issuer, audience, scope, time.Now().Add(life).Unix())
		signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","kid":"k","typ":"at+jwt"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
		return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(signed)))
	}
	document := "http://" + s.host() + "/.well-known/oauth-protected-resource/mcp"
	for _, tt := range []struct {
		name, token string
		status      int
		says        string
	}{
		{"none", "", 401, ""},
		{"nonsense", "x", 401, `error="invalid_token"`},
		{"for another server", token("other", "skills:read", time.Hour), 401, `error="invalid_token"`},
		{"expired", token("skills", "skills:read", -time.Hour), 401, `error="invalid_token"`},
		{"without the scope", token("skills", "other", time.Hour), 403, `error="insufficient_scope"`},
	} {
		for _, verb := range []string{"POST", "GET", "DELETE"} {
			response, err := s.as(tt.token).do(t.Context(), verb, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			said := response.Header.Get("WWW-Authenticate")
			if response.StatusCode != tt.status || !strings.HasPrefix(said, "Bearer ") || !strings.Contains(said, tt.says) || tt.says == "" && strings.Contains(said, "error=") ||
				!strings.Contains(said, fmt.Sprintf("resource_metadata=%q", document)) || !strings.Contains(said, `scope="skills:read"`) {
				t.Errorf("%s with a token %s: %s, WWW-Authenticate %s", verb, tt.name, response.Status, said)
			}
		}
	}
	var metadata struct {
		Resource string
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
	}
	s.getJSON(t.Context(), document, &metadata)
	if metadata.Resource != s.url || len(metadata.Servers) != 1 || metadata.Servers[0] != issuer || len(metadata.Scopes) != 1 || metadata.Scopes[0] != "skills:read" {
		t.Errorf("metadata = %+v", metadata)
	}
	s.open(token("skills", "openid skills:read", time.Hour)).load()
}

// The keys of an issuer are where its discovery document says. The start and doctor say when they cannot be fetched,
// and SIGHUP fetches them again: a key that was withdrawn does not count afterwards, and one that came does.
func TestHTTPIssuerDiscovery(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var keys atomic.Value // the id of the key that is published, empty while there is no document
	keys.Store("")
	var issuer *httptest.Server
	issuer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch id := keys.Load().(string); {
		case id == "":
			http.Error(w, "broken", http.StatusInternalServerError)
		case r.URL.Path == "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"%s/jwks"}`, issuer.URL, issuer.URL)
		case r.URL.Path == "/jwks":
			fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, id, base64.RawURLEncoding.EncodeToString(public))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(issuer.Close)
	flags := []string{"--skills-root", tree(t, demoSkill()), "--auth-issuer", issuer.URL, "--auth-audience", "skills"}
	s := serveHTTP(t, flags...)
	// follow waits for a line of the log that was not there before.
	seen := 0
	follow := func(line string) {
		t.Helper()
		i := 0
		if !s.stderr.until(func(text string) bool { i = strings.Index(text[seen:], line); return i >= 0 }) {
			t.Fatalf("the log does not say %q:\n%s", line, s.stderr)
		}
		seen += i + len(line)
	}
	status := func(id string) int {
		t.Helper()
		claims := fmt.Sprintf(`{"iss":%q,"aud":"skills","sub":"alice","exp":%d}`, issuer.URL, time.Now().Add(time.Hour).Unix())
		signed := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"EdDSA","kid":%q}`, id)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
		token := signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(signed)))
		code, _, err := s.as(token).request(t.Context(), "tools/list", "", "")
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	doctor := func() string {
		out, _ := exec.Command(binary, append([]string{"doctor", "--state", t.TempDir(), "--http", "127.0.0.1:0"}, flags...)...).Output()
		return string(out)
	}
	follow("the keys of the issuer cannot be fetched")
	if code := status("a"); code != http.StatusServiceUnavailable {
		t.Errorf("without keys a token is answered %d", code)
	}
	if out := doctor(); !strings.Contains(out, "the keys of the issuer cannot be fetched: "+issuer.URL+"/.well-known/openid-configuration answered 500") ||
		!strings.Contains(out, "--auth-jwks") {
		t.Errorf("doctor without keys:\n%s", out)
	}
	for _, id := range []string{"a", "b"} {
		keys.Store(id)
		s.cmd.Process.Signal(syscall.SIGHUP)
		follow("loaded the keys of the issuer")
		for _, asked := range []string{"a", "b"} {
			want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[asked == id]
			if code := status(asked); code != want {
				t.Errorf("with the key %s published, a token of %s is answered %d, want %d", id, asked, code, want)
			}
		}
	}
	if out := doctor(); strings.Contains(out, "keys of the issuer") {
		t.Errorf("doctor with keys:\n%s", out)
	}
	s.interrupt()
}

// getJSON reads a document without authentication.
func (s *site) getJSON(ctx context.Context, url string, v any) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/json" {
		s.t.Fatalf("GET %s = %s, %s", url, response.Status, response.Header.Get("Content-Type"))
	}
	if err := json.NewDecoder(response.Body).Decode(v); err != nil {
		s.t.Fatal(err)
	}
}

// A principal whose scripts take long does not hold all slots of a server that has several: others run at
// once, and the file can give a principal fewer.
func TestSlotsAreShared(t *testing.T) {
	config := written(t, "config.yaml", "principals: {carol: {concurrent: 1}}\n")
	s := serveHTTP(t, append(demo(t, "ok.sh", "sleep.sh"), "--config", config, "--limit", "concurrent=4",
		"--auth-token-file", tokenFile(t, "alice", "bob", "carol"))...)
	needSandbox(t, s.loaded("alice-token"))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	var hogs sync.WaitGroup
	defer hogs.Wait()
	defer cancel()
	requested := 1 // by needSandbox
	for name, n := range map[string]int{"alice": 4, "carol": 2} {
		for range n {
			c := s.loaded(name + "-token") // runs of one session take turns
			requested++
			hogs.Go(func() {
				c.tryTool(ctx, "run_skill_script", demoScript("sleep.sh"))
			})
		}
	}
	eventually(t, "the long runs are requested", func() bool { return recordedIn(t, s.state, "skill.script_requested") >= requested })
	bob := s.loaded("bob-token")
	result, err := bob.tryTool(ctx, "run_skill_script", demoScript("ok.sh"))
	if err != nil || !strings.Contains(result.text(), "ran-ok") {
		t.Errorf("bob waits behind alice and carol: %v %s", err, result.text())
	}
}

// recordedIn counts the events of a kind in all records.
func recordedIn(t *testing.T, state, kind string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(state, "sessions", "*", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(text), `"`+kind+`"`)
	}
	return n
}

// More conversations than sessions that may be open: each has one record, which holds all its calls and verifies.
func TestHTTPMoreConversationsThanSessions(t *testing.T) {
	t.Parallel()
	const conversations, reads = 40, 2
	s := serveIn(t, underLimit(t, "-n 256"), "--http-activation", "handle", "--skills-root", tree(t, demoSkill()))
	var handles []string
	for range conversations {
		handles = append(handles, handleIn(t, s.as("").tool("load_skill", map[string]any{"name": "demo"})))
	}
	for range reads {
		for _, handle := range handles {
			result := s.as("").tool("read_skill_resource", map[string]any{"skill": "demo", "path": "SKILL.md", "activation": handle})
			if result.IsError {
				t.Fatalf("read: %s", result.text())
			}
		}
	}
	s.interrupt()
	records, err := filepath.Glob(filepath.Join(s.state, "sessions", "ses_*"))
	if err != nil || len(records) != conversations {
		t.Errorf("%d records of %d conversations, %v", len(records), conversations, err)
	}
	for _, record := range records {
		if out, code := session(t, s.state, "verify", filepath.Base(record)); code != 0 || strings.Contains(out, "note") {
			t.Errorf("verify: %d, %s", code, out)
		}
		events, err := os.ReadFile(filepath.Join(record, "events.jsonl"))
		if n := bytes.Count(events, []byte(`"kind":"skill.resource_read"`)); err != nil || n != reads || !bytes.Contains(events, []byte("skill-registry.json")) {
			t.Errorf("the record of a conversation has %d reads, %v:\n%.1000s", n, err, events)
		}
	}
	for _, level := range []string{`"level":"ERROR"`, `"level":"WARN","msg":"snapshot`} {
		if log := s.stderr.String(); strings.Contains(log, level) {
			t.Errorf("the server logged:\n%.2000s", log)
		}
	}
}

var bursts = flag.Int("bursts", 0, "how many bursts of 1,000 clients TestHTTPBurstOfSessions makes under each limit; 0 makes two small ones")

// Under a low limit of descriptors, a burst of new sessions is answered: each call succeeds, or is answered
// that the server is busy and when to call again. There are never more records open than the limit has room for,
// those of sessions that are ending too.
func TestHTTPBurstOfSessions(t *testing.T) {
	nightly.Only(t)
	if *bursts == 0 {
		burstsOfSessions(t, 512, 150, 2)
		return
	}
	for _, files := range []int{512, 1024, 4096, 20_000} {
		t.Run(strconv.Itoa(files), func(t *testing.T) { burstsOfSessions(t, files, 1000, *bursts) })
	}
}

func burstsOfSessions(t *testing.T, files, clients, bursts int) {
	s := serveIn(t, underLimit(t, fmt.Sprintf("-n %d", files)), "--auth-token-file", tokenFile(t, "p0", "p1", "p2", "p3"),
		"--http-activation", "handle", "--rate-limit", "0", "--skills-root", tree(t, demoSkill()))
	most := mostRecords(t, s.cmd.Process.Pid)
	for burst := range bursts {
		answers := make(chan map[string]int, clients)
		for client := range clients {
			go func() { answers <- s.as(fmt.Sprintf("p%d-token", client%4)).visit() }()
		}
		all := map[string]int{}
		for range clients {
			for answer, n := range <-answers {
				all[answer] += n
			}
		}
		t.Logf("burst %d: %d calls were served, %d were answered that the server is busy", burst+1, all["served"], all["busy"])
		if all["served"] == 0 {
			t.Error("no call was served")
		}
		delete(all, "served")
		delete(all, "busy")
		for answer, n := range all {
			t.Errorf("%d answers = %.600s", n, answer)
		}
	}
	if n, room := most(), max(files/8, 1); n > room {
		t.Errorf("%d records were open at once, at most %d may be under a limit of %d descriptors", n, room, files)
	}
	if log := s.stderr.String(); strings.Contains(log, "too many open files") {
		t.Errorf("the server ran out of descriptors:\n%.2000s", log)
	}
}

var busyFor = regexp.MustCompile(`server_busy.*call again in \d+ second`)

// visit is a new session with one load and three reads, until it is answered that the server is busy. It returns
// how many calls were served and busy, and what else was answered.
func (c *caller) visit() map[string]int {
	answers, calls := map[string]int{}, []string{"load_skill", "read_skill_resource", "read_skill_resource", "read_skill_resource"}
	args := `{"name":"demo"}`
	for _, tool := range calls {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s}}}`, tool, args, modernMeta)
		// The server ends idle connections when there are many; a client may repeat what had no answer on one.
		response, err := c.do(context.Background(), "POST", body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool,
			"Idempotency-Key", "visit")
		var data []byte
		if err == nil {
			data, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		_, after, loaded := strings.Cut(string(data), "Activation: ")
		switch {
		case err != nil:
			answers[err.Error()]++
			return answers
		case response.StatusCode == 503 && response.Header.Get("Retry-After") != "", busyFor.Match(data):
			answers["busy"]++
			return answers
		case response.StatusCode != 200 || tool == "load_skill" && !loaded || bytes.Contains(data, []byte(`"isError":true`)):
			answers[response.Status+" "+string(data)]++
			return answers
		}
		answers["served"]++
		if loaded {
			handle, _, _ := strings.Cut(after, " ")
			args = fmt.Sprintf(`{"skill":"demo","path":"SKILL.md","activation":%q}`, handle)
		}
	}
	return answers
}

// mostRecords looks at what a process has open until most is called, which returns how many records there were at
// most; 0 where a system does not show that.
func mostRecords(t *testing.T, pid int) (most func() int) {
	t.Helper()
	stop, found := make(chan struct{}), make(chan int, 1)
	go func() {
		n, dir, before := 0, fmt.Sprintf("/proc/%d/fd", pid), map[string]bool{}
		for {
			records, both := map[string]bool{}, 0
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				target, _ := os.Readlink(filepath.Join(dir, e.Name()))
				_, record, ok := strings.Cut(target, "/sessions/ses_")
				record, _, _ = strings.Cut(record, "/")
				if ok && !records[record] {
					records[record] = true
					if before[record] {
						both++ // it was open between the looks, as one may end and another begin during each
					}
				}
			}
			n, before = max(n, both), records
			select {
			case <-stop:
				found <- n
				return
			default:
			}
		}
	}()
	return sync.OnceValue(func() int {
		close(stop)
		return <-found
	})
}
