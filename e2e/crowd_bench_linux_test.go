package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

type stdioCrowd struct {
	mu      sync.Mutex
	in      io.Writer
	answers map[string]chan string // by id
}

func crowdOnStdio(b *testing.B, args ...string) crowdClient {
	p := serve(b, args...)
	p.initialize()
	c := &stdioCrowd{in: p.in, answers: map[string]chan string{}}
	go func() {
		lines := bufio.NewScanner(p.out)
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

type httpCrowd struct{ *caller }

func crowdOnHTTP(b *testing.B, args ...string) crowdClient {
	s := serveHTTP(b, args...)
	s.client = http.DefaultClient
	return httpCrowd{s.open("")}
}

func (c httpCrowd) call(line string) string {
	response, err := c.do(context.Background(), "POST", line)
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
