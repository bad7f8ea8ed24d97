// Package e2e drives the real binary as its users do: from a shell, and as an MCP client over
// stdin and stdout.
package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// binary is the server under test, built once, or given where nothing can be built.
var binary string

// tags are those of the Makefile.
const tags = "-tags=grpcnotrace"

var built = flag.String("binary", "", "the server to test, instead of one that is built")

func TestMain(m *testing.M) {
	clustertest.Main()
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "skillsd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	flag.Parse()
	binary = *built
	if binary == "" {
		binary = filepath.Join(dir, "skillsd")
		build := exec.Command("go", "build", tags, "-o", binary, "../cmd/skillsd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as releases are: it is process 1 on foreign root file systems
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build skillsd: %v\n%s", err, out)
			return 1
		}
	}
	// The sandbox's helper runs as another user, who must be able to reach the binary.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Whoever runs the tests may have a configuration of their own.
	if err := errors.Join(os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")), os.Unsetenv("SKILLSD_CONFIG")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience bounds every wait for the server, and soon the wait for what would also end by itself, a minute
// after it began.
const patience, soon = 90 * time.Second, 30 * time.Second

// process is a running `skillsd serve` with its pipes.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *lockedBuffer
	exited chan error
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

// serve starts the server with a state directory of its own.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, exec.Command(binary, append([]string{"serve", "--state", t.TempDir(), "--log-format", "json"}, args...)...))
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stderr: &lockedBuffer{}, exited: make(chan error, 1)}
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

// answer is a JSON-RPC response.
type answer struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
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

// logged waits until the server has logged what matches and returns the first group.
func (p *process) logged(what *regexp.Regexp) string {
	p.t.Helper()
	var found []string
	if !p.stderr.until(func(text string) bool { found = what.FindStringSubmatch(text); return found != nil }) {
		p.t.Fatalf("the server did not log %s:\n%s", what, p.stderr)
	}
	return found[1]
}

// eventually asks until the answer is yes, where nothing tells of the change.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !yes(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// request sends a request and returns its response; notifications before it are passed over.
func (p *process) request(id int, method, params string) answer {
	p.t.Helper()
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
	for {
		line := p.receive()
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			p.t.Fatalf("the server wrote %q: %v", line, err)
		}
		if a.Method == "" && string(a.ID) == fmt.Sprint(id) {
			return a
		}
	}
}

// initialize does the handshake of 2025-11-25.
func (p *process) initialize() answer {
	p.t.Helper()
	a := p.request(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`)
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

// call calls a tool.
func (p *process) call(id int, tool string, args any) toolResult {
	p.t.Helper()
	return p.callWith(id, tool, args, "{}")
}

func (p *process) callWith(id int, tool string, args any, meta string) toolResult {
	p.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		p.t.Fatal(err)
	}
	a := p.request(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":%s}`, tool, raw, meta))
	if a.Error != nil {
		p.t.Fatalf("tools/call %s: %+v", tool, a.Error)
	}
	var result toolResult
	if err := json.Unmarshal(a.Result, &result); err != nil {
		p.t.Fatal(err)
	}
	return result
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

// tree writes a skills root from paths and contents.
func tree(t *testing.T, files map[string]string) string {
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
