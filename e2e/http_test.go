package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// handleIn returns the handle in an answer of load_skill.
func handleIn(t testing.TB, r toolResult) string {
	t.Helper()
	handle := handleOf(r)
	if handle == "" {
		t.Errorf("no handle in %s", r.text())
	}
	return handle
}

// The two eras on one endpoint: list, load, read, run, be denied.
func TestHTTPBothEras(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, append(demo(t, "ok.sh"), "--http-activation", "handle")...)
	for name, c := range map[string]*caller{"2025-11-25": s.open(""), "2026-07-28": {site: s}} {
		t.Run(name, func(t *testing.T) {
			loaded := c.tool("load_skill", map[string]any{"name": "demo"})
			if !strings.Contains(loaded.text(), "# Demo") {
				t.Fatalf("load_skill = %s", loaded.text())
			}
			read := c.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"})
			if read.text() != "Notes: äöü €\n" {
				t.Errorf("read_skill_resource = %q", read.text())
			}
			args := demoScript("ok.sh")
			without := c.tool("run_skill_script", args)
			if c.session == "" != strings.Contains(without.text(), "skill_not_activated") {
				t.Errorf("a run without the handle: %s", without.text())
			}
			args["activation"] = handleIn(t, loaded)
			ran := c.tool("run_skill_script", args)
			if strings.Contains(ran.text(), `"sandbox_unavailable"`) {
				if os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
					t.Fatalf("no sandbox backend works here: %s", ran.text())
				}
			} else if !strings.HasPrefix(ran.text(), "exit 0 in ") {
				t.Errorf("a run with the handle: %s", ran.text())
			}
			denied := c.tool("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/other.sh", "activation": args["activation"]})
			if !strings.Contains(denied.text(), "script_not_allowlisted") {
				t.Errorf("another script: %s", denied.text())
			}
			if status, a, err := c.request(t.Context(), "skills/list", "", ""); err != nil || status != 200 || !bytes.Contains(a.Result, []byte("skill://demo/SKILL.md")) {
				t.Errorf("skills/list = %d %s %v", status, a.Result, err)
			}
			status, a, err := c.request(t.Context(), "resources/read", "skill://demo/none", `"uri":"skill://demo/none"`)
			if want := map[bool]int{true: 400, false: 200}[c.session == ""]; err != nil || status != want || a.Error == nil {
				t.Errorf("resources/read of nothing = %d %+v %v, want %d and an error", status, a.Error, err, want)
			}
		})
	}
}

// What one principal has is nothing to another: sessions, handles, cancellations, records.
func TestHTTPPrincipals(t *testing.T) {
	t.Parallel()
	args := append(demo(t, "ok.sh"), "--auth-token-file", tokenFile(t, "alice", "bob"))
	s := serveHTTP(t, args...)
	for _, token := range []string{"", "x", "alice"} {
		if response, err := s.as(token).do(t.Context(), "POST", `{}`); err != nil || response.StatusCode != 401 || response.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("with the token %q: %v %v", token, response, err)
		}
	}
	alice, bob := s.open("alice-token"), s.open("bob-token")
	handle := handleIn(t, alice.tool("load_skill", map[string]any{"name": "demo"}))
	thief := &caller{site: s, token: "bob-token", session: alice.session}
	for _, verb := range []string{"POST", "GET", "DELETE"} {
		if response, err := thief.do(t.Context(), verb, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil || response.StatusCode != 404 {
			t.Errorf("%s in alice's session as bob: %v %v", verb, response, err)
		}
	}
	for name, c := range map[string]*caller{"session": bob, "no session": {site: s, token: "bob-token"}} {
		for _, tool := range []string{"load_skill", "read_skill_resource", "run_skill_script"} {
			got := c.tool(tool, map[string]any{"name": "demo", "skill": "demo", "path": "scripts/ok.sh", "activation": handle})
			want := "activation_unknown"
			if tool == "run_skill_script" {
				got = c.tool(tool, map[string]any{"skill": "demo", "path": "scripts/ok.sh", "activation": handle})
			}
			if !strings.Contains(got.text(), want) {
				t.Errorf("%s: %s with alice's handle: %s", name, tool, got.text())
			}
		}
	}
	if got := alice.tool("load_skill", map[string]any{"name": "demo"}); got.IsError || handleIn(t, got) != handle {
		t.Errorf("alice's session afterwards: %s", got.text())
	}
	if got := s.as("alice-token").tool("read_skill_resource", map[string]any{"skill": "demo", "path": "SKILL.md", "activation": handle}); got.IsError {
		t.Errorf("alice's handle without a session: %s", got.text())
	}
	s.interrupt()
	owners := map[string]int{}
	files, err := filepath.Glob(filepath.Join(s.state, "sessions", "*", "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var session struct{ Principal, State string }
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &session); err != nil || session.State != "ended" {
			t.Errorf("%s: %v %s", file, err, data)
		}
		owners[session.Principal]++
	}
	if owners["alice"] != 1 || owners["bob"] != 2 || len(owners) != 2 {
		t.Errorf("sessions by principal: %v", owners)
	}
}

// Whose word about prompt slots counts is for the operator to say; anyone else's is passed over.
func TestHTTPEvidence(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, "--skills-root", "builtin="+tree(t, demoSkill()), "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh",
		"--auth-token-file", tokenFile(t, "alice", "bob"), "--auth-evidence", "alice")
	const slot = `"skillsd/prompt-slot":{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound","source":"t","role":"direct-command","kernelName":"k","surface":"s"}`
	for _, tt := range []struct{ name, token, meta, want string }{
		{"believed", "alice-token", slot, "ran-ok"},
		{"believed, malformed", "alice-token", `"skillsd/prompt-slot":7`, "prompt_slot_invalid"},
		{"believed, silent", "alice-token", ``, "direct_command_required"},
		{"not believed", "bob-token", slot, "direct_command_required"},
		{"not believed, malformed", "bob-token", `"skillsd/prompt-slot":7`, "direct_command_required"},
		{"not believed, mode", "bob-token", `"skillsd/mode":"no mode"`, "direct_command_required"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := s.loaded(tt.token)
			_, a, err := c.request(t.Context(), "tools/call", "", `"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh"},"_meta":{`+tt.meta+`}`)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(a.Result, []byte("sandbox_unavailable")) && os.Getenv("SKILLSD_REQUIRE_SANDBOX") == "" {
				return // permitted, which is what is tested here
			}
			if !bytes.Contains(a.Result, []byte(tt.want)) {
				t.Errorf("run_skill_script = %s, want %s", a.Result, tt.want)
			}
		})
	}
}

// A stateless client is known by the id it gives itself, among those of its principal.
func TestHTTPClientSession(t *testing.T) {
	s := serveHTTP(t, append(demo(t, "ok.sh"), "--auth-token-file", tokenFile(t, "alice", "bob"))...)
	run := func(token, tool, arguments, meta string) string {
		t.Helper()
		c := s.as(token)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{%s,%s},"name":%q,"arguments":%s}}`, modernMeta, meta, tool, arguments)
		_, a, err := c.send(t.Context(), body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
		if err != nil {
			t.Fatal(err)
		}
		return string(a.Result)
	}
	const script = `{"skill":"demo","path":"scripts/ok.sh"}`
	run("alice-token", "load_skill", `{"name":"demo"}`, `"threadId":"t1"`)
	if got := run("alice-token", "run_skill_script", script, `"threadId":"t1"`); strings.Contains(got, "skill_not_activated") {
		t.Errorf("alice in her own thread: %s", got)
	}
	for token, meta := range map[string]string{"bob-token": `"threadId":"t1"`, "alice-token": `"threadId":"t2"`} {
		if got := run(token, "run_skill_script", script, meta); !strings.Contains(got, "skill_not_activated") {
			t.Errorf("%s with %s: %s", token, meta, got)
		}
	}
}

// A script dies with its client, with its cancellation, with its session and with the server.
func TestHTTPScriptsDie(t *testing.T) {
	s := serveHTTP(t, demo(t, "ok.sh", "sleep.sh")...)
	needSandbox(t, s.loaded(""))
	for _, tt := range []struct {
		name string
		end  func(c *caller, leave context.CancelFunc)
	}{
		{"client leaves", func(_ *caller, leave context.CancelFunc) { leave() }},
		{"canceled", func(c *caller, _ context.CancelFunc) {
			c.send(t.Context(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"run"}}`)
		}},
		{"session deleted", func(c *caller, _ context.CancelFunc) { c.do(t.Context(), "DELETE", "") }},
		{"server ends", func(c *caller, _ context.CancelFunc) { s.interrupt() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := s.loaded("")
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			response, err := c.do(ctx, "POST", `{"jsonrpc":"2.0","id":"run","method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/sleep.sh"},"_meta":{"progressToken":"p"}}}`)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			lines := bufio.NewScanner(response.Body)
			for lines.Scan() && !strings.Contains(lines.Text(), `"running"`) {
			}
			tt.end(c, leave)
			for lines.Scan() {
				if strings.Contains(lines.Text(), `"result"`) && tt.name == "canceled" {
					t.Errorf("a cancelled call was answered: %s", lines.Text())
				}
			}
			noScriptsSoon(t)
		})
	}
}

// sleepScript is where a sandbox has the script of the demo skill that sleeps. Its text has sleepMark, since
// another run of the same tests has its own.
const sleepScript = "/demo/scripts/sleep.sh"

var sleepMark = rand.Text()

// scriptRuns reports whether sleepScript runs somewhere, for a test of this process.
func scriptRuns(t *testing.T) bool {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(entries, runsSleepScript)
}

// runsSleepScript reports whether the process with a command line runs sleepScript with sleepMark in it, or a
// text that cannot be read.
func runsSleepScript(cmdline string) bool {
	arguments := func() []string {
		raw, _ := os.ReadFile(cmdline) // of a process that is gone there is none
		return strings.Split(string(raw), "\x00")
	}
	ends := func(argument string) bool { return strings.HasSuffix(argument, sleepScript) }
	before := arguments()
	i := slices.IndexFunc(before, ends)
	if i < 0 {
		return false
	}
	text, err := os.ReadFile(filepath.Dir(cmdline) + "/root" + before[i])
	if err != nil {
		return slices.ContainsFunc(arguments(), ends)
	}
	return strings.Contains(string(text), sleepMark)
}

// Clients that initialize and never say goodbye cost a bounded amount of memory.
func TestHTTPInitializeFlood(t *testing.T) {
	nightly.Only(t)
	if runtime.GOOS != "linux" {
		t.Skip("missing capability: /proc/PID/status")
	}
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()), "--rate-limit", "0")
	flood := func(n int) {
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for range n / 8 {
					s.open("")
				}
			})
		}
		clients.Wait()
	}
	flood(4000)
	before := residentMemory(t, s.cmd.Process.Pid)
	flood(16000)
	if after := residentMemory(t, s.cmd.Process.Pid); after > before+32<<20 {
		t.Errorf("memory grew from %d to %d KiB", before>>10, after>>10)
	}
	s.open("").load()
}

// residentMemory is what a process holds now, in bytes.
func residentMemory(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// Connections that begin and do not go on leave room for those that do.
func TestHTTPSlowClients(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()))
	for i := range 300 {
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
		if i%3 == 0 {
			fmt.Fprintf(conn, "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{")
		}
	}
	s.open("").load()
	s.interrupt()
}

// 64 clients of both eras with mixed calls are all answered.
func TestHTTPManyClients(t *testing.T) {
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()), "--auth-token-file", tokenFile(t, "alice", "bob"), "--rate-limit", "0")
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			token := []string{"alice-token", "bob-token"}[i%2]
			c := s.as(token)
			if i%4 < 2 {
				c = s.open(token)
			}
			loaded := c.tool("load_skill", map[string]any{"name": "demo"})
			handle := handleIn(t, loaded)
			for n := range 10 {
				if got := c.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md", "activation": handle}); got.text() != "Notes: äöü €\n" {
					t.Errorf("client %d, call %d: %s", i, n, got.text())
				}
				if status, a, err := c.request(t.Context(), "tools/list", "", ""); err != nil || status != 200 || a.Result == nil {
					t.Errorf("client %d: tools/list = %d %v", i, status, err)
				}
			}
			if c.session != "" {
				if response, err := c.do(t.Context(), "DELETE", ""); err != nil || response.StatusCode != 204 {
					t.Errorf("client %d: DELETE = %v %v", i, response, err)
				}
			}
		})
	}
	clients.Wait()
	s.interrupt()
	skillsd(t, 0, "session", "verify", "latest", "--state", s.state)
}

// The server refuses to be open to everyone by accident.
func TestHTTPRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"all interfaces":        {"--http", "0.0.0.0:0"},
		"all interfaces, short": {"--http", ":0"},
		"no port":               {"--http", "127.0.0.1"},
		"two transports":        {"--http", "127.0.0.1:0", "--unix", filepath.Join(dir, "s")},
		"no socket":             {"--unix", plain},
		"no token file":         {"--http", "127.0.0.1:0", "--auth-token-file", filepath.Join(dir, "none")},
		"half of TLS":           {"--http", "127.0.0.1:0", "--tls-cert", plain},
		"no certificate":        {"--http", "127.0.0.1:0", "--tls-cert", plain, "--tls-key", plain},
		"issuer, no audience":   {"--http", "127.0.0.1:0", "--auth-issuer", "https://issuer.example.com"},
		"tokens on stdio":       {"--auth-token-file", plain},
		"origin of no form":     {"--http", "127.0.0.1:0", "--allowed-origin", "*"},
		"endpoint over healthz": {"--http", "127.0.0.1:0", "--http-path", "/healthz"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, append([]string{"serve", "--state", t.TempDir(), "--no-default-roots"}, args...)...)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "skillsd: hint: ") {
				t.Errorf("exit %v: %s", err, out)
			}
		})
	}
	if data, err := os.ReadFile(plain); err != nil || len(data) != 0 {
		t.Errorf("the file in the way: %v %q", err, data)
	}
}

// A socket is its owner's alone; one that a dead server left is taken over, one in use is not.
func TestHTTPUnixSocket(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: modes of socket files")
	}
	dir, err := os.MkdirTemp("", "skillsd") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	root := tree(t, demoSkill())
	run := func() *site {
		p := serve(t, "--unix", path, "--skills-root", root)
		s := &site{process: p, url: "http://skillsd/mcp", client: &http.Client{Timeout: patience, Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			}}}}
		s.addr()
		return s
	}
	s := run()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v", info.Mode(), err)
	}
	s.open("").load()
	if out, err := exec.Command(binary, "serve", "--state", t.TempDir(), "--unix", path).CombinedOutput(); err == nil || !strings.Contains(string(out), "in use") {
		t.Errorf("a second server on the socket: %v %s", err, out)
	}
	if response, err := s.as("").do(t.Context(), "POST", `{}`, "Origin", "http://evil.example.com"); err != nil || response.StatusCode != 403 {
		t.Errorf("evil Origin: %v %v", response, err)
	}
	s.cmd.Process.Kill()
	s.leave()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("a killed server leaves its socket: %v", err)
	}
	s = run()
	s.open("").load()
	s.interrupt()
	if _, err := os.Lstat(path); err == nil {
		t.Error("a server that ended leaves its socket")
	}
}

func TestHTTPS(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	paths := map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: certificate}, "key": {Type: "PRIVATE KEY", Bytes: private}}
	for name, block := range paths {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()), "--tls-cert", filepath.Join(dir, "cert"), "--tls-key", filepath.Join(dir, "key"))
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	for _, version := range []int{1, 2} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: version == 2}
		s.client = &http.Client{Timeout: patience, Transport: transport}
		s.url = strings.Replace(s.url, "http://", "https://", 1)
		c := s.open("")
		c.load()
		ctx, cancel := context.WithCancel(t.Context())
		response, err := c.do(ctx, "GET", "")
		if err != nil || response.ProtoMajor != version || response.StatusCode != 200 {
			t.Errorf("HTTP/%d: stream = %v %v", version, response, err)
		}
		cancel()
		transport.CloseIdleConnections()
	}
	s.interrupt()
}

// bearer adds a token to each request of another client.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// The official Go SDK over HTTP.
func TestOfficialClientHTTP(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()), "--auth-token-file", tokenFile(t, "alice"))
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.url, HTTPClient: &http.Client{Transport: bearer{"alice-token"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "load_skill", Arguments: map[string]any{"name": "demo"}})
	if err != nil || result.IsError {
		t.Errorf("load_skill = %+v %v", result, err)
	}
	count := 0
	for _, err := range session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	if count != 1 {
		t.Errorf("%d resources, want the SKILL.md of one skill", count)
	}
}
