package e2e

// The driver of the binary: a test starts skillsd with it, calls it over stdio or HTTP, and reads its answers.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/testtree"
)

// skillsd runs a command, which must exit with a code, and returns what it printed.
func skillsd(t testing.TB, code int, args ...string) string {
	t.Helper()
	out, err := exec.Command(binary, args...).CombinedOutput()
	if got := exitStatus(err); got != code {
		t.Errorf("skillsd %q: exit code %d, want %d\n%s", args, got, code, out)
	}
	return string(out)
}

// stdoutOf runs a command, which must succeed, and returns its stdout.
func stdoutOf(t testing.TB, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("skillsd %q: %v\n%s", args, err, stderr.String())
	}
	return out
}

// process is a running `skillsd serve` with its pipes.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	state  string // its directory, where serve or serveHTTP started it
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *lockedBuffer
	exited chan error
	last   int // the id of the last request of ask
	// Returns the result or error, as a member of a message, with which the client answers the server.
	reply func(request answer) string
}

// serve starts the server on stdio, with a state directory of its own unless the arguments name one.
func serve(t testing.TB, args ...string) *process {
	t.Helper()
	return serveWith(t, nil, args...)
}

// serveWith is serve with more environment variables.
func serveWith(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	cmd, state := serving(t, args...)
	cmd.Env = append(os.Environ(), env...)
	p := start(t, cmd)
	p.state = state
	return p
}

// serving is the command that starts the server of a state directory, by default a new one.
func serving(t testing.TB, args ...string) (cmd *exec.Cmd, state string) {
	i := slices.Index(args, "--state")
	if i < 0 {
		i, args = 0, append([]string{"--state", t.TempDir()}, args...)
	}
	return exec.Command(binary, append([]string{"serve", "--log-format", "json"}, args...)...), args[i+1]
}

// start starts a command that serves.
func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	// The ids of ask are none that a test sends itself.
	p := &process{t: t, cmd: cmd, stderr: &lockedBuffer{}, exited: make(chan error, 1), last: 1_000_000}
	cmd.Stderr = p.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReaderSize(out, 1<<20)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		in.Close()
		cmd.Wait()
		if t.Failed() {
			t.Logf("stderr of the server:\n%s", p.stderr)
		}
	})
	return p
}

// send writes one line.
func (p *process) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("send: %v", err)
	}
}

// receive reads one line.
func (p *process) receive() string {
	p.t.Helper()
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := p.out.ReadString('\n')
		read <- result{strings.TrimSuffix(line, "\n"), err}
	}()
	select {
	case r := <-read:
		if r.err != nil {
			p.t.Fatalf("receive: %v", r.err)
		}
		return r.line
	case <-time.After(patience):
		p.t.Fatalf("no line from the server for %v", patience)
		return ""
	}
}

// ask sends a request and returns its response; notifications before it are passed over.
func (p *process) ask(method, params string) answer {
	p.t.Helper()
	p.last++
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, p.last, method, params))
	for {
		line := p.receive()
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			p.t.Fatalf("the server wrote %q: %v", line, err)
		}
		if a.Method == "" && string(a.ID) == fmt.Sprint(p.last) {
			return a
		}
		if a.ID != nil && p.reply != nil {
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, a.ID, p.reply(a)))
		}
	}
}

// hello are the parameters of initialize of a client on 2025-11-25 with some capabilities.
func hello(capabilities string) string {
	return `{"protocolVersion":"2025-11-25","capabilities":{` + capabilities + `},` +
		`"clientInfo":{"name":"e2e","version":"1"}}`
}

// introduction is the request itself.
func introduction(capabilities string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + hello(capabilities) + `}`
}

// initialize does the handshake of 2025-11-25, for a client with some capabilities.
func (p *process) initialize(capabilities ...string) answer {
	p.t.Helper()
	a := p.ask("initialize", hello(strings.Join(capabilities, ",")))
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

// loaded is the process after the handshake and a load of the demo skill.
func (p *process) loaded() *process {
	p.t.Helper()
	p.initialize()
	p.tool("load_skill", map[string]any{"name": "demo"})
	return p
}

// tool calls a tool.
func (p *process) tool(tool string, args any) toolResult {
	p.t.Helper()
	return p.toolWith(tool, args, "{}")
}

func (p *process) toolWith(tool string, args any, meta string) toolResult {
	p.t.Helper()
	a := p.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":%s}`, tool, toJSON(args), meta))
	if a.Error != nil {
		p.t.Fatalf("tools/call %s: %+v", tool, a.Error)
	}
	var result toolResult
	if err := json.Unmarshal(a.Result, &result); err != nil {
		p.t.Fatal(err)
	}
	return result
}

// load loads the demo skill, which must not be refused.
func (p *process) load() {
	p.t.Helper()
	if got := p.tool("load_skill", map[string]any{"name": "demo"}); got.IsError {
		p.t.Errorf("load_skill = %s", got.text())
	}
}

// script runs a script of the demo skill.
func (p *process) script(name string, args ...string) toolResult {
	p.t.Helper()
	return p.tool("run_skill_script", demoScript(name, args...))
}

// leave closes stdin and waits for the server's exit.
func (p *process) leave() error {
	p.t.Helper()
	p.in.Close()
	go io.Copy(io.Discard, p.out)
	go func() { p.exited <- p.cmd.Wait() }()
	select {
	case err := <-p.exited:
		return err
	case <-time.After(patience):
		p.t.Fatalf("the server did not exit within %v", patience)
		return nil
	}
}

// end is leave of a server that is to end without failure.
func (p *process) end() {
	p.t.Helper()
	if err := p.leave(); err != nil {
		p.t.Errorf("exit: %v\n%s", err, p.stderr)
	}
}

// logged waits until the server has logged what matches and returns the first group.
func (p *process) logged(what *regexp.Regexp) string {
	p.t.Helper()
	var found []string
	matches := func(text string) bool {
		found = what.FindStringSubmatch(text)
		return found != nil
	}
	if !p.stderr.until(matches) {
		p.t.Fatalf("the server did not log %s:\n%s", what, p.stderr)
	}
	return found[1]
}

// lockedBuffer collects what the process says on stderr.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed by the next Write
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.more != nil {
		close(b.more)
		b.more = nil
	}
	return b.text.Write(p)
}

// until waits for a text of which is holds, and reports whether there was one.
func (b *lockedBuffer) until(is func(text string) bool) bool {
	for late := time.After(patience); ; {
		b.mu.Lock()
		if b.more == nil {
			b.more = make(chan struct{})
		}
		text, more := b.text.String(), b.more
		b.mu.Unlock()
		if is(text) {
			return true
		}
		select {
		case <-more:
		case <-late:
			return false
		}
	}
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// answer is a JSON-RPC response, or what a server sends before it.
type answer struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// contentBlock is a part of a tool's result.
type contentBlock struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MIMEType string `json:"mimeType"`
	URI      string `json:"uri"`
}

// toolResult is the result of tools/call.
type toolResult struct {
	IsError           bool                       `json:"isError"`
	Content           []contentBlock             `json:"content"`
	StructuredContent json.RawMessage            `json:"structuredContent"`
	Meta              map[string]json.RawMessage `json:"_meta"`
}

func (r toolResult) text() string {
	var b strings.Builder
	for _, content := range r.Content {
		b.WriteString(content.Text)
	}
	return b.String()
}

// object is the JSON object that the text of an error ends with.
func (r toolResult) object() []byte {
	text := r.text()
	return []byte(text[strings.LastIndexByte(text, '\n')+1:])
}

// modernMeta is the _meta of a request on 2026-07-28.
const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}`

// site is a running `skillsd serve` reached over HTTP.
type site struct {
	*process
	url    string // of the endpoint
	client *http.Client
}

var listening = regexp.MustCompile(`"msg":"listening","addr":"([^"]+)"`)

// serveHTTP starts the server and waits until it listens.
func serveHTTP(t testing.TB, args ...string) *site {
	t.Helper()
	if strings.HasPrefix(t.Name(), clusterSuites+"/") {
		return serveTwo(t.(*testing.T), args...)
	}
	return serveIn(t, nil, args...)
}

// serveIn is serveHTTP of one server, with a command that is begun by other words.
func serveIn(t testing.TB, in []string, args ...string) *site {
	t.Helper()
	named := func(arg string) bool { return arg == "--auth-token-file" || arg == "--auth-issuer" }
	if !slices.ContainsFunc(args, named) {
		args = append(args, "--insecure-no-auth")
	}
	cmd, state := serving(t, append([]string{"--http", "127.0.0.1:0"}, args...)...)
	words := append(slices.Clone(in), cmd.Args...)
	p := start(t, exec.Command(words[0], words[1:]...))
	p.state = state
	return p.site()
}

// site waits until a process listens, and is its endpoint.
func (p *process) site() *site {
	p.t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}, Timeout: patience}
	p.t.Cleanup(client.CloseIdleConnections)
	return &site{process: p, url: "http://" + p.addr() + "/mcp", client: client}
}

// addr waits for the server to say where it listens.
func (p *process) addr() string {
	p.t.Helper()
	return p.logged(listening)
}

// host is the server's address.
func (s *site) host() string {
	return strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp")
}

// interrupt ends the server and expects that to be no failure.
func (s *site) interrupt() {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.end()
}

// caller is one client: a token, and a session of the older revisions or none.
type caller struct {
	*site
	token, session string
}

// do sends one request; headers come in pairs.
func (c *caller) do(ctx context.Context, verb, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, verb, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	return c.client.Do(r)
}

// status sends one request, and returns the status and the headers of its answer.
func (c *caller) status(verb, body string, headers ...string) (int, http.Header) {
	c.t.Helper()
	response, err := c.do(c.t.Context(), verb, body, headers...)
	if err != nil {
		c.t.Errorf("%s: %v", verb, err)
		return 0, nil
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response.StatusCode, response.Header
}

// as is a client without a session.
func (s *site) as(token string) *caller { return &caller{site: s, token: token} }

// open makes a session of 2025-11-25.
func (s *site) open(token string) *caller {
	s.t.Helper()
	c := &caller{site: s, token: token}
	status, header := c.status("POST", introduction(""))
	c.session = header.Get("Mcp-Session-Id")
	if c.session == "" {
		s.t.Errorf("initialize: %d without a session", status)
	}
	return c
}

// loaded is a session of 2025-11-25 that has loaded the demo skill.
func (s *site) loaded(token string) *caller {
	s.t.Helper()
	c := s.open(token)
	c.tool("load_skill", map[string]any{"name": "demo"})
	return c
}

// send posts a message and returns the status and the answer, also the last of a stream.
func (c *caller) send(ctx context.Context, body string, headers ...string) (int, answer, error) {
	var a answer
	response, err := c.do(ctx, "POST", body, headers...)
	if err != nil {
		return 0, a, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, a, err
	}
	if response.Header.Get("Content-Type") == "text/event-stream" {
		events := bytes.Split(data, []byte("data: "))
		data = events[len(events)-1]
	}
	if bytes.HasPrefix(data, []byte("{")) {
		err = json.Unmarshal(data, &a)
	}
	return response.StatusCode, a, err
}

// request sends a request on the revision the caller speaks.
func (c *caller) request(ctx context.Context, method, name, params string) (int, answer, error) {
	if c.session != "" {
		return c.send(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s}}`, method, params))
	}
	if params != "" {
		params = "," + params
	}
	headers := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		headers = append(headers, "Mcp-Name", name)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{"_meta":{%s}%s}}`, method, modernMeta, params)
	return c.send(ctx, body, headers...)
}

// tool calls a tool.
func (c *caller) tool(tool string, args map[string]any) toolResult {
	c.t.Helper()
	result, err := c.tryTool(c.t.Context(), tool, args)
	if err != nil {
		c.t.Errorf("%s %v: %v", tool, args, err)
	}
	return result
}

// load loads the demo skill, which must not be refused.
func (c *caller) load() {
	c.t.Helper()
	if got := c.tool("load_skill", map[string]any{"name": "demo"}); got.IsError {
		c.t.Errorf("load_skill = %s", got.text())
	}
}

// script runs a script of the demo skill.
func (c *caller) script(name string, args ...string) toolResult {
	c.t.Helper()
	return c.tool("run_skill_script", demoScript(name, args...))
}

func (c *caller) tryTool(ctx context.Context, tool string, args map[string]any) (toolResult, error) {
	params := fmt.Sprintf(`"name":%q,"arguments":%s`, tool, toJSON(args))
	status, a, err := c.request(ctx, "tools/call", tool, params)
	if err != nil {
		return toolResult{}, err
	}
	if a.Error != nil || a.Result == nil {
		return toolResult{}, fmt.Errorf("status %d, error %+v", status, a.Error)
	}
	var result toolResult
	err = json.Unmarshal(a.Result, &result)
	return result, err
}

// underLimit are the words that begin a command with a limit of bash's ulimit.
func underLimit(t testing.TB, limit string) []string {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("missing capability: bash, for its ulimit")
	}
	return []string{"bash", "-c", "ulimit " + limit + `; exec "$0" "$@"`}
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("e2e: a value that is no JSON")
	}
	return string(b)
}

// tokenFile writes a token file in which the token of each principal is its name and "-token".
func tokenFile(t testing.TB, principals ...string) string {
	t.Helper()
	var text strings.Builder
	for _, name := range principals {
		sum := sha256.Sum256([]byte(name + "-token"))
		fmt.Fprintf(&text, "%s: %s\n", name, hex.EncodeToString(sum[:]))
	}
	return written(t, "tokens", text.String())
}

// written writes a file that only its owner can read, in a directory of its own.
func written(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tree writes a skills root from paths and contents.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	return testtree.New(t, files)
}

// demoSkill is a skill for tests: a reference, a binary and scripts.
func demoSkill() map[string]string {
	return map[string]string{
		"demo/SKILL.md":            "---\nname: demo\ndescription: A skill for tests.\n---\n# Demo\n\nDo it.\n",
		"demo/references/notes.md": "Notes: äöü €\n",
		"demo/assets/blob.bin":     "\x00\x01\x02",
		"demo/scripts/ok.sh":       "#!/bin/bash\necho ran-ok \"$@\"\n",
		"demo/scripts/other.sh":    "#!/bin/bash\necho ran-other\n",
		"demo/scripts/sleep.sh":    "#!/bin/bash\n# " + sleepMark + "\necho started\nsleep 60\n",
		"demo/scripts/fail.sh":     "#!/bin/bash\necho out; echo err >&2; exit 7\n",
	}
}

// demoScript are the arguments of a run of one of its scripts.
func demoScript(name string, args ...string) map[string]any {
	arguments := map[string]any{"skill": "demo", "path": "scripts/" + name}
	if args != nil {
		arguments["args"] = args
	}
	return arguments
}

// demo serves the demo skill, some of whose scripts may run.
func demo(t testing.TB, scripts ...string) []string {
	t.Helper()
	return allowRun(tree(t, demoSkill()), scripts...)
}

// allowRun are the flags under which scripts of the demo skill of a root may run.
func allowRun(root string, scripts ...string) []string {
	args := []string{"--skills-root", "builtin=" + root, "--allow-tool", "run_skill_script",
		"--prompt-slot-role", "direct-command"}
	for _, script := range scripts {
		args = append(args, "--allow-skill-script", "demo:scripts/"+script)
	}
	return args
}

// needSandbox skips, or fails where CI demands it, when no backend can isolate the demo skill's script here.
func needSandbox(t testing.TB, c interface {
	script(name string, args ...string) toolResult
}) {
	t.Helper()
	needSandboxOf(t, c.script("ok.sh"))
}

// needSandboxOf is needSandbox for a run that has been tried.
func needSandboxOf(t testing.TB, probe toolResult) {
	t.Helper()
	if strings.Contains(probe.text(), `"sandbox_unavailable"`) {
		skipSandbox(t, probe.text())
	}
}

// skipSandbox skips, or fails where CI demands it, because no backend can isolate here.
func skipSandbox(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
		t.Fatalf("no sandbox backend works here: %s", why)
	}
	t.Skipf("missing capability: a sandbox backend that can isolate: %s", why)
}
