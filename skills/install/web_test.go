package install

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
)

// server is a web server with files that may change.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte
	asked []string
}

func newServer(t *testing.T) *server {
	s := &server{files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, r.URL.Path)
		data, ok := s.files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write(data)
	}))
	t.Cleanup(s.Close)
	return s
}

// put serves bytes under a path and returns their digest.
func (s *server) put(path string, data []byte) digest.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = data
	return digest.FromBytes(data)
}

// tarball packs files.
func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))})
		if err == nil {
			_, err = w.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zipOf packs files.
func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestInstallURL(t *testing.T) {
	s, m := newServer(t), newMachine(t)
	first := s.put("/pack-1.tar.gz", tarball(t, map[string]string{
		"pack-1/a/SKILL.md": skillText("a"), "pack-1/b/SKILL.md": skillText("b"), "pack-1/b/x.md": "one"}))
	source := s.URL + "/pack-1.tar.gz"
	m.install(Request{Source: source, Subdir: "pack-1/b"})
	i := m.open()
	b := i.Lock().Find("b")
	want := Origin{Kind: KindURL, Source: source, Digest: first, Subdir: "pack-1/b", Path: "pack-1/b"}
	if b == nil || b.Origin != want {
		t.Fatalf("entry = %+v, want origin %+v", b, want)
	}
	// An archive with other bytes and the same files changes the digest alone.
	again := s.put("/pack-1.tar.gz", tarball(t, map[string]string{
		"pack-1/b/SKILL.md": skillText("b"), "pack-1/b/x.md": "one"}))
	updateAll(t, i)
	if e := i.Lock().Find("b"); e.Tree != b.Tree || e.Origin.Digest != again || e.Previous != nil {
		t.Errorf("entry = %+v", e)
	}
	second := s.put("/pack-1.tar.gz", tarball(t, map[string]string{
		"pack-1/b/SKILL.md": skillText("b"), "pack-1/b/x.md": "two"}))
	updateAll(t, i)
	e := i.Lock().Find("b")
	if e.Tree == b.Tree || e.Origin.Digest != second || e.Previous.Digest != again {
		t.Errorf("entry = %+v, previous %+v", e, e.Previous)
	}
	if err := edited(t, i.Rollback, "b"); err != nil {
		t.Fatal(err)
	}
	e = i.Lock().Find("b")
	if e.Tree != b.Tree || e.Origin.Digest != again || e.Previous.Digest != second {
		t.Errorf("entry = %+v, previous %+v", e, e.Previous)
	}
	verified(t, i)
	i.Close()
	// Elsewhere the server has only the second version, so the first cannot be had.
	other := newMachine(t)
	there := other.open()
	if _, err := synced(t.Context(), there, Sync{Lock: e.lockOf()}); err == nil ||
		!strings.Contains(err.Error(), "does not match the lock file") {
		t.Errorf("sync = %v", err)
	}
	s.put("/pack-1.tar.gz", tarball(t, map[string]string{
		"pack-1/b/SKILL.md": skillText("b"), "pack-1/b/x.md": "one"}))
	if _, err := synced(t.Context(), there, Sync{Lock: e.lockOf()}); err != nil {
		t.Error(err)
	}
	verified(t, there)
}

// lockOf returns a lock file with one entry.
func (e *Entry) lockOf() *Lock { return &Lock{Skills: []*Entry{e}} }

func TestInstallURLPinned(t *testing.T) {
	s, m := newServer(t), newMachine(t)
	data := zipOf(t, map[string]string{"SKILL.md": skillText("a")})
	good := s.put("/a.zip", data)
	i := m.open()
	err := apply(t.Context(), i, Request{Source: s.URL + "/a.zip", Digest: digest.FromString("x")})
	if err == nil || !strings.Contains(err.Error(), "does not match --sha256") || len(i.Lock().Skills) > 0 {
		t.Errorf("error = %v", err)
	}
	if err := apply(t.Context(), i, Request{Source: s.URL + "/a.zip", Digest: good}); err != nil {
		t.Fatal(err)
	}
	if e := i.Lock().Find("a"); e == nil || e.Origin.Ref != good.String() || e.Origin.Digest != good {
		t.Errorf("entry = %+v", e)
	}
	// An update accepts no other bytes.
	s.put("/a.zip", zipOf(t, map[string]string{"SKILL.md": skillText("a") + "More.\n"}))
	plan, err := i.Update(t.Context(), nil, Moves{}, Access{})
	if err != nil || len(plan.Refused) != 1 || !strings.Contains(plan.Refused[0].Reason, "--sha256") {
		t.Errorf("update = %+v, %v", plan, err)
	}
	plan.Close()
	for _, req := range []Request{{Source: t.TempDir(), Digest: good}, {Source: s.URL + "/a", Digest: good},
		{Source: s.URL + "/a.zip", Digest: "sha256:12"}, {Source: s.URL + "/a.zip", Ref: "main"},
		{Source: "http://example.com/a.zip"}, {Source: "https://example.com/a.zip?x=y"}} {
		_, err := i.Add(t.Context(), req)
		if _, ok := errors.AsType[*SourceError](err); !ok {
			t.Errorf("%+v: error = %v", req, err)
		}
	}
}

func TestWebHostile(t *testing.T) {
	s, m := newServer(t), newMachine(t)
	s.put("/up.tar.gz", tarball(t, map[string]string{"SKILL.md": skillText("a"), "../x": "y"}))
	s.put("/text.tar", []byte("no archive"))
	s.put("/text.zip", []byte("no archive"))
	i := m.open()
	before := tree(t, m.state)
	for _, name := range []string{"/up.tar.gz", "/text.tar", "/text.zip", "/gone.zip"} {
		if err := apply(t.Context(), i, Request{Source: s.URL + name}); err == nil {
			t.Errorf("%s was installed", name)
		}
	}
	if after := tree(t, m.state); len(after) != len(before) {
		t.Errorf("left %v", after)
	}
}
