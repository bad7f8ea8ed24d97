package rootfs_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/environment/rootfs"
)

// memory keeps contents for a test.
type memory map[digest.Digest]string

func (m memory) Put(r io.Reader, _ bool) (digest.Digest, int64, error) {
	data, err := io.ReadAll(r)
	sum := digest.FromBytes(data)
	m[sum] = string(data)
	return sum, int64(len(data)), err
}

var when = time.Unix(1_700_000_000, 0)

func file(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: when,
		PAXRecords: map[string]string{"TEST.text": text}}
}

func program(name, text string) tar.Header {
	h := file(name, text)
	h.Mode = 0o755
	return h
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }

func link(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}
}

func hard(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}
}

func device(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeChar, Name: name, Mode: 0o666, Devmajor: 1, Devminor: 3}
}

func with(h tar.Header, mode int64) tar.Header {
	h.Mode = mode
	return h
}

// layer writes an archive.
func layer(t testing.TB, zipped bool, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	var out io.WriteCloser = nopCloser{&b}
	if zipped {
		out = gzip.NewWriter(&b)
	}
	w := tar.NewWriter(out)
	for _, h := range entries {
		text := h.PAXRecords["TEST.text"]
		h.PAXRecords = nil
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// layout writes the layout of an image and returns its directory.
func layout(t testing.TB, arch string, layers ...[]byte) string {
	t.Helper()
	at := t.TempDir()
	blobs := filepath.Join(at, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	type d = map[string]any
	put := func(data []byte) d {
		sum := digest.FromBytes(data)
		if err := os.WriteFile(filepath.Join(blobs, sum.Encoded()), data, 0o644); err != nil {
			t.Fatal(err)
		}
		return d{"digest": sum, "size": len(data), "mediaType": "application/vnd.oci.image.manifest.v1+json"}
	}
	text := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	list := []d{}
	for _, l := range layers {
		list = append(list, put(l))
	}
	manifest := put(text(d{"schemaVersion": 2, "config": put(text(d{"os": "linux", "architecture": arch})), "layers": list}))
	manifest["annotations"] = d{"org.opencontainers.image.ref.name": "one"}
	for name, data := range map[string][]byte{
		"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`),
		"index.json": text(d{"schemaVersion": 2, "manifests": []d{manifest}}),
	} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

func read(t testing.TB, spec string) (map[string]string, []environment.Note, digest.Digest, error) {
	t.Helper()
	source, err := rootfs.ParseSource(spec)
	if err != nil {
		t.Fatal(err)
	}
	blobs := memory{}
	manifest, notes, err := rootfs.Read(t.Context(), source, blobs)
	got := map[string]string{}
	for _, e := range manifest {
		text := blobs[e.Digest] + e.Target
		if name, in := strings.CutPrefix(e.Path, "etc/"); in && e.Kind == environment.File && text == rootfs.Synthetic[name] {
			continue // in every one
		}
		got[string(e.Kind)+" "+e.Path] = text
	}
	return got, notes, manifest.Digest(), err
}

// Layers are put together as the specification of images says.
func TestLayers(t *testing.T) {
	base := []tar.Header{dir("./"), dir("usr/"), program("usr/sh", "#!"), file("usr/a", "a"), file("usr/d/x", "x"), file("usr/d/y", "y"), link("bin", "usr/bin")}
	for name, c := range map[string]struct {
		upper []tar.Header
		want  map[string]string
	}{
		"nothing": {nil, map[string]string{"file usr/a": "a", "file usr/d/x": "x", "file usr/d/y": "y", "link bin": "usr/bin"}},
		"a whiteout": {[]tar.Header{file("usr/.wh.a", ""), file("usr/d/.wh.x", ""), file(".wh.bin", "")},
			map[string]string{"file usr/d/y": "y"}},
		"a whiteout of a directory, and a file in its place": {[]tar.Header{file("usr/.wh.d", ""), file("usr/d", "now a file")},
			map[string]string{"file usr/a": "a", "file usr/d": "now a file", "link bin": "usr/bin"}},
		"a whiteout counts for earlier layers only": {[]tar.Header{file("usr/d/z", "z"), file("usr/.wh.d", "")},
			map[string]string{"file usr/a": "a", "file usr/d/z": "z", "link bin": "usr/bin"}},
		"an opaque directory": {[]tar.Header{file("usr/d/z", "z"), file("usr/d/.wh..wh..opq", "")},
			map[string]string{"file usr/a": "a", "file usr/d/z": "z", "link bin": "usr/bin"}},
		"a link in the place of a directory": {[]tar.Header{link("usr/d", "/home/user")},
			map[string]string{"file usr/a": "a", "link usr/d": "/home/user", "link bin": "usr/bin"}},
		"a directory in the place of a link": {[]tar.Header{dir("bin/"), file("bin/b", "b")},
			map[string]string{"file usr/a": "a", "file usr/d/x": "x", "file usr/d/y": "y", "file bin/b": "b"}},
		"a hard link to an earlier layer": {[]tar.Header{hard("usr/d/h", "./usr/a")},
			map[string]string{"file usr/a": "a", "file usr/d/x": "x", "file usr/d/y": "y", "file usr/d/h": "a", "link bin": "usr/bin"}},
		"what a sandbox has of its own": {[]tar.Header{device("dev/null"), file("tmp/x", "x"), file("skill/SKILL.md", "x"), file("top", "x"), file(".layers/x", "x"), file("run/x", "x")},
			map[string]string{"file usr/a": "a", "file usr/d/x": "x", "file usr/d/y": "y", "link bin": "usr/bin"}},
		"what not everyone may read": {[]tar.Header{with(file("etc/shadow", "x"), 0o640), with(dir("root"), 0o700), file("root/x", "x"),
			with(program("usr/a", "set-id"), 0o4755), {Typeflag: tar.TypeFifo, Name: "usr/pipe", Mode: 0o666}},
			map[string]string{"exec usr/a": "set-id", "file usr/d/x": "x", "file usr/d/y": "y", "link bin": "usr/bin"}},
		"files of every sandbox": {[]tar.Header{file("etc/passwd", "evil"), link("etc/resolv.conf", "/run/x"), file("etc/own", "own")},
			map[string]string{"file usr/a": "a", "file usr/d/x": "x", "file usr/d/y": "y", "link bin": "usr/bin", "file etc/own": "own"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want["exec usr/sh"] = "#!"
			at := layout(t, runtime.GOARCH, layer(t, true, base...), layer(t, false, c.upper...))
			got, _, _, err := read(t, "oci:"+at+":one")
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("Read = %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// What leads out of an image, or could be read in two ways, is refused with the name of the file.
func TestUnsafe(t *testing.T) {
	base := layer(t, true, dir("usr"), file("usr/a", "a"), link("etc", "/home/user"), link("usr/up", "../../.."))
	for name, c := range map[string]struct {
		upper []tar.Header
		want  string
	}{
		"a path out":                  {[]tar.Header{file("../x", "")}, `"../x"`},
		"a path out in the middle":    {[]tar.Header{file("usr/../../x", "")}, `"usr/../../x"`},
		"an absolute path":            {[]tar.Header{file("/usr/x", "")}, `"/usr/x"`},
		"through a link":              {[]tar.Header{link("a", "/home"), file("a/x", "")}, `"a/x" of the root file system lies below`},
		"through an earlier link":     {[]tar.Header{file("etc/x", "")}, `"etc" of the root file system is a link or a file of an earlier layer`},
		"whiteout through a link":     {[]tar.Header{file("usr/up/.wh.x", "")}, `"usr/up"`},
		"a hard link out":             {[]tar.Header{hard("usr/x", "../../etc/passwd")}, "leads out"},
		"a hard link to the host":     {[]tar.Header{hard("usr/x", "/etc/passwd")}, "leads out"},
		"a hard link through a link":  {[]tar.Header{hard("usr/x", "etc/passwd")}, "is not there"},
		"a hard link to a directory":  {[]tar.Header{hard("x", "usr")}, "is not there"},
		"a device":                    {[]tar.Header{file(".wh.etc", ""), device("usr/null")}, `"usr/null" of the root file system is a device`},
		"a whiteout of nothing":       {[]tar.Header{file("usr/.wh.", "")}, "whiteout"},
		"a whiteout of the directory": {[]tar.Header{file("usr/.wh..", "")}, "whiteout"},
		"a whiteout out":              {[]tar.Header{file("usr/.wh...", "")}, "whiteout"},
		"a duplicate":                 {[]tar.Header{file("x", "1"), file("x", "2")}, "duplicate"},
		"a file as a directory":       {[]tar.Header{file("x", "1"), file("x/y", "2")}, "lies below"},
		"etc is a link":               {nil, `"etc" of the root file system is not a directory`},
		"too deep":                    {[]tar.Header{file(strings.Repeat("d/", 70)+"x", "")}, "too deep"},
		"an unknown kind":             {[]tar.Header{{Typeflag: '7', Name: "x"}}, "unknown kind"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := read(t, "oci:"+layout(t, runtime.GOARCH, base, layer(t, true, c.upper...)))
			if _, ok := errors.AsType[*rootfs.UnsafeError](err); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Read: %v, want an UnsafeError with %q", err, c.want)
			}
		})
	}
}

// A file with more bytes than a root file system may have is refused before it is read: of a hole they cost
// nobody's disk.
func TestHole(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(dir+"/usr", 0o755), os.WriteFile(dir+"/usr/hole", nil, 0o644),
		os.Truncate(dir+"/usr/hole", 30<<30)); err != nil {
		t.Skipf("missing capability: a file system with large files: %v", err)
	}
	_, _, err := rootfs.Read(t.Context(), rootfs.Source{Dir: dir}, noBlobs{t})
	if _, ok := errors.AsType[*rootfs.UnsafeError](err); !ok {
		t.Errorf("Read: %v, want an UnsafeError", err)
	}
}

type noBlobs struct{ t *testing.T }

func (b noBlobs) Put(io.Reader, bool) (digest.Digest, int64, error) {
	b.t.Error("Put was called")
	return "", 0, errors.New("not kept")
}

// The index, the manifest and the layers are what their digests say, and for this machine.
func TestLayout(t *testing.T) {
	plain := layer(t, true, file("usr/a", "a"))
	for name, c := range map[string]struct {
		spoil func(at string)
		arch  string
		tag   string
		want  string
	}{
		"fits":            {want: ""},
		"tag":             {tag: ":one"},
		"another tag":     {tag: ":two", want: `tags are "one"`},
		"another machine": {arch: "s390x", want: "is for linux/s390x"},
		"another layer of that size": {want: "another digest", spoil: func(at string) {
			spoiled := bytes.Clone(plain)
			spoiled[9] ^= 1 // the system that compressed it: it unpacks to the same
			write(t, filepath.Join(at, "blobs/sha256", digest.FromBytes(plain).Encoded()), spoiled)
		}},
		"bytes after a layer": {want: "another size", spoil: func(at string) {
			write(t, filepath.Join(at, "blobs/sha256", digest.FromBytes(plain).Encoded()), append(bytes.Clone(plain), 0))
		}},
		"a blob that is a link": {want: "not a regular file", spoil: func(at string) {
			blob := filepath.Join(at, "blobs/sha256", digest.FromBytes(plain).Encoded())
			if err := errors.Join(os.Rename(blob, filepath.Join(at, "moved")), os.Symlink("../../moved", blob)); err != nil {
				t.Fatal(err)
			}
		}},
		"an index of nothing": {want: "no image", spoil: func(at string) { write(t, filepath.Join(at, "index.json"), []byte(`{}`)) }},
	} {
		t.Run(name, func(t *testing.T) {
			if c.arch == "" {
				c.arch = runtime.GOARCH
			}
			at := layout(t, c.arch, plain)
			if c.spoil != nil {
				c.spoil(at)
			}
			_, _, _, err := read(t, "oci:"+at+c.tag)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Read: %v, want %q", err, c.want)
			}
		})
	}
	if _, _, _, err := read(t, layout(t, runtime.GOARCH, plain)); err == nil || !strings.Contains(err.Error(), "oci:DIR") {
		t.Errorf("a layout as a directory: %v", err)
	}
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// pyc is a module that Python compiled from a source of that time and size.
func pyc(at time.Time, size int) string {
	head := append([]byte{0xa7, 0x0d, 0x0d, 0x0a}, make([]byte, 12)...)
	binary.LittleEndian.PutUint32(head[8:], uint32(at.Unix()))
	binary.LittleEndian.PutUint32(head[12:], uint32(size))
	return string(head) + "code"
}

// A directory and an image of one content have one digest; owners, times and empty directories are no part of
// it. Compiled modules of their source are marked as not to be compared with it; others are left out.
func TestOneDigest(t *testing.T) {
	entries := []tar.Header{
		dir("usr"), program("usr/sh", "#!"), file("usr/m.py", "x = 1"), file("usr/__pycache__/m.cpython-311.pyc", pyc(when, 5)),
		file("usr/old.py", "x = 2"), file("usr/__pycache__/old.cpython-311.pyc", pyc(when.Add(time.Hour), 5)),
		file("usr/__pycache__/gone.cpython-311.pyc", pyc(when, 5)), file("usr/alone.pyc", pyc(when, 5)),
		link("usr/l", "/usr/m.py"), with(file("usr/secret", "x"), 0o600), file(`usr/back\slash`, "b"), file("usr/new\nline", "n"),
	}
	at := t.TempDir()
	if err := os.MkdirAll(at+"/usr/__pycache__", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, h := range entries[1:] {
		name := filepath.Join(at, h.Name)
		if h.Typeflag == tar.TypeSymlink {
			if err := os.Symlink(h.Linkname, name); err != nil {
				t.Fatal(err)
			}
			continue
		}
		write(t, name, []byte(h.PAXRecords["TEST.text"]))
		if err := errors.Join(os.Chmod(name, os.FileMode(h.Mode)), os.Chtimes(name, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at+"/opt", 0o755); err != nil {
		t.Fatal(err)
	}
	// What a sandbox has of its own is left out of a directory too.
	for _, name := range []string{".layers", "run", "tmp"} {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(at, name, "x"), []byte("x"))
	}
	fromDir, notes, one, err := read(t, at)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(entries[1:])
	_, _, two, err := read(t, "oci:"+layout(t, runtime.GOARCH, layer(t, false, entries[:6]...), layer(t, true, entries[6:]...)))
	if err != nil || one != two {
		t.Errorf("digests %s of a directory and %s of an image, %v", one, two, err)
	}
	marked := "\xa7\r\r\n\x01\x00\x00\x00" + string(make([]byte, 8)) + "code"
	want := map[string]string{"exec usr/sh": "#!", "file usr/m.py": "x = 1", "file usr/__pycache__/m.cpython-311.pyc": marked,
		"file usr/old.py": "x = 2", "file usr/alone.pyc": marked, "link usr/l": "/usr/m.py", `file usr/back\slash`: "b"}
	if !maps.Equal(fromDir, want) {
		t.Errorf("Read = %q, want %q", fromDir, want)
	}
	if said := fmt.Sprint(notes); !strings.Contains(said, "usr/secret is left out") || !strings.Contains(said, "is left out: its name is not text") {
		t.Errorf("notes %s", said)
	}
}

// What a tree of a root file system says is what was read, and its links are followed in it alone.
func TestStored(t *testing.T) {
	store, err := environment.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	at := layout(t, runtime.GOARCH, layer(t, true, program("usr/bin/busybox", "#!"), link("usr/bin/sh", "busybox"), link("bin", "usr/bin"),
		link("usr/bin/abs", "/bin/sh"), link("usr/bin/up", "../../../../bin/sh"), link("usr/bin/out", "/etc/shadow"),
		link("usr/bin/loop", "loop"), file(`usr/back\slash`, "b"), link("usr/bin/below", "busybox/x")))
	source, err := rootfs.ParseSource("oci:" + at)
	if err != nil {
		t.Fatal(err)
	}
	manifest, _, err := rootfs.Read(t.Context(), source, store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Stage(t.Context(), manifest); err == nil {
		t.Error("links of a root file system are taken for packages")
	}
	stage, err := store.StageRoot(t.Context(), manifest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stage.Seal(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store, err = environment.Open(store.Dir())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := store.Tree(t.Context(), manifest.Digest(), "")
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		"/usr/bin/busybox": "usr/bin/busybox", "/bin/sh": "usr/bin/busybox", "/usr/bin/abs": "usr/bin/busybox",
		"/usr/bin/up": "usr/bin/busybox", "/usr/bin/out": "", "/usr/bin/loop": "", "/usr/bin": "", "/none": "",
		"/usr/bin/below": "", "/usr/bin/busybox/..": "",
	} {
		if got, ok := tree.Lookup(at); got.Path != want && (ok || want != "") {
			t.Errorf("Lookup(%s) = %q, %v, want %q", at, got.Path, ok, want)
		}
	}
	locked := &environment.LockedRoot{Programs: []environment.Program{{Name: "sh", Path: "/bin/sh", Version: "1"}, {Name: "bash", Path: "/bin/bash"}}}
	if in := rootfs.Interpreter(tree, locked, "sh"); in == nil || in.Path != "/bin/sh" || in.Digest != digest.FromString("#!").String() {
		t.Errorf("Interpreter = %+v", in)
	}
	if in := rootfs.Interpreter(tree, locked, "bash"); in != nil {
		t.Errorf("an interpreter that is not there: %+v", in)
	}
	name := filepath.Join(store.Dir(), "trees", manifest.Digest().Encoded(), "usr/bin/busybox")
	if err := os.Chmod(name, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, name, []byte("!#"))
	if _, ok := errors.AsType[*environment.ChangedError](tree.Verify(t.Context())); !ok {
		t.Error("a changed byte is not seen")
	}
}
