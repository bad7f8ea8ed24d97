package sourcetest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/source/discovery"
	"github.com/skillsd/skillsd/skills/source/oci"
	"github.com/skillsd/skillsd/skills/source/web"
)

// Server is a server of this machine whose connections can be broken.
type Server struct {
	*httptest.Server
	mu      sync.Mutex
	answers int               // whole ones that are left before it breaks; negative: without end
	lies    map[string][]byte // answers in the place of others, by path
}

// NewServer starts a server.
func NewServer(t testing.TB, handler http.Handler) *Server {
	s := &Server{answers: -1, lies: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		broken, lie := s.answers == 0, s.lies[r.URL.Path]
		s.answers = max(s.answers-1, min(s.answers, 0))
		s.mu.Unlock()
		if broken {
			w = &half{ResponseWriter: w}
		}
		if lie != nil {
			w.Header().Set("Content-Length", fmt.Sprint(len(lie)))
			w.Write(lie)
		} else {
			handler.ServeHTTP(w, r)
		}
		if broken {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// half is a connection that breaks after the first half of the first write.
type half struct {
	http.ResponseWriter
	written bool
}

func (h *half) Write(p []byte) (int, error) {
	if !h.written {
		h.written = true
		h.ResponseWriter.Write(p[:len(p)/2])
		http.NewResponseController(h.ResponseWriter).Flush()
	}
	return 0, io.ErrClosedPipe
}

// BreakAfter makes the server send n whole answers, and break off every later one halfway.
func (s *Server) BreakAfter(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = n
}

func (s *Server) lie(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lies[path] = data
}

// Write replaces the content of a directory, except .git, by skills.
func Write(t testing.TB, dir string, all Skills) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.Name() != ".git" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	for name, files := range all {
		for file, text := range files {
			at := filepath.Join(dir, name, filepath.FromSlash(file))
			err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755))
			if target, link := strings.CutPrefix(text, "->"); link {
				err = errors.Join(err, os.Symlink(target, at))
				continue
			}
			mode := fs.FileMode(0o644)
			if strings.HasPrefix(text, "#!") {
				mode = 0o755
			}
			err = errors.Join(err, os.WriteFile(at, []byte(text), mode))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// files returns the files of all skills, below their names.
func (all Skills) files() map[string]string {
	found := map[string]string{}
	for name, files := range all {
		for file, text := range files {
			found[path.Join(name, file)] = text
		}
	}
	return found
}

// Tarball packs files.
func Tarball(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(files[name]))}
		text := files[name]
		if target, link := strings.CutPrefix(text, "->"); link {
			h.Typeflag, h.Linkname, h.Size, text = tar.TypeSymlink, target, 0, ""
		}
		if strings.HasPrefix(text, "#!") {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Zip packs files. It leaves out links: an archive with a link would be refused.
func Zip(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(to, flate.BestSpeed)
	})
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		text, link := strings.CutPrefix(files[name], "->")
		switch {
		case link:
			h.SetMode(fs.ModeSymlink | 0o777)
		case strings.HasPrefix(text, "#!"):
			h.SetMode(0o755)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// directory is a directory of this machine, or an archive.
type directory struct {
	place string
	pack  func(testing.TB, map[string]string) []byte // nil for a directory
}

// Directory starts a directory.
func Directory(t *testing.T) Publisher { return &directory{place: t.TempDir()} }

// ZipFile starts a zip archive.
func ZipFile(t *testing.T) Publisher {
	return &directory{place: filepath.Join(t.TempDir(), "pack.zip"), pack: Zip}
}

// TarFile starts a tar archive.
func TarFile(t *testing.T) Publisher {
	return &directory{place: filepath.Join(t.TempDir(), "pack.tar.gz"), pack: Tarball}
}

func (d *directory) Publish(t testing.TB, all Skills) bool {
	if d.pack == nil {
		Write(t, d.place, all)
		return true
	}
	if err := os.WriteFile(d.place, d.pack(t, all.files()), 0o600); err != nil {
		t.Fatal(err)
	}
	return true
}

func (d *directory) Request() install.Request { return install.Request{Source: d.place, All: true} }

func (d *directory) Tamper(t testing.TB) bool { d.Publish(t, two("tampered")); return false }

func (d *directory) Server() *Server { return nil }

func (d *directory) Keeps() bool { return false }

// repository is a repository of git behind a web server.
type repository struct {
	dir    string
	server *Server
}

// Git starts a repository of git. It skips the test if git is missing.
func Git(t *testing.T) Publisher {
	r := &repository{dir: filepath.Join(t.TempDir(), "served", "pack.git")}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.run(t, "init", "--quiet", "--initial-branch=main", ".")
	programs := strings.TrimSpace(r.run(t, "--exec-path"))
	handler := &cgi.Handler{Path: filepath.Join(programs, "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.dir), "GIT_HTTP_EXPORT_ALL=1",
			"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory",
			"GIT_CONFIG_VALUE_0=*"},
		InheritEnv: []string{"PATH"}, Stderr: io.Discard}
	if _, err := os.Stat(handler.Path); err != nil {
		t.Skip("needs git http-backend")
	}
	r.server = NewServer(t, handler)
	return r
}

func (r *repository) run(t testing.TB, args ...string) string {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git on PATH")
	}
	cmd := exec.Command(git, args...)
	cmd.Dir = r.dir
	// Git takes the search path from the process.
	cmd.Env = append(cmd.Environ(), "HOME="+filepath.Dir(r.dir),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (r *repository) Publish(t testing.TB, all Skills) bool {
	Write(t, r.dir, all)
	r.run(t, "add", "--all", "--force", ".")
	r.run(t, "commit", "--quiet", "--allow-empty", "-m", "x")
	return true
}

func (r *repository) Request() install.Request {
	return install.Request{Source: r.server.URL + "/pack.git", All: true}
}

// Tamper starts another history: git serves no other bytes for a commit.
func (r *repository) Tamper(t testing.TB) bool {
	if err := os.RemoveAll(filepath.Join(r.dir, ".git")); err != nil {
		t.Fatal(err)
	}
	r.run(t, "init", "--quiet", "--initial-branch=main", ".")
	r.Publish(t, two("tampered"))
	return false
}

func (r *repository) Server() *Server { return r.server }

func (r *repository) Keeps() bool { return true }

// site is a web server with an archive, or with an index.
type site struct {
	server *Server
	mu     sync.Mutex
	files  map[string][]byte
	end    string // of the name of the archive; empty: it has an index
}

// Archive starts a web server with an archive whose name has a suffix, such as ".zip".
func Archive(end string) func(t *testing.T) Publisher {
	return func(t *testing.T) Publisher {
		s := &site{files: map[string][]byte{}, end: end}
		s.server = NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			data, ok := s.files[r.URL.Path]
			s.mu.Unlock()
			if !ok {
				http.NotFound(w, r)
				return
			}
			w.Write(data)
		}))
		return s
	}
}

// Index starts a web server with an index of skills.
func Index(t *testing.T) Publisher { return Archive("")(t) }

func (s *site) put(path string, data []byte) digest.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = data
	return digest.FromBytes(data)
}

func (s *site) Publish(t testing.TB, all Skills) bool {
	switch s.end {
	case ".zip":
		s.put("/pack.zip", Zip(t, all.files()))
		return true
	case ".tar.gz":
		s.put("/pack.tar.gz", Tarball(t, all.files()))
		return true
	}
	index := &discovery.Index{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := &discovery.Entry{Name: name, Type: discovery.TypeArchive, Description: "x",
			URL: "/" + name + ".zip"}
		if files := all[name]; len(files) == 1 {
			e.Type, e.URL = discovery.TypeSkill, "/"+name+".md"
			e.Digest = s.put(e.URL, []byte(files["SKILL.md"]))
		} else {
			e.Digest = s.put(e.URL, Zip(t, files))
		}
		index.Skills = append(index.Skills, e)
	}
	s.put(discovery.Path, index.Encode())
	return true
}

func (s *site) Request() install.Request {
	at := s.server.URL + discovery.Path
	if s.end != "" {
		at = s.server.URL + "/pack" + s.end
	}
	return install.Request{Source: at, All: true}
}

func (s *site) Tamper(t testing.TB) bool {
	if s.end != "" {
		s.Publish(t, two("tampered"))
		return false
	}
	s.put("/two.zip", Zip(t, two("tampered")["two"]))
	return true
}

func (s *site) Server() *Server { return s.server }

func (s *site) Keeps() bool { return false }

// peer is an MCP server that serves skills.
type peer struct {
	server *Server
	mu     sync.Mutex
	files  map[string]string // by URI
	list   *skillList
}

type skillList struct {
	mcp.ResultBase
	Skills []map[string]any `json:"skills"`
}

type noParams struct{ mcp.ParamsBase }

// Served starts an MCP server with the Skills extension.
func Served(t *testing.T) Publisher {
	p := &peer{}
	server := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, nil)
	err := mcp.AddReceivingCustomMethod(server, "skills/list",
		func(context.Context, *mcp.ServerSession, *noParams) (*skillList, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.list, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "skill://{+path}", Name: "files"},
		func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			text, ok := p.files[req.Params.URI]
			if !ok {
				return nil, mcp.ResourceNotFoundError(req.Params.URI)
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
				{URI: req.Params.URI, Blob: []byte(text)}}}, nil
		})
	p.server = NewServer(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	return p
}

func (p *peer) Publish(_ testing.TB, all Skills) bool {
	list, served := &skillList{Skills: []map[string]any{}}, map[string]string{}
	for name, files := range all {
		var resources []map[string]any
		for file, text := range files {
			if strings.HasPrefix(text, "->") {
				return false
			}
			uri := "skill://" + name + "/" + file
			served[uri] = text
			resources = append(resources, map[string]any{"uri": uri, "digest": digest.FromString(text),
				"size": len(text)})
		}
		list.Skills = append(list.Skills, map[string]any{"uri": "skill://" + name + "/SKILL.md",
			"frontmatter": map[string]any{}, "resources": resources})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list, p.files = list, served
	return true
}

func (p *peer) Request() install.Request {
	return install.Request{Source: "mcp+" + p.server.URL + "/mcp", All: true}
}

func (p *peer) Tamper(testing.TB) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files["skill://two/scripts/run.sh"] = "#!/bin/sh\necho FIRST\n"
	return true
}

func (p *peer) Server() *Server { return p.server }

func (p *peer) Keeps() bool { return false }

// images is a registry of images.
type images struct {
	server     *Server
	collection bool
	layer      string // the path of a layer of what was published last
}

// Registry starts a registry with one tag: an image with all skills in its files.
func Registry(t *testing.T) Publisher {
	return &images{server: NewServer(t, registry.New(registry.Logger(log.New(io.Discard, "", 0))))}
}

// Collection starts a registry with one tag: a collection of artifacts.
func Collection(t *testing.T) Publisher {
	p := Registry(t).(*images)
	p.collection = true
	return p
}

func (p *images) repository() string {
	return strings.Replace(p.server.URL, "http://", oci.Scheme, 1) + "/pack"
}

func (p *images) Publish(t testing.TB, all Skills) bool {
	home, err := oci.Home(p.repository())
	if err != nil {
		t.Fatal(err)
	}
	client := (&web.Client{Home: home}).HTTP()
	defer client.CloseIdleConnections()
	to, err := oci.Open(p.repository(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	pack := func(name string, files map[string]string) *oci.Packed {
		return &oci.Packed{Artifact: &discovery.Artifact{Name: name}, Data: Tarball(t, files)}
	}
	packs := []*oci.Packed{pack("pack", all.files())}
	if p.collection {
		packs = nil
		for _, name := range slices.Sorted(maps.Keys(all)) {
			packs = append(packs, pack(name, all[name]))
		}
	}
	if _, err := to.Publish(t.Context(), packs, "1"); err != nil {
		t.Fatal(err)
	}
	p.layer = "/v2/pack/blobs/" + digest.FromBytes(packs[len(packs)-1].Data).String()
	return true
}

func (p *images) Request() install.Request {
	return install.Request{Source: p.repository() + ":1", All: true}
}

func (p *images) Tamper(t testing.TB) bool {
	tampered := two("tampered")
	if p.collection {
		p.server.lie(p.layer, Tarball(t, tampered["two"]))
	} else {
		p.server.lie(p.layer, Tarball(t, tampered.files()))
	}
	return true
}

func (p *images) Server() *Server { return p.server }

func (p *images) Keeps() bool { return true }
