package e2e

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// On loopback a server makes a token for the user who started it, since other users of the machine reach it
// too; the next server has the same one. The log says where it is, and not what it is.
func TestHTTPMakesAToken(t *testing.T) {
	state := t.TempDir()
	file := filepath.Join(state, "http-token")
	var first []byte
	for range 2 {
		p := start(t, exec.Command(binary, "serve", "--state", state, "--log-format", "json", "--no-default-roots", "--http", "127.0.0.1:0"))
		s := &site{process: p, state: state, client: &http.Client{Timeout: patience}}
		s.url = "http://" + s.addr() + "/mcp"
		token, err := os.ReadFile(file)
		if err != nil || len(token) < 26 || first != nil && !bytes.Equal(first, token) {
			t.Fatalf("token %q, %v, was %q", token, err, first)
		}
		first = token
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		for bearer, want := range map[string]int{"": 401, "Bearer x" + string(token): 401, "Bearer " + string(token): 200} {
			request, err := http.NewRequest("POST", s.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Accept", "application/json, text/event-stream")
			if bearer != "" {
				request.Header.Set("Authorization", bearer)
			}
			response, err := s.client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("with %q: %d, want %d", bearer, response.StatusCode, want)
			}
		}
		said := p.stderr.String()
		if strings.Contains(said, string(token)) || !strings.Contains(said, file) || !strings.Contains(said, "--http "+s.url+" --token-env SKILLSD_TOKEN") {
			t.Errorf("said %s", said)
		}
		p.in.Close()
		p.cmd.Process.Kill()
	}
}
