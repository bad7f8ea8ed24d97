package cluster

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
)

// node listens as a server with a key does, and answers whoever is let in.
func node(t *testing.T, key string) (c *Cluster, url string) {
	t.Helper()
	c = &Cluster{logger: slog.New(slog.DiscardHandler)}
	if err := c.identify([]byte(key)); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.listener = listener
	c.Serving().Accept(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "let in")
	}))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, "https://" + listener.Addr().String()
}

// Who has the key of the cluster speaks for every principal, so nobody else is let in, and nobody else's
// server is sent anything.
func TestIdentity(t *testing.T) {
	own, others := strings.Repeat("k", leastKey), strings.Repeat("o", leastKey)
	server, url := node(t, own)
	stranger, strangers := node(t, others)
	anonymous := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(anonymous.CloseIdleConnections)
	// The stranger's client would take any server's word for its name.
	careless := stranger.others.Clone()
	careless.TLSClientConfig.VerifyConnection = nil
	t.Cleanup(careless.CloseIdleConnections)
	for name, tt := range map[string]struct {
		from  *http.Transport
		to    string
		letIn bool
	}{
		"same key":                     {server.others, url, true},
		"another key":                  {stranger.others, url, false},
		"another key, careless client": {careless, url, false},
		"no certificate":               {anonymous, url, false},
		"server with another key":      {server.others, strangers, false},
	} {
		answer, err := (&http.Client{Transport: tt.from}).Get(tt.to)
		text := []byte(nil)
		if err == nil {
			text, err = io.ReadAll(answer.Body)
			_ = answer.Body.Close()
		}
		if letIn := err == nil && string(text) == "let in"; letIn != tt.letIn {
			t.Errorf("%s: let in is %v, want %v: %q, %v", name, letIn, tt.letIn, text, err)
		}
	}
}
