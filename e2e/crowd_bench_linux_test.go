package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/testtree"
)

// BenchmarkPingInCrowd has two hundred calls of a script made at once, and pings one after the other
// until all are answered. It reports how long the pings took in milliseconds: the median, that of which
// one in a hundred takes longer, and the longest.
func BenchmarkPingInCrowd(b *testing.B) {
	for name, connect := range map[string]func(*testing.B, ...string) crowdClient{"stdio": crowdOnStdio, "http": crowdOnHTTP} {
		b.Run(name, func(b *testing.B) {
			c := connect(b, crowdTree(b)...)
			c.call(`{"jsonrpc":"2.0","id":"load","method":"tools/call","params":{"name":"load_skill","arguments":{"name":"demo"}}}`)
			if text := c.call(crowdCall(1, "ok")); !strings.Contains(text, "ran-ok") {
				b.Skipf("missing capability: a sandbox backend that can isolate: %s", text)
			}
			var took []time.Duration
			for b.Loop() {
				took = append(took, pingInCrowd(b, c)...)
			}
			slices.Sort(took)
			for name, at := range map[string]int{"p50-ms": len(took) / 2, "p99-ms": len(took) * 99 / 100, "max-ms": len(took) - 1} {
				b.ReportMetric(took[at].Seconds()*1000, name)
			}
			b.ReportMetric(float64(len(took))/float64(b.N), "pings/op")
		})
	}
}

// crowdClient makes a call and returns its answer. It is safe for concurrent use.
type crowdClient interface{ call(line string) string }

func pingInCrowd(b *testing.B, c crowdClient) (took []time.Duration) {
	var calls sync.WaitGroup
	for id := range crowd {
		calls.Go(func() {
			if text := c.call(crowdCall(1000+id, "ok")); !strings.Contains(text, "ran-ok") {
				b.Errorf("call = %s", text)
			}
		})
	}
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }()
	for {
		begin := time.Now()
		if text := c.call(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`); !strings.Contains(text, `"result":{}`) {
			b.Errorf("ping = %s", text)
		}
		took = append(took, time.Since(begin))
		select {
		case <-done:
			return took
		default:
		}
	}
}

// crowdTree writes the skill, and returns the server's options.
func crowdTree(b *testing.B) []string {
	b.Helper()
	dir := b.TempDir()
	testtree.Write(b, dir, demoSkill())
	return append(allowRun(dir, "ok.sh"), "--sandbox", "native")
}

// crowdServe starts a server whose state is removed although stored trees are read-only.
func crowdServe(b *testing.B, args ...string) *exec.Cmd {
	b.Helper()
	cmd := exec.Command(binary, append([]string{"serve", "--state", b.TempDir(), "--log-format", "json"}, args...)...)
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

type stdioCrowd struct {
	mu      sync.Mutex
	in      io.Writer
	answers map[string]chan string // by id
}

func crowdOnStdio(b *testing.B, args ...string) crowdClient {
	cmd := crowdServe(b, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := &stdioCrowd{in: in, answers: map[string]chan string{}}
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var a answer
			if json.Unmarshal(lines.Bytes(), &a) == nil && a.ID != nil {
				c.mu.Lock()
				c.answers[string(a.ID)] <- lines.Text()
				c.mu.Unlock()
			}
		}
	}()
	c.call(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`)
	return c
}

func (c *stdioCrowd) call(line string) string {
	var m answer
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		return err.Error()
	}
	answered := make(chan string, 1)
	c.mu.Lock()
	c.answers[string(m.ID)] = answered
	_, err := io.WriteString(c.in, line+"\n")
	c.mu.Unlock()
	if err != nil {
		return err.Error()
	}
	return <-answered
}

type httpCrowd struct{ url, session string }

func crowdOnHTTP(b *testing.B, args ...string) crowdClient {
	cmd := crowdServe(b, append(args, "--http", "127.0.0.1:0", "--insecure-no-auth")...)
	out, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := &httpCrowd{}
	log := bufio.NewScanner(out)
	for c.url == "" && log.Scan() {
		if found := listening.FindStringSubmatch(log.Text()); found != nil {
			c.url = "http://" + found[1] + "/mcp"
		}
	}
	go io.Copy(io.Discard, out)
	response, err := c.post(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`)
	if err != nil {
		b.Fatal(err)
	}
	response.Body.Close()
	c.session = response.Header.Get("Mcp-Session-Id")
	return c
}

func (c *httpCrowd) post(line string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(context.Background(), "POST", c.url, strings.NewReader(line))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	return http.DefaultClient.Do(r)
}

func (c *httpCrowd) call(line string) string {
	response, err := c.post(line)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Sprintf("%s: %v", text, err)
	}
	return string(text)
}
