package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var goreleaser = flag.String("goreleaser", "", "the program GoReleaser, which `make bin/goreleaser` builds")

// TestInstallGoReleaser has GoReleaser check its configuration, make a snapshot, and publish the release to a
// GitHub on this machine: a draft with exactly the files that sha256sums names, byte for byte, and sha256sums.
func TestInstallGoReleaser(t *testing.T) {
	r := ready(t)
	if _, err := os.Stat(*goreleaser); err != nil {
		t.Skip("goreleaser is missing: `make bin/goreleaser` builds it")
	}
	git, clone := need(t, "git"), cloneWith(t, r)
	in := func(name string, args ...string) string {
		cmd := command(t, t.TempDir(), name, args...)
		cmd.Dir = clone
		// No token of a developer is used.
		cmd.Env = append(cmd.Env, "GITHUB_TOKEN=stub", "GITLAB_TOKEN=", "GITEA_TOKEN=",
			"GIT_CONFIG_GLOBAL="+os.DevNull)
		return output(t, cmd)
	}
	in(git, "init", "--quiet")
	in(git, "add", ".")
	in(git, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message", "all")
	in(git, "tag", r.tag())
	in(git, "remote", "add", "origin", repository)
	in(*goreleaser, "check")
	in(*goreleaser, "release", "--snapshot", "--clean")
	hub := newGitHub(t)
	text, err := os.ReadFile(filepath.Join(clone, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "goreleaser.yaml")
	text = fmt.Appendf(text, "\ngithub_urls:\n  api: %[1]s/api/v3/\n  upload: %[1]s/api/uploads/\n"+
		"  download: %[1]s/\n", hub.url)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	in(*goreleaser, "release", "--clean", "--config", config)
	want := map[string]string{}
	for line := range strings.Lines(string(r.read(t, checksums))) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		base := path.Base(name)
		if name == "manifests/scoop/skillsd.json" {
			base = "scoop.json"
		}
		want[base] = digest
	}
	if want[checksums], err = r.digest(checksums); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(hub.assets, want) {
		t.Errorf("uploaded are %v, want %v", hub.assets, want)
	}
	if !hub.release.Draft || hub.release.Tag != r.tag() ||
		!strings.Contains(hub.release.Body, "gh attestation verify") {
		t.Errorf("the release is %+v", hub.release)
	}
}

// cloneWith makes a directory with what GoReleaser reads of the repository, and a release.
func cloneWith(t *testing.T, r *release) string {
	t.Helper()
	clone := t.TempDir()
	for _, name := range []string{".goreleaser.yaml", ".gitignore"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(clone, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names, err := r.made()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, checksums) {
		from, err := filepath.Abs(filepath.Join(r.out, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(clone, "bin", "release", filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Symlink(from, to)); err != nil {
			t.Fatal(err)
		}
	}
	return clone
}

// gitHub takes one release, by the part of GitHub's API for that.
type gitHub struct {
	url     string
	mu      sync.Mutex
	release struct {
		ID    int    `json:"id"`
		Tag   string `json:"tag_name"`
		Body  string `json:"body"`
		Draft bool   `json:"draft"`
	}
	assets map[string]string // digests by name
}

func newGitHub(t *testing.T) *gitHub {
	t.Helper()
	hub := &gitHub{assets: map[string]string{}}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	hub.url = server.URL
	const releases = "/repos/skillsd/skillsd/releases"
	answer := func(w http.ResponseWriter, code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		w.Write(jsonText(v))
	}
	edit := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, request *http.Request) {
			hub.mu.Lock()
			defer hub.mu.Unlock()
			if err := json.NewDecoder(request.Body).Decode(&hub.release); err != nil {
				t.Error(err)
			}
			hub.release.ID = 1
			answer(w, code, hub.release)
		}
	}
	get := func(path string, v any) {
		mux.HandleFunc("GET /api/v3"+path, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, v) })
	}
	get("/rate_limit", map[string]any{"resources": map[string]any{"core": map[string]int{"remaining": 5000}}})
	get(releases, []any{})
	mux.HandleFunc("POST /api/v3"+releases, edit(http.StatusCreated))
	mux.HandleFunc("PATCH /api/v3"+releases+"/1", edit(http.StatusOK))
	mux.HandleFunc("POST /api/uploads"+releases+"/1/assets", func(w http.ResponseWriter, request *http.Request) {
		sum := sha256.New()
		if _, err := io.Copy(sum, request.Body); err != nil {
			t.Error(err)
		}
		hub.mu.Lock()
		defer hub.mu.Unlock()
		name := request.URL.Query().Get("name")
		if hub.assets[name] != "" {
			t.Errorf("%s is uploaded twice", name)
		}
		hub.assets[name] = hex.EncodeToString(sum.Sum(nil))
		answer(w, http.StatusCreated, map[string]any{"id": len(hub.assets), "name": name})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) {
		t.Logf("GitHub has no %s %s", request.Method, request.URL)
		answer(w, http.StatusNotFound, map[string]string{"message": "Not Found"})
	})
	return hub
}
