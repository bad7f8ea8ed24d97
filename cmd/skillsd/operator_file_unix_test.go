//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// A file that says who is let in, or signs, and that others can write is refused with what mends it.
func TestOperatorFileOwner(t *testing.T) {
	dir := t.TempDir()
	token, key := filepath.Join(dir, "tokens"), filepath.Join(dir, "key")
	write(t, token, "alice: "+strings.Repeat("ab", 32)+"\n")
	if code, _, stderr := run(t, "session", "keygen", key); code != exit.OK {
		t.Fatal(stderr)
	}
	state := "--state=" + filepath.Join(dir, "state")
	flags := map[string][]string{
		token: {"serve", state, "--no-default-roots", "--http", "127.0.0.1:0", "--auth-token-file", token},
		key:   {"serve", state, "--no-default-roots", "--sign-key", key},
	}
	for path, args := range flags {
		for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			code, _, stderr := run(t, args...)
			if code != exit.Usage || !strings.Contains(stderr, "others can write it") || !strings.Contains(stderr, "hint: run: chmod go-w "+path) {
				t.Errorf("%s of mode %o: exit %d, %s", path, mode, code, stderr)
			}
		}
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := run(t, flags[key]...)
	if code != exit.OK || !strings.Contains(stderr, "others can read the key "+key+" of --sign-key") {
		t.Errorf("a key that others can read: exit %d, %s", code, stderr)
	}
	cert := filepath.Join(dir, "cert")
	write(t, cert, "")
	if err := os.Chmod(key, 0o666); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = run(t, "serve", state, "--no-default-roots", "--http", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
	if code != exit.Usage || !strings.Contains(stderr, "--tls-key: read "+key+": others can write it") {
		t.Errorf("--tls-key: exit %d, %s", code, stderr)
	}
}
