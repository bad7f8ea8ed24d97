//go:build unix

package main

import (
	"errors"
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
	if code != exit.OK || !strings.Contains(stderr, "other users can read the key "+key+" of --sign-key") {
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

// State that others can write, or that belongs to somebody else, is refused before anything of it is used.
func TestStateOwner(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(state string) error
		want string
	}{
		{"", func(state string) error { return os.Chmod(state, 0o777) }, "others can write it (mode 0777)"},
		{"trees", func(state string) error { return os.Chmod(state, 0o770) }, "others can write it (mode 0770)"},
		{"installed", func(state string) error { return os.Lchown(state, 54321, -1) }, "it belongs to another user"},
		{"sessions", func(state string) error {
			if err := os.Remove(state); err != nil {
				return err
			}
			return errors.Join(os.Symlink(t.TempDir(), state), os.Lchown(state, 54321, -1))
		}, "it is a link of another user"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			dir := filepath.Join(state, tt.name)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			switch err := tt.make(dir); {
			case errors.Is(err, os.ErrPermission):
				t.Skip("missing capability: giving a file to another user")
			case err != nil:
				t.Fatal(err)
			}
			for _, command := range []string{"serve", "doctor", "install"} {
				args := []string{command, "--state", state}
				if command == "install" {
					args = append(args, "../../testdata/skills/text-stats")
				} else {
					args = append(args, "--no-default-roots")
				}
				if code, out, stderr := run(t, args...); code == exit.OK || !strings.Contains(out+stderr, tt.want) {
					t.Errorf("%s: exit %d, %s%s; want %q", command, code, out, stderr, tt.want)
				}
			}
		})
	}
}
