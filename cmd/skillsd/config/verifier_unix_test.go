//go:build unix

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever can put another program in the place of the verifier decides who signed, as whoever can write it.
func TestVerifierProgram(t *testing.T) {
	top := t.TempDir()
	// What lies in a directory that nobody else can enter, nobody else can exchange.
	if err := os.Chmod(filepath.Dir(top), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"own":      {func(string) error { return nil }, ""},
		"writable": {func(dir string) error { return os.Chmod(dir+"/bin/verifier", 0o775) }, "others can write it"},
		"in a shared directory": {func(dir string) error { return os.Chmod(dir+"/bin", 0o777) },
			"everyone can replace it"},
		"below a shared directory": {func(dir string) error { return os.Chmod(dir, 0o777) },
			"everyone can replace it"},
		"behind a link in a shared directory": {func(dir string) error {
			return errors.Join(os.Rename(dir+"/bin", dir+"/real"), os.Mkdir(dir+"/bin", 0o755),
				os.Symlink("../real/verifier", dir+"/bin/verifier"), os.Chmod(dir+"/bin", 0o777))
		}, "everyone can replace it"},
		"missing": {func(dir string) error { return os.Remove(dir + "/bin/verifier") }, "neither in the directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(top, strings.ReplaceAll(name, " ", "-"))
			if err := errors.Join(os.MkdirAll(dir+"/bin", 0o755),
				os.WriteFile(dir+"/bin/verifier", []byte("#!/bin/sh\n"), 0o755), test.change(dir)); err != nil {
				t.Fatal(err)
			}
			p := &Process{}
			p.Cfg.Keys.Verifier = dir + "/bin/verifier"
			got, err := p.VerifierProgram()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("VerifierProgram = %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
