package wire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// 500 calls with 20 notifications each, many at once: all come, in order, before their answers.
func TestHTTPProgressIsNeverLost(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	session := p.open()
	const clients, each = 20, 20
	calls := nightly.Size(8, 25)
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for i := range calls {
				id := fmt.Sprint(client*calls + i)
				body, headers := progressLine(id, id, each), []string{"Mcp-Session-Id", session}
				if client%2 == 1 {
					meta := strings.TrimSuffix(modernMeta, "}") + `,"progressToken":` + id + `}`
					body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s,"name":"progress","arguments":{"n":%d}}}`, id, meta, each)
					headers = modernHeaders("tools/call", "progress")
				}
				response, err := p.try(t.Context(), "POST", "/mcp", body, headers...)
				if err != nil {
					t.Error(err)
					return
				}
				o := &order{t: t, progress: make(map[string]int)}
				for lines := bufio.NewScanner(response.Body); lines.Scan(); {
					if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
						o.see(data, each)
					}
				}
				if o.answered != 1 || o.progress[id] != each {
					t.Errorf("call %s: %d answers, %d of %d notifications", id, o.answered, o.progress[id], each)
				}
			}
		})
	}
	wg.Wait()
}

// pipeListener accepts the server's ends of pipes.
type pipeListener struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), ended: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// Who sends a byte a second is cut off: in the middle of a header after headerTimeout, of a body
// after bodyTimeout. Who sends nothing between requests, after idleTimeout; a stranger, at once.
func TestHTTPSlowClients(t *testing.T) {
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for _, tt := range []struct {
		name, first, drip string
		most              time.Duration
		want              string
	}{
		{"header", head, "X-Slow: " + strings.Repeat("x", 1000), headerTimeout, ""},
		{"body", head + "Content-Length: 10000\r\n\r\n", strings.Repeat(" ", 1000), bodyTimeout, ""},
		{"chunks", head + "Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\n \r\n", 1000), bodyTimeout, ""},
		{"between requests", head + "Content-Length: 2\r\n\r\n{}", "", idleTimeout, "HTTP/1.1 400 "},
		{"stranger", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "", 0, "HTTP/1.1 200 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, err := NewHTTP(&testServer().Dispatcher, HTTPOptions{})
				if err != nil {
					t.Fatal(err)
				}
				listener := newPipeListener()
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- h.Serve(ctx, listener) }()
				conn, start := listener.dial(), time.Now()
				answer := make(chan string, 1)
				go func() {
					data, _ := io.ReadAll(conn)
					answer <- string(data)
				}()
				io.WriteString(conn, tt.first)
				for i := 0; i < len(tt.drip); i++ {
					time.Sleep(time.Second)
					if _, err := conn.Write([]byte{tt.drip[i]}); err != nil {
						break
					}
				}
				got := <-answer
				if took := time.Since(start); took < tt.most || took > tt.most+5*time.Second {
					t.Errorf("cut off after %v, want %v", took, tt.most)
				}
				if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
					t.Errorf("answer = %q, want %s", got, tt.want)
				}
				conn.Close()
				stop()
				if err := <-ended; err != nil {
					t.Errorf("Serve = %v", err)
				}
			})
		})
	}
}
