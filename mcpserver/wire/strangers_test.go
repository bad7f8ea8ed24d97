package wire

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// dialed is a connection whose answers are read as they come.
type dialed struct {
	t    *testing.T
	conn net.Conn
	*bufio.Reader
}

func dial(t *testing.T, addr string) *dialed {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &dialed{t, conn, bufio.NewReader(conn)}
}

// get returns the status of the answer to a request, and whether the connection ends with it.
func (d *dialed) get(request string) (status int, ends bool) {
	d.t.Helper()
	io.WriteString(d.conn, request)
	r, err := http.ReadResponse(d.Reader, nil)
	if err != nil {
		d.t.Fatalf("no answer: %v", err)
	}
	defer r.Body.Close()
	io.Copy(io.Discard, r.Body)
	return r.StatusCode, r.Close
}

// Idle connections of strangers keep nobody out, and end; those on which somebody has authenticated stay.
func TestStrangersKeepNobodyOut(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) { o.MaxStrangers = 3 })
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	post := "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nMcp-Session-Id: " + p.open() + "\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\nContent-Length: 40\r\n\r\n" + ping
	if len(ping) != 40 {
		t.Fatal(len(ping))
	}
	known := dial(t, p.addr)
	if status, ends := known.get(post); status != 200 || ends {
		t.Fatalf("ping = %d, ends %v", status, ends)
	}
	var idle []*dialed
	for range 3 {
		idle = append(idle, dial(t, p.addr))
	}
	eventually(t, "there are as many strangers as may be", func() bool {
		_, strangers := p.h.conns.Open()
		return strangers == 3
	})
	if status, ends := dial(t, p.addr).get(post); status != 200 || ends {
		t.Errorf("ping on a new connection = %d, ends %v", status, ends)
	}
	if _, err := idle[0].ReadByte(); err != io.EOF && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the oldest connection of a stranger: %v", err)
	}
	if status, ends := idle[2].get("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); status != 200 || !ends {
		t.Errorf("a stranger's /healthz = %d, ends %v", status, ends)
	}
	if status, ends := known.get(post); status != 200 || ends {
		t.Errorf("ping on the known connection = %d, ends %v", status, ends)
	}
}

// There are no more connections than may be: each ends after its answer when most are taken, and one that is
// idle ends for a new one.
func TestConnectionsAreBounded(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) { o.MaxConnections = 4 })
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	post := "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nMcp-Session-Id: " + p.open() + "\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\nContent-Length: 40\r\n\r\n" + ping
	p.client.CloseIdleConnections()
	open := func(n int) {
		t.Helper()
		eventually(t, "connections are counted", func() bool {
			all, _ := p.h.conns.Open()
			return all == n
		})
	}
	open(0)
	var idle []*dialed
	for range 3 {
		idle = append(idle, dial(t, p.addr))
		if status, ends := idle[len(idle)-1].get(post); status != 200 || ends {
			t.Fatalf("ping = %d, ends %v", status, ends)
		}
	}
	silent := dial(t, p.addr)
	open(4)
	if status, _ := dial(t, p.addr).get(post); status != 200 {
		t.Errorf("ping on one connection more = %d", status)
	}
	// A connection is idle a moment after its answer, so any of them may be the one that was longest.
	ended := make(chan error, len(idle))
	for _, d := range idle {
		go func() {
			_, err := d.ReadByte()
			ended <- err
		}()
	}
	if err := await(t, ended); err != io.EOF && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection that was idle longest: %v", err)
	}
	if status, _ := silent.get(post); status != 200 {
		t.Errorf("ping on the connection that was silent = %d", status)
	}
}

func TestConnectionsEndWhenMostAreTaken(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) { o.MaxConnections = 4 })
	for range 3 {
		dial(t, p.addr)
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	post := "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n" + body
	if status, ends := dial(t, p.addr).get(post); status == 0 || !ends {
		t.Errorf("answer on the last connection = %d, ends %v", status, ends)
	}
}
