package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"plain": "s3cret", "line": "s3cret\n", "windows": "s3cret\r\n",
		"lines": "a\nb\n", "empty": "\n", "nul": "a\x00b", "long": strings.Repeat("x", maxSecret+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &Process{Env: func(name string) (string, bool) {
		value, ok := map[string]string{"SOURCE": "from env", "EMPTY": ""}[name]
		return value, ok
	}}
	a.Cfg.Keys.Secrets = map[string]SecretKey{"ENV": {Env: "SOURCE"}, "UNSET": {Env: "NONE"},
		"EMPTY": {Env: "EMPTY"}, "dir": {File: dir}, "missing": {File: filepath.Join(dir, "x")}}
	for _, name := range []string{"plain", "line", "windows", "lines", "empty", "nul", "long"} {
		a.Cfg.Keys.Secrets[name] = SecretKey{File: filepath.Join(dir, name)}
	}
	for name, want := range map[string]string{
		"ENV": "from env", "UNSET": "", "EMPTY": "", "other": "", "dir": "", "missing": "",
		"plain": "s3cret", "line": "s3cret", "windows": "s3cret", "lines": "a\nb", "empty": "", "nul": "",
		"long": "",
	} {
		got, err := a.Secret(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("secret(%s) = %.20q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := a.Secret("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	// A secret that is replaced counts at its next use.
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Secret("plain"); got != "another" || err != nil {
		t.Errorf("a secret that was replaced = %q, %v", got, err)
	}
}
