package source_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills/source"
)

// member is an entry of a tar archive; its size is that of its body.
type member struct {
	tar.Header
	body string
}

func tarFile(name, body string) member {
	return member{tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, body}
}

func tarOf(kind byte, name, link string) member {
	return member{tar.Header{Name: name, Mode: 0o755, Typeflag: kind, Linkname: link}, ""}
}

func tarPack(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		m.Size = int64(len(m.body))
		err := w.WriteHeader(&m.Header)
		if err == nil {
			_, err = w.Write([]byte(m.body))
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

func packGzip(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// untar extracts an archive into a new directory and returns its place.
func untar(t testing.TB, archive []byte) (string, error) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return dir, source.Untar(bytes.NewReader(archive), int64(len(archive)), root)
}

func TestUntar(t *testing.T) {
	t.Parallel()
	plain := tarPack(t, member{tar.Header{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader,
		PAXRecords: map[string]string{"comment": "6ce3b31c"}}, ""},
		tarOf(tar.TypeDir, "./", ""), tarOf(tar.TypeDir, "./demo/", ""),
		tarOf(tar.TypeSymlink, "demo/AGENTS.md", "SKILL.md"), tarFile("./demo/SKILL.md", skill),
		member{tar.Header{Name: "demo/scripts/run.sh", Mode: 0o755, Typeflag: tar.TypeReg}, "#!/bin/sh\n"})
	for name, archive := range map[string][]byte{"plain": plain, "gzip": packGzip(t, plain),
		"padded": append(bytes.Clone(plain), make([]byte, 10240)...)} {
		dir, err := untar(t, archive)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "demo", "AGENTS.md"))
		if err != nil || string(text) != skill {
			t.Errorf("%s: AGENTS.md = %q, %v", name, text, err)
		}
		info, err := os.Stat(filepath.Join(dir, "demo", "scripts", "run.sh"))
		if err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%s: run.sh: %v, %v", name, info, err)
		}
	}
}

// An archive that breaks a rule is refused.
func TestHostileTar(t *testing.T) {
	t.Parallel()
	good := tarPack(t, tarFile("a", "b"))
	deep := strings.Repeat("d/", 64) + "f"
	for name, test := range map[string]struct {
		archive []byte
		want    string
	}{
		"up":             {tarPack(t, tarFile("../x", "")), "is refused"},
		"absolute":       {tarPack(t, tarFile("/etc/x", "")), "is refused"},
		"backslash":      {tarPack(t, tarFile(`a\b`, "")), "is refused"},
		"control":        {tarPack(t, tarFile("a\nb", "")), "is refused"},
		"deep":           {tarPack(t, tarFile(deep, "")), "too deep"},
		"twice":          {tarPack(t, tarFile("a", ""), tarFile("./a", "")), "duplicate"},
		"case":           {tarPack(t, tarFile("a", ""), tarFile("A", "")), "differs from another only in case"},
		"file and dir":   {tarPack(t, tarFile("a", ""), tarFile("a/b", "")), "both a file and a directory"},
		"through a link": {tarPack(t, tarOf(tar.TypeSymlink, "a", "b"), tarFile("a/x", "")), "both a file and"},
		"link out":       {tarPack(t, tarOf(tar.TypeSymlink, "d/a", "../../x")), "leads out"},
		"absolute link":  {tarPack(t, tarOf(tar.TypeSymlink, "a", "/etc/passwd")), "leads out"},
		"hard link":      {tarPack(t, tarFile("a", ""), tarOf(tar.TypeLink, "b", "a")), "neither a regular file"},
		"device":         {tarPack(t, tarOf(tar.TypeChar, "a", "")), "neither a regular file"},
		"fifo":           {tarPack(t, tarOf(tar.TypeFifo, "a", "")), "neither a regular file"},
		"bomb": {packGzip(t, tarPack(t, tarFile("a", strings.Repeat("\x00", 8<<20)))),
			"past the bytes"},
		"zeros":      {packGzip(t, append(bytes.Clone(good), make([]byte, 32<<20)...)), "does not end"},
		"two in one": {append(bytes.Clone(good), good...), "continues after its end"},
		"cut":        {good[:700], "has no end"},
		"cut gzip":   {packGzip(t, good)[:40], "cannot be read"},
		"no archive": {[]byte("hello, this is no archive"), "cannot be read"},
	} {
		dir, err := untar(t, test.archive)
		if bad, ok := errors.AsType[*source.ArchiveError](err); !ok || !strings.Contains(bad.Error(), test.want) ||
			!strings.HasPrefix(bad.Error(), "not a usable tar archive: ") {
			t.Errorf("%s: error = %v, want %q", name, err, test.want)
		}
		if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) > 1000 {
			t.Errorf("%s: %d files", name, len(left))
		}
	}
	sum := packGzip(t, good)
	sum[len(sum)-5] ^= 1
	if _, err := untar(t, sum); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a wrong checksum of gzip: %v", err)
	}
}

// A layer leaves out what no skill can have, and says what it removes; it is held to the same rules otherwise.
func TestUntarLayer(t *testing.T) {
	t.Parallel()
	layer := func(members ...member) (*source.Layer, []string, error) {
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		archive := tarPack(t, members...)
		got, err := source.UntarLayer(bytes.NewReader(archive), int64(len(archive)), root)
		names, _ := fs.Glob(root.FS(), "*")
		return got, names, err
	}
	got, names, err := layer(tarFile("a", ""), tarOf(tar.TypeLink, "b", "a"), tarOf(tar.TypeChar, "c", ""),
		tarOf(tar.TypeSymlink, "d", "/etc"), tarOf(tar.TypeSymlink, "e", "../../x"), tarFile("x/.wh.y", ""),
		tarFile("x/.wh..wh..opq", ""), tarFile(".wh...", ""), tarFile(".wh.", ""))
	want := &source.Layer{Gone: []string{"x/y"}, Opaque: []string{"x"}, Left: []string{"b", "c", "d", "e"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("names %q, error %v\n%s", names, err, diff)
	}
	for name, members := range map[string][]member{"up": {tarFile("../x", "")}, "case": {tarFile("a", ""), tarFile("A", "")},
		"whiteout up": {tarFile("../.wh.x", "")}} {
		if _, _, err := layer(members...); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// FuzzUntar extracts any bytes: nothing is written outside of the directory, and what is accepted is plain.
func FuzzUntar(f *testing.F) {
	good := tarPack(f, tarOf(tar.TypeDir, "d/", ""), tarFile("d/a", "b"), tarOf(tar.TypeSymlink, "d/l", "a"))
	f.Add(good)
	f.Add(packGzip(f, good))
	f.Add(tarPack(f, tarFile("../x", "y")))
	f.Add(tarPack(f, tarOf(tar.TypeSymlink, "a", ".."), tarFile("a/x", "y")))
	f.Fuzz(func(t *testing.T, archive []byte) {
		top := t.TempDir()
		dir := filepath.Join(top, "into")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		err = source.Untar(bytes.NewReader(archive), int64(len(archive)), root)
		if left, _ := os.ReadDir(top); len(left) != 1 {
			t.Fatalf("%d entries next to the directory", len(left))
		}
		if err != nil {
			return
		}
		err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if kind := e.Type(); kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink {
				t.Errorf("%q is %v", path, kind)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
