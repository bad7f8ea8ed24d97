package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/archive"
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
func untar(t testing.TB, packed []byte) (string, error) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return dir, archive.Untar(bytes.NewReader(packed), int64(len(packed)), root)
}

func TestUntar(t *testing.T) {
	t.Parallel()
	plain := tarPack(t, member{tar.Header{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader,
		PAXRecords: map[string]string{"comment": "6ce3b31c"}}, ""},
		tarOf(tar.TypeDir, "./", ""), tarOf(tar.TypeDir, "./demo/", ""),
		tarOf(tar.TypeSymlink, "demo/AGENTS.md", "SKILL.md"), tarFile("./demo/SKILL.md", "# Demo"),
		member{tar.Header{Name: "demo/scripts/run.sh", Mode: 0o755, Typeflag: tar.TypeReg}, "#!/bin/sh\n"})
	for name, packed := range map[string][]byte{"plain": plain, "gzip": packGzip(t, plain),
		"padded": append(bytes.Clone(plain), make([]byte, 10240)...)} {
		dir, err := untar(t, packed)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "demo", "AGENTS.md"))
		if err != nil || string(text) != "# Demo" {
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
		packed []byte
		want   string
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
		dir, err := untar(t, test.packed)
		if bad, ok := errors.AsType[*archive.Error](err); !ok || !strings.Contains(bad.Error(), test.want) ||
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

// layered extracts layers, and returns the names at the top and the names that were left out.
func layered(t testing.TB, layers ...[]byte) (top, left []string, err error) {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	rules := archive.Skill()
	rules.Layer, rules.Left = true, func(name string) { left = append(left, name) }
	x := archive.NewExtraction(root, rules, len(layers))
	for _, packed := range layers {
		if err := x.Layer(bytes.NewReader(packed), int64(len(packed))); err != nil {
			return nil, left, err
		}
	}
	err = x.Finish()
	top, _ = fs.Glob(root.FS(), "*")
	return top, left, err
}

// A layer leaves out what no skill can have, and removes names of the layers below; it is held to the same
// rules otherwise.
func TestLayers(t *testing.T) {
	t.Parallel()
	below := tarPack(t, tarFile("gone", ""), tarFile("x/y", ""), tarFile("z/y", ""), tarOf(tar.TypeSymlink, "l", "z"))
	upper := tarPack(t, tarFile("a", ""), tarOf(tar.TypeLink, "b", "a"), tarOf(tar.TypeChar, "c", ""),
		tarOf(tar.TypeSymlink, "d", "/etc"), tarOf(tar.TypeSymlink, "e", "../../x"), tarFile("x/.wh.y", ""),
		tarFile("z/.wh..wh..opq", ""), tarFile(".wh...", ""), tarFile(".wh.", ""), tarFile(".wh.gone", ""),
		tarFile(".wh..wh.plnk", ""))
	top, left, err := layered(t, below, upper)
	if want := []string{"a", "l", "x", "z"}; err != nil || !slices.Equal(top, want) {
		t.Errorf("names = %q, %v, want %q", top, err, want)
	}
	if want := []string{"b", "c", "d", "e"}; !slices.Equal(left, want) {
		t.Errorf("left out %q, want %q", left, want)
	}
	for name, members := range map[string][]member{"up": {tarFile("../x", "")}, "case": {tarFile("a", ""), tarFile("A", "")},
		"whiteout up": {tarFile("../.wh.x", "")}, "sparse": {tarOf(tar.TypeGNUSparse, "s", "")},
		"case of another layer": {tarFile("GONE", "")}, "the directory of the extraction": {tarFile(archive.Work+"/1", "")}} {
		if _, _, err := layered(t, below, tarPack(t, members...)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	// A type in the mode that contradicts the type of the entry is ignored.
	odd := tarFile("f", "")
	odd.Mode |= 0o040000
	if _, _, err := layered(t, tarPack(t, odd, tarFile("f/x", ""))); err == nil {
		t.Error("a file below a file is accepted")
	}
}

// FuzzUntar extracts any bytes: nothing is written outside of the directory, and what is accepted is plain.
func FuzzUntar(f *testing.F) {
	good := tarPack(f, tarOf(tar.TypeDir, "d/", ""), tarFile("d/a", "b"), tarOf(tar.TypeSymlink, "d/l", "a"))
	f.Add(good)
	f.Add(packGzip(f, good))
	f.Add(tarPack(f, tarFile("../x", "y")))
	f.Add(tarPack(f, tarOf(tar.TypeSymlink, "a", ".."), tarFile("a/x", "y")))
	f.Fuzz(func(t *testing.T, packed []byte) {
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
		err = archive.Untar(bytes.NewReader(packed), int64(len(packed)), root)
		if left, _ := os.ReadDir(top); len(left) != 1 {
			t.Fatalf("%d entries next to the directory", len(left))
		}
		if err != nil {
			return
		}
		plainTree(t, dir)
	})
}

// plainTree fails if a tree has other than files, directories and links.
func plainTree(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
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
}

// FuzzLayers extracts any bytes as a layer over another one.
func FuzzLayers(f *testing.F) {
	below := tarPack(f, tarFile("a", ""), tarFile("x/y", ""), tarOf(tar.TypeSymlink, "l", "x"))
	f.Add(below)
	f.Add(tarPack(f, tarFile(".wh.a", ""), tarFile("x/.wh..wh..opq", ""), tarFile("l/z", "")))
	f.Add(tarPack(f, tarOf(tar.TypeLink, "h", "a"), tarFile("l/.wh.y", ""), tarFile(archive.Work+"/0", "")))
	f.Fuzz(func(t *testing.T, packed []byte) {
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
		rules := archive.Skill()
		rules.Layer, rules.Left = true, func(string) {}
		x := archive.NewExtraction(root, rules, 2)
		for _, layer := range [][]byte{below, packed} {
			if err = x.Layer(bytes.NewReader(layer), int64(len(layer))); err != nil {
				break
			}
		}
		if err == nil {
			if err := x.Finish(); err != nil && !strings.Contains(err.Error(), "the extraction") {
				t.Errorf("Finish = %v", err)
			}
		}
		if left, _ := os.ReadDir(top); len(left) != 1 {
			t.Fatalf("%d entries next to the directory", len(left))
		}
		plainTree(t, dir)
	})
}

// sparse is an archive of one file with a hole of size bytes before its end.
func sparse(t testing.TB, size int64) []byte {
	t.Helper()
	packed := tarPack(t, member{tar.Header{Name: "s", Mode: 0o644, Typeflag: tar.TypeReg, Format: tar.FormatGNU}, ""})
	const kind, regions, realSize, sum = 156, 386, 483, 148
	packed[kind] = tar.TypeGNUSparse
	octal := func(at int, n int64) { copy(packed[at:], fmt.Appendf(nil, "%011o\x00", n)) }
	octal(regions, size)
	octal(regions+12, 0)
	octal(realSize, size)
	copy(packed[sum:], "        ")
	total := 0
	for _, b := range packed[:512] {
		total += int(b)
	}
	copy(packed[sum:], fmt.Appendf(nil, "%06o\x00 ", total))
	return packed
}

// The holes of a sparse file, which cost its publisher no byte, are bytes of the file.
func TestSparse(t *testing.T) {
	t.Parallel()
	rules := archive.Rules{Entries: 10, Total: 1 << 30, Free: 1 << 20, Layer: true, System: true}
	read := func(size int64) (got int64, err error) {
		packed := sparse(t, size)
		err = archive.Tar(bytes.NewReader(packed), int64(len(packed)), &rules, func(e *archive.Entry, in io.Reader) error {
			got, err = io.Copy(io.Discard, in)
			return err
		})
		return got, err
	}
	if got, err := read(1 << 19); got != 1<<19 || err != nil {
		t.Errorf("read %d bytes, %v", got, err)
	}
	if got, err := read(1 << 32); got != 0 || err == nil || !strings.Contains(err.Error(), "grows too much") {
		t.Errorf("read %d bytes, %v", got, err)
	}
	if _, err := untar(t, sparse(t, 1)); err == nil || !strings.Contains(err.Error(), "is a sparse file") {
		t.Errorf("a sparse file of a skill: %v", err)
	}
}
