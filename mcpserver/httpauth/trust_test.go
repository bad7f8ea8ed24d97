package httpauth

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// A token file that is not trusted any more lets nobody in, although it did not change, and the log
// says why.
func TestTokenFileTrust(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, path, "alice: "+hashOf("a1")+"\n")
	var untrusted error
	var log bytes.Buffer
	cfg := Config{TokenFile: path, Trust: func(fs.FileInfo) error { return untrusted }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if name, _ := ask(a, "Bearer a1"); name != "alice" {
		t.Fatalf("let in as %q, want alice", name)
	}
	untrusted = errors.New("others can write it")
	for range 2 {
		if name, response := ask(a, "Bearer a1"); name != "" || response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("let in as %q, want 503", name)
		}
	}
	if !strings.Contains(log.String(), "others can write it") {
		t.Errorf("log = %s", &log)
	}
	if _, err := New(cfg); !errors.Is(err, untrusted) {
		t.Errorf("New = %v, want %v", err, untrusted)
	}
	untrusted = nil
	if name, _ := ask(a, "Bearer a1"); name != "alice" {
		t.Errorf("trusted again: let in as %q, want alice", name)
	}
}
