package e2e

import (
	"bytes"
	"os"
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
		s := serve(t, "--state", state, "--no-default-roots", "--http", "127.0.0.1:0").site()
		token, err := os.ReadFile(file)
		if err != nil || len(token) < 26 || first != nil && !bytes.Equal(first, token) {
			t.Fatalf("token %q, %v, was %q", token, err, first)
		}
		first = token
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		for bearer, want := range map[string]int{"": 401, "Bearer x" + string(token): 401, "Bearer " + string(token): 200} {
			if status, _ := s.as("").status("POST", introduction(""), "Authorization", bearer); status != want {
				t.Errorf("with %q: %d, want %d", bearer, status, want)
			}
		}
		said := s.stderr.String()
		if strings.Contains(said, string(token)) || !strings.Contains(said, file) || !strings.Contains(said, "--http "+s.url+" --token-env SKILLSD_TOKEN") {
			t.Errorf("said %s", said)
		}
		s.in.Close()
		s.cmd.Process.Kill()
	}
}
