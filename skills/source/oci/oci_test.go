package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/skillsd/skillsd/skills/source/discovery"
	"github.com/skillsd/skillsd/skills/source/web"
)

const title = v1.AnnotationTitle

// serve starts a registry behind a handler, which may be nil, and opens a repository of it.
func serve(t *testing.T, before func(w http.ResponseWriter, r *http.Request) (done bool)) *Repository {
	t.Helper()
	next := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before == nil || !before(w, r) {
			next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return open(t, strings.Replace(s.URL, "http://", Scheme, 1)+"/x", nil)
}

func open(t *testing.T, repository string, login Login) *Repository {
	t.Helper()
	home, err := Home(repository)
	if err != nil {
		t.Fatal(err)
	}
	client := (&web.Client{Home: home}).HTTP()
	t.Cleanup(client.CloseIdleConnections)
	r, err := Open(repository, client, login)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tarball packs entries; a name that ends in "/" is a directory, and content that begins with "->" a link.
func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		target, isLink := strings.CutPrefix(files[name], "->")
		switch {
		case isLink:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		case files[name] == "device":
			h.Typeflag, h.Size = tar.TypeChar, 0
		}
		err := w.WriteHeader(h)
		if err == nil && h.Size > 0 {
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

// blob pushes bytes as a layer.
func (r *Repository) blob(t *testing.T, kind, name string, data []byte) v1.Descriptor {
	t.Helper()
	at := v1.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if name != "" {
		at.Annotations = map[string]string{title: name}
	}
	if err := r.push(t.Context(), at, data); err != nil {
		t.Fatal(err)
	}
	return at
}

// image pushes a manifest of layers and gives it a tag.
func (r *Repository) image(t *testing.T, tag string, layers ...v1.Descriptor) v1.Descriptor {
	t.Helper()
	config := v1.DescriptorEmptyJSON
	if err := r.push(t.Context(), config, config.Data); err != nil {
		t.Fatal(err)
	}
	at, err := r.pushManifest(t.Context(), v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: config, Layers: layers})
	if err == nil {
		err = r.remote.Tag(t.Context(), at, tag)
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// index pushes an index and gives it a tag.
func (r *Repository) index(t *testing.T, tag string, list ...v1.Descriptor) {
	t.Helper()
	at, err := r.pushManifest(t.Context(), v1.MediaTypeImageIndex, v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: list})
	if err == nil {
		err = r.remote.Tag(t.Context(), at, tag)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// extract returns the files of a skill, by name: their content, or "->" and where a link leads.
func (r *Repository) extract(t *testing.T, tag, name string) (map[string]string, []string, error) {
	t.Helper()
	found, err := r.Find(t.Context(), tag)
	if err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(found.Skills, func(s *Skill) bool { return s.Name == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("there is no %q", name)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	notes, err := r.Extract(t.Context(), found.Skills[at], root, 1<<20)
	if err != nil {
		return nil, nil, err
	}
	files := map[string]string{}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if target, err := os.Readlink(filepath.Join(dir, name)); err == nil {
			files[name] = "->" + target
			return nil
		}
		data, err := root.ReadFile(name)
		files[name] = string(data)
		return err
	})
	return files, append(found.Notes, notes...), err
}

func TestForms(t *testing.T) {
	r := serve(t, nil)
	const gz, plain = v1.MediaTypeImageLayerGzip, v1.MediaTypeImageLayer
	layer := func(files map[string]string) v1.Descriptor { return r.blob(t, gz, "", tarball(t, files)) }
	demo := layer(map[string]string{"SKILL.md": "a", "x/y": "b"})
	r.image(t, "artifact", r.blob(t, layerType, "demo.tar.gz", tarball(t, map[string]string{"SKILL.md": "a"})))
	r.image(t, "files", r.blob(t, "text/markdown", "SKILL.md", []byte("a")),
		r.blob(t, plain, "references/x.md", []byte("b")))
	r.image(t, "image", demo, layer(map[string]string{"x/z": "c", "SKILL.md": "d"}),
		layer(map[string]string{"x/.wh.y": "", "etc": "->/var", "dev/null": "device"}))
	r.image(t, "opaque", demo, layer(map[string]string{"x/.wh..wh..opq": "", "x/w": "c"}))
	r.image(t, "replaced", demo, layer(map[string]string{"x": "->SKILL.md"}), layer(map[string]string{"x/v": "c"}))
	r.image(t, "docker", r.blob(t, "application/vnd.docker.image.rootfs.diff.tar.gzip", "", tarball(t,
		map[string]string{"SKILL.md": "a"})))
	arm, amd := r.image(t, "arm", layer(map[string]string{"SKILL.md": "arm"})), r.image(t, "amd", demo)
	attested := r.image(t, "attested", r.blob(t, "application/vnd.in-toto+json", "", []byte("{}")))
	arm.Platform, amd.Platform = &v1.Platform{OS: "linux", Architecture: "arm64"}, &v1.Platform{OS: "linux", Architecture: "amd64"}
	attested.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
	r.index(t, "platforms", arm, amd, attested)
	r.index(t, "one", arm, attested)
	for tag, want := range map[string]struct {
		files map[string]string
		notes int
	}{
		"artifact":  {map[string]string{"SKILL.md": "a"}, 0},
		"files":     {map[string]string{"SKILL.md": "a", "references/x.md": "b"}, 0},
		"image":     {map[string]string{"SKILL.md": "d", "x/z": "c"}, 1},
		"opaque":    {map[string]string{"SKILL.md": "a", "x/w": "c"}, 0},
		"replaced":  {map[string]string{"SKILL.md": "a", "x/v": "c"}, 0},
		"docker":    {map[string]string{"SKILL.md": "a"}, 0},
		"platforms": {map[string]string{"SKILL.md": "a", "x/y": "b"}, 1},
		"one":       {map[string]string{"SKILL.md": "arm"}, 0},
	} {
		files, notes, err := r.extract(t, tag, "")
		if diff := cmp.Diff(want.files, files); diff != "" || err != nil || len(notes) != want.notes {
			t.Errorf("%s: error = %v, notes %q\n%s", tag, err, notes, diff)
		}
	}
}

func TestPublish(t *testing.T) {
	r := serve(t, nil)
	pack := func(name string) *Packed {
		return &Packed{Artifact: &discovery.Artifact{Name: name}, Data: tarball(t, map[string]string{"SKILL.md": name}),
			Description: "d"}
	}
	first, err := r.Publish(t.Context(), []*Packed{pack("a")}, "1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Publish(t.Context(), []*Packed{pack("a")}, "1")
	if now, failed := r.Resolve(t.Context(), "1"); again != first || now != first || err != nil || failed != nil {
		t.Errorf("digests = %s, %s, %s; %v, %v", first, again, now, err, failed)
	}
	if files, _, err := r.extract(t, first.String(), ""); err != nil || files["SKILL.md"] != "a" {
		t.Errorf("files = %q, %v", files, err)
	}
	if _, err := r.Publish(t.Context(), []*Packed{pack("a"), pack("b")}, "2"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if files, _, err := r.extract(t, "2", name); err != nil || files["SKILL.md"] != name {
			t.Errorf("%s: files = %q, %v", name, files, err)
		}
	}
	if _, err := r.Publish(t.Context(), []*Packed{pack("a")}, first.String()); err == nil {
		t.Error("a digest was published as a tag")
	}
}

// What a registry or a publisher does wrong is an error that says so, and leaves nothing.
func TestHostile(t *testing.T) {
	lies := map[string]string{} // what a path answers instead
	kinds := map[string]string{}
	r := serve(t, func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case strings.HasSuffix(req.URL.Path, "/manifests/loop"):
			http.Redirect(w, req, req.URL.Path, http.StatusFound)
			return true
		case strings.HasSuffix(req.URL.Path, "/manifests/metadata"):
			http.Redirect(w, req, "https://169.254.169.254/latest", http.StatusFound)
			return true
		case strings.HasSuffix(req.URL.Path, "/manifests/realm"):
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://10.1.2.3/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		text, ok := lies[req.URL.Path]
		if ok && req.Method != http.MethodPut {
			if kind := kinds[req.URL.Path]; kind != "" {
				w.Header().Set("Content-Type", kind)
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			fmt.Fprint(w, text)
		}
		return ok && req.Method != http.MethodPut
	})
	blob := func(at v1.Descriptor) string { return "/v2/x/blobs/" + at.Digest.String() }
	manifest := func(tag, kind, text string) {
		lies["/v2/x/manifests/"+tag], kinds["/v2/x/manifests/"+tag] = text, kind
	}
	layer := func(kind, name, data string) v1.Descriptor { return r.blob(t, kind, name, []byte(data)) }
	good := layer("text/markdown", "SKILL.md", "good")
	changed := layer("text/markdown", "SKILL.md", "12345")
	longer := layer("text/markdown", "SKILL.md", "123456")
	r.image(t, "changed", changed)
	r.image(t, "longer", longer)
	lies[blob(changed)], lies[blob(longer)] = "54321", "1234567"
	huge := good
	huge.Size = 1 << 40
	r.image(t, "huge", huge)
	unsized := good
	unsized.Size = -1
	r.image(t, "many", slices.Repeat([]v1.Descriptor{good}, maxLayers+1)...)
	r.image(t, "twice", good, layer("text/markdown", "SKILL.md", "other"))
	r.image(t, "up", layer("text/markdown", "../x", "x"))
	r.image(t, "named", layer("text/markdown", "", "x"))
	r.image(t, "zstd", layer("application/vnd.oci.image.layer.v1.tar+zstd", "", "x"))
	r.image(t, "no-tar", layer(v1.MediaTypeImageLayerGzip, "", "text"))
	r.image(t, "case", r.blob(t, v1.MediaTypeImageLayerGzip, "", tarball(t, map[string]string{"a": "", "A": ""})))
	const image, index = v1.MediaTypeImageManifest, v1.MediaTypeImageIndex
	text, _ := json.Marshal(v1.Manifest{Layers: []v1.Descriptor{unsized}})
	manifest("unsized", image, string(text))
	manifest("two-ways", image, `{"layers":[],"manifests":[]}`)
	manifest("other-type", image, `{"mediaType":"`+index+`"}`)
	manifest("empty", image, `{}`)
	manifest("no-json", image, `<html>`)
	manifest("no-type", "text/html", `{}`)
	manifest("no-manifests", index, `{"manifests":[]}`)
	manifest("thousands", index, `{"manifests":[`+strings.Repeat(`{},`, maxManifests)+`{}]}`)
	manifest("long", image, strings.Repeat(" ", maxManifest+1))
	manifest(digest.FromString("x").String(), image, `{}`)
	for tag, want := range map[string]string{
		"changed": "other bytes than the manifest says", "longer": "mismatch Content-Length",
		"huge": "more bytes than they may", "unsized": "without a digest or a size", "many": "65 layers, more than 64",
		"twice": `several layers are "SKILL.md"`, "up": "is refused", "named": "has no name", "zstd": "tar and gzip are read",
		"no-tar": "cannot be read", "case": "differs from another only in case", "two-ways": "read in two ways",
		"other-type": "read in two ways", "empty": "has no layers", "no-json": "not the JSON", "no-type": "which is not read",
		"no-manifests": "has no manifests", "thousands": "more than 5000", "long": "", "gone": "not found",
		digest.FromString("x").String(): "mismatch", "loop": "more than 5 redirects",
		"metadata": "169.254.169.254 is not a public address", "realm": "10.1.2.3 is not a public address",
	} {
		files, _, err := r.extract(t, tag, "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: files %q, error = %v, want %q", tag, files, err, want)
		}
	}
}

// Of a collection, what is wrong with one skill is wrong with it alone.
func TestHostileCollection(t *testing.T) {
	gone := ""
	r := serve(t, func(w http.ResponseWriter, req *http.Request) bool {
		if gone != "" && strings.HasSuffix(req.URL.Path, gone) {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	named := func(name string) v1.Descriptor {
		at := r.image(t, "x", r.blob(t, "text/markdown", "SKILL.md", []byte(name)))
		at.Annotations = map[string]string{nameKey: name}
		return at
	}
	lost := named("lost")
	r.index(t, "all", named("good"), named("a"), named("a"), named("../up"), lost)
	gone = lost.Digest.String()
	if files, _, err := r.extract(t, "all", "good"); err != nil || files["SKILL.md"] != "good" {
		t.Errorf("good: %q, %v", files, err)
	}
	for name, want := range map[string]string{"a": "several manifests have this name", "manifest-4": "not a name of a skill",
		"lost": "not found", "../up": "there is no"} {
		if _, _, err := r.extract(t, "all", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", name, err, want)
		}
	}
}

// The login goes to the registry that asks for it, and to no host that it redirects to.
func TestLogin(t *testing.T) {
	stolen := ""
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stolen += r.Header.Get("Authorization")
	}))
	defer other.Close()
	r := serve(t, func(w http.ResponseWriter, req *http.Request) bool {
		user, password, _ := req.BasicAuth()
		if user != "alice" || password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if strings.HasSuffix(req.URL.Path, "/away") {
			http.Redirect(w, req, other.URL, http.StatusFound)
			return true
		}
		return false
	})
	if _, err := r.Find(t.Context(), "1"); !Denied(err) {
		t.Errorf("without a login: %v", err)
	}
	at := r.remote.Reference.Host()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"auths":{%q:{"auth":"YWxpY2U6c2VjcmV0"}}}`, at), 0o600); err != nil {
		t.Fatal(err)
	}
	r = open(t, Scheme+at+"/x", DockerLogin(file))
	r.image(t, "1", r.blob(t, "text/markdown", "SKILL.md", []byte("a")))
	if files, _, err := r.extract(t, "1", ""); err != nil || files["SKILL.md"] != "a" {
		t.Errorf("files = %q, %v", files, err)
	}
	if _, err := r.Find(t.Context(), "away"); err == nil || stolen != "" || strings.Contains(err.Error(), "secret") {
		t.Errorf("another host got %q: %v", stolen, err)
	}
}

func TestParse(t *testing.T) {
	sum := digest.FromString("x").String()
	for text, want := range map[string][2]string{
		"oci://ghcr.io/a/b":             {"oci://ghcr.io/a/b", "latest"},
		"oci://ghcr.io/a/b:1.2":         {"oci://ghcr.io/a/b", "1.2"},
		"oci://localhost:5000/b@" + sum: {"oci://localhost:5000/b", sum},
		"oci://h.io/b:1@" + sum:         {"oci://h.io/b", sum},
	} {
		repository, name, err := Parse(text)
		if err != nil || repository != want[0] || name != want[1] || !Valid(repository, name) {
			t.Errorf("Parse(%q) = %q, %q, %v", text, repository, name, err)
		}
	}
	for _, text := range []string{"", "oci://", "oci://h", "ghcr.io/a/b", "oci://a:b@h.io/x", "oci://h.io/X", "oci://h.io/x:y z",
		"oci://h.io/../x", "oci://h.io/x@sha512:" + strings.Repeat("a", 128), "oci://h.io/x?y", "oci://-h/x:a/../b"} {
		if repository, name, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %q, %q", text, repository, name)
		}
	}
	if Valid("oci://h.io/x:1", "2") || Valid("h.io/x", "1") || Valid("oci://h.io/x", "../1") {
		t.Error("Valid accepts what Parse does not return")
	}
	for at, want := range map[string]string{"oci://ghcr.io/x": "https", "oci://localhost:1/x": "http", "oci://127.0.0.1:1/x": "http",
		"oci://10.0.0.1/x": "https", "oci://docker.io/library/x": "https"} {
		if home, err := Home(at); err != nil || home.Scheme != want {
			t.Errorf("Home(%q) = %v, %v", at, home, err)
		}
	}
}

// FuzzManifest reads any bytes as a manifest and as an index.
func FuzzManifest(f *testing.F) {
	f.Add(`{"layers":[{"digest":"sha256:1","size":1}]}`)
	f.Add(`{"manifests":[{"platform":{"os":"linux"}},{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseManifest([]byte(text), v1.MediaTypeImageManifest); err == nil && len(m.Layers) == 0 {
			t.Error("a manifest without layers")
		}
		found := &Found{}
		if err := found.index([]byte(text), v1.MediaTypeImageIndex); err == nil && len(found.Skills) == 0 {
			t.Error("an index without skills")
		}
	})
}
