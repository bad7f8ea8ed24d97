package cluster

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store"
)

// Of those who publish at once, each knows what becomes of it: its skills count, or came before those that do,
// or it is refused.
func TestPublishAtOnce(t *testing.T) {
	nats, key := clustertest.Start(t, 1), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", leastKey)), 0o600); err != nil {
		t.Fatal(err)
	}
	trees, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer trees.Close()
	var locks []*install.Lock
	for _, text := range []string{"one", "other"} {
		files := []store.File{{Path: "SKILL.md", Size: int64(len(text)), Digest: digest.FromString(text)}}
		tree, err := trees.Put(t.Context(), files,
			func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte(text))), nil })
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, &install.Lock{Skills: []*install.Entry{{Name: "demo", Tree: tree.Digest, Files: files}}})
	}
	o := &config.Cluster{Servers: nats.URLs(), Replicas: 1, Key: key, Generation: 1}
	published := func(c *Catalogue) (sums []digest.Digest) {
		m, _, err := c.manifest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m.Locks
	}
	refused := 0
	for _, prefix := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		o.Prefix = prefix
		type outcome struct {
			sum digest.Digest
			err error
		}
		done := make(chan outcome)
		var c *Catalogue
		for _, lock := range locks {
			c, err = OpenCatalogue(t.Context(), o, true, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() {
				sum, err := c.Publish(t.Context(), lock, trees)
				done <- outcome{sum, err}
			}()
		}
		var said []digest.Digest
		for range locks {
			switch got := <-done; {
			case got.err == nil:
				said = append(said, got.sum)
			case strings.Contains(got.err.Error(), "another process published"):
				refused++
			default:
				t.Fatal(got.err)
			}
		}
		has := published(c)
		slices.Sort(has)
		slices.Sort(said)
		if !slices.Equal(has, said) {
			t.Errorf("%s: published %v, and there is %v", prefix, said, has)
		}
	}
	if refused == 0 {
		t.Log("none came between reading and writing")
	}
}
