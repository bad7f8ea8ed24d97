//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// What others can write, or own, says nothing here.
func TestConfigOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, "log: {level: warn}\n")
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o644: true, 0o400: true, 0o620: false, 0o602: false, 0o666: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := run(t, "config", "show", "--config", path)
		if want := map[bool]int{true: exit.OK, false: exit.Usage}[good]; code != want {
			t.Errorf("mode %o: exit %d, want %d: %s", mode, code, want, stderr)
		}
		if _, err := secretIn(path); (err == nil) != good {
			t.Errorf("a secret of mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(path), "link.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run(t, "config", "show", "--config", link); code != exit.OK {
		t.Errorf("a link to one's own file: %s", stderr)
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Skipf("missing capability: giving a file to another user: %v", err)
	}
	for _, name := range []string{path, link} {
		if code, _, stderr := run(t, "config", "show", "--config", name); code != exit.Usage || !strings.Contains(stderr, "it belongs to another user") {
			t.Errorf("a file of another user: exit %d, %s", code, stderr)
		}
	}
	if _, err := secretIn(path); err == nil {
		t.Error("a secret of another user is read")
	}
}

// A pipe in the place of a file is refused, not waited for.
func TestConfigPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("missing capability: named pipes: %v", err)
	}
	if code, _, stderr := run(t, "config", "show", "--config", pipe); code != exit.Usage || !strings.Contains(stderr, "not a regular file") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if _, err := secretIn(pipe); err == nil {
		t.Error("a secret is read from a pipe")
	}
}

// secretIn reads a secret whose source is a file.
func secretIn(path string) (string, error) {
	p := &config.Process{}
	p.Cfg.Keys.Secrets = map[string]config.SecretKey{"S": {File: path}}
	return p.Secret("S")
}
