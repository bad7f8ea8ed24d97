package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// TestDropUsed finds the digests of trees in the records of sessions, wherever they stand.
func TestDropUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	used, unused := digest.FromString("used"), digest.FromString("unused")
	for name, text := range map[string]string{
		"at the end":      `{"tree":"` + used.String(),
		"alone":           used.Encoded(),
		"over a boundary": strings.Repeat("x", 1<<16-10) + used.Encoded() + "\n" + strings.Repeat("y", 1<<16),
		"after digits":    strings.Repeat("a", 100) + "\n" + used.String() + `"}`,
		"longer":          "a" + unused.Encoded() + " " + unused.Encoded() + "0 " + used.Encoded(),
	} {
		session := filepath.Join(dir, name, "ses_1")
		if err := os.MkdirAll(session, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(session, "events.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		trees := map[digest.Digest]bool{used: true, unused: true}
		if err := dropUsed(t.Context(), filepath.Join(dir, name), trees); err != nil || trees[used] || !trees[unused] {
			t.Errorf("%s: left %v, %v", name, trees, err)
		}
	}
	trees := map[digest.Digest]bool{used: true}
	if err := dropUsed(t.Context(), filepath.Join(dir, "nowhere"), trees); err != nil || len(trees) != 1 {
		t.Errorf("without sessions: left %v, %v", trees, err)
	}
}
