package source_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/source"
)

// Signatures of the parts of an archive.
const (
	local   = "PK\x03\x04"
	central = "PK\x01\x02"
	end     = "PK\x05\x06"
)

// patch writes b at an offset after the n-th part with a signature, counted from 0.
func patch(t testing.TB, archive []byte, signature string, n, offset int, b ...byte) []byte {
	t.Helper()
	at := -1
	for ; n >= 0; n-- {
		next := bytes.Index(archive[at+1:], []byte(signature))
		if next < 0 {
			t.Fatalf("the archive has no further %q", signature)
		}
		at += next + 1
	}
	archive = bytes.Clone(archive)
	copy(archive[at+offset:], b)
	return archive
}

// raw makes an archive of one entry whose header may lie about its data.
func raw(t testing.TB, header zip.FileHeader, data string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	part, err := w.CreateRaw(&header)
	if err == nil {
		_, err = part.Write([]byte(data))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func special(name string, mode fs.FileMode) entry {
	e := file(name, "/etc/passwd")
	e.SetMode(mode)
	return e
}

// deep is a name of n segments.
func deep(n int) string { return strings.Repeat("d/", n-1) + "f" }

// unicodeName is an extra field that gives an entry another name.
func unicodeName(name string) []byte {
	field := binary.LittleEndian.AppendUint16(nil, 0x7075)
	field = binary.LittleEndian.AppendUint16(field, uint16(5+len(name)))
	return append(append(field, 1, 0, 0, 0, 0), name...)
}

// Every rule of the package comment, by an archive that breaks it.
func TestRules(t *testing.T) {
	t.Parallel()
	one := pack(t, file("a.txt", "content"))
	two := pack(t, file("a.txt", "content"), file("b.txt", "content"))
	stored := raw(t, zip.FileHeader{Name: "a.txt", CompressedSize64: 7, UncompressedSize64: 7,
		CRC32: crc32.ChecksumIEEE([]byte("content"))}, "content")
	for name, test := range map[string]struct {
		archive []byte
		want    string // a part of the error; empty: the archive is good
	}{
		"good":             {two, ""},
		"good, stored":     {stored, ""},
		"good, comment":    {append(patch(t, one, end, 0, 20, 40, 0), strings.Repeat("c", 40)...), ""},
		"good, directory":  {pack(t, file("a/", ""), file("a/b", "")), ""},
		"good, unicode":    {pack(t, file("é/ß", ""), file("e/ss", "")), ""},
		"good, depth":      {pack(t, file(deep(64), "")), ""},
		"good, ratio":      {pack(t, file("a", strings.Repeat("0", 1<<20))), ""},
		"good, same field": {pack(t, entry{zip.FileHeader{Name: "a", Extra: unicodeName("a")}, ""}), ""},

		"empty":        {nil, "has no end record"},
		"no archive":   {[]byte("---\nname: demo\n---\n"), "has no end record"},
		"cut":          {one[:len(one)-1], "has no end record"},
		"bytes before": {append([]byte("#!/bin/sh\n"), one...), "bytes that belong to no part"},
		"bytes after":  {append(bytes.Clone(one), '\n'), "continues after its end"},
		"bytes between": {bytes.Replace(one, []byte(end), append([]byte("xx"), end...), 1),
			"bytes that belong to no part"},
		"two archives":       {append(bytes.Clone(one), two...), "bytes that belong to no part"},
		"volume":             {patch(t, one, end, 0, 4, 1), "several volumes"},
		"entry in a volume":  {patch(t, one, central, 0, 34, 1), "is in another volume"},
		"zip64 locator":      {patch(t, one, end, 0, -20, []byte("PK\x06\x07")...), "ZIP64"},
		"count too high":     {patch(t, two, end, 0, 8, 3, 0, 3, 0), "other than the 3 records"},
		"count too low":      {patch(t, two, end, 0, 8, 1, 0, 1, 0), "other than the 1 records"},
		"record without end": {patch(t, one, central, 0, 30, 0xff, 0x7f), "other than the 1 records"},
		"too many entries":   {patch(t, two, end, 0, 8, 0x51, 0xc3, 0x51, 0xc3), "more than 50000 entries"},
		"too large together": {forged(t, 6, 1<<30), "that all files together may have"},
		"grows": {pack(t, file("bomb", strings.Repeat("0", 4<<20))),
			"grows more than 200-fold"},
		"shares bytes": {patch(t, patch(t, two, central, 1, 42, 0, 0, 0, 0), central, 1, 46, 'a'),
			"overlaps another entry"},
		"outside": {patch(t, one, central, 0, 42, 0xff, 0xff, 0xff, 0x7f),
			"lies outside of the archive"},
		"data outside": {patch(t, patch(t, one, central, 0, 20, 0xff), central, 0, 21, 0xff),
			"lies outside of the archive"},
		"no header":        {patch(t, one, local, 0, 0, 'X'), "has no header before its data"},
		"other name":       {patch(t, one, local, 0, 30, 'b'), "another name before its data"},
		"other method":     {patch(t, one, local, 0, 8, 0), "another method or other flags"},
		"encrypted header": {patch(t, one, local, 0, 6, 9), "another method or other flags"},
		"encrypted":        {patch(t, patch(t, one, central, 0, 8, 9), local, 0, 6, 9), "is encrypted"},
		"other size":       {patch(t, stored, local, 0, 22, 8), "other sizes or another checksum"},
		"other checksum":   {patch(t, stored, local, 0, 14, 0), "other sizes or another checksum"},
		"no checksum": {patch(t, patch(t, stored, central, 0, 16, 0, 0, 0, 0), local, 0, 14, 0, 0, 0,
			0), "has no checksum"},
		"unknown method": {raw(t, zip.FileHeader{Name: "a", Method: 12}, ""), "method 12"},
		"stored, other size": {raw(t, zip.FileHeader{Name: "a", CRC32: 1, CompressedSize64: 1,
			UncompressedSize64: 9}, "x"), "stored with another size"},
		"field, other name": {pack(t, entry{zip.FileHeader{Name: "a", Extra: unicodeName("../a")}, ""}),
			"another name in an extra field"},
		"field before data": {patch(t, pack(t,
			entry{zip.FileHeader{Name: "a", Extra: unicodeName("a")},
				""}), local, 0, 30+1+4+5, 'b'), "another name before its data"},
		"directory with bytes": {patch(t, pack(t, file("a/", "")), central, 0, 24, 1),
			"is a directory with content"},

		"link": {pack(t, special("a", fs.ModeSymlink|0o777)),
			"is a link that leads out of the archive"},
		"link as a directory": {raw(t, zip.FileHeader{Name: "a/", CreatorVersion: 3 << 8,
			ExternalAttrs: 0o120777 << 16}, ""), "neither a regular file nor a directory"},
		"FIFO": {pack(t, special("a", fs.ModeNamedPipe|0o666)),
			"neither a regular file nor a directory"},
		"device": {pack(t, special("a", fs.ModeDevice|0o666)),
			"neither a regular file nor a directory"},
		"socket": {pack(t, special("a", fs.ModeSocket|0o666)),
			"neither a regular file nor a directory"},
		"directory as a file": {pack(t, special("a", fs.ModeDir|0o755)),
			"neither a regular file nor a directory"},
		"no name":              {pack(t, file("", "")), "must be non-empty"},
		"no name, directory":   {pack(t, file("/", "")), "must be non-empty"},
		"parent":               {pack(t, file("../a", "")), "must stay within"},
		"parent within":        {pack(t, file("a/../../b", "")), "must stay within"},
		"absolute":             {pack(t, file("/etc/passwd", "")), "must be relative"},
		"dot":                  {pack(t, file("./a", "")), "empty or . segments"},
		"double slash":         {pack(t, file("a//b", "")), "empty or . segments"},
		"backslash":            {pack(t, file(`a\b`, "")), "must use /"},
		"drive":                {pack(t, file("c:/a", "")), "drive"},
		"NUL":                  {pack(t, file("a\x00.txt", "")), "control characters"},
		"newline":              {pack(t, file("a\nerror: b", "")), "control characters"},
		"not UTF-8":            {pack(t, file("a\xff", "")), "must be UTF-8"},
		"too deep":             {pack(t, file(deep(65), "")), "too deep"},
		"twice":                {pack(t, file("a", "1"), file("a", "2")), "is a duplicate"},
		"directory twice":      {pack(t, file("a/", ""), file("a/", "")), "is a duplicate"},
		"file and directory":   {pack(t, file("a", ""), file("a/b", "")), "both a file and a directory"},
		"directory and file":   {pack(t, file("a/b", ""), file("a", "")), "both a file and a directory"},
		"case":                 {pack(t, file("SKILL.md", ""), file("skill.md", "")), "only in case"},
		"case of a directory":  {pack(t, file("Demo/a", ""), file("demo/b", "")), "only in case"},
		"case beyond ASCII":    {pack(t, file("É", ""), file("é", "")), "only in case"},
		"Kelvin":               {pack(t, file("K", ""), file("k", "")), "only in case"},
		"composed":             {pack(t, file("e\u0301/a", ""), file("\u00e9/b", "")), "Unicode form"},
		"composed, other case": {pack(t, file("E\u0301", ""), file("\u00e9", "")), "Unicode form"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z, path := open(t, test.archive)
			_, err := fs.ReadDir(z, ".")
			if test.want == "" {
				if err != nil {
					t.Errorf("a good archive is refused: %v", err)
				}
				return
			}
			var refused *archive.Error
			if !errors.As(err, &refused) || !strings.Contains(fmt.Sprint(refused.Problems), test.want) {
				t.Fatalf("error = %v, want %q", err, test.want)
			}
			if text := err.Error(); strings.Contains(text, filepath.Dir(path)) ||
				strings.ContainsAny(text, "\n\r\x00\x1b") || !utf8.ValidString(text) {
				t.Errorf("error = %q", text)
			}
			if _, err := z.Version(t.Context()); err == nil {
				t.Error("an archive that is refused has a version")
			}
		})
	}
}

// forged says of n entries that they have size bytes.
func forged(t testing.TB, n int, size uint32) []byte {
	t.Helper()
	var entries []entry
	for i := range n {
		entries = append(entries, file(string(rune('a'+i)), ""))
	}
	archive := pack(t, entries...)
	for i := range n {
		archive = patch(t, archive, central, i, 24, binary.LittleEndian.AppendUint32(nil, size)...)
	}
	return archive
}

// All problems are told, up to a number, and the text stays short.
func TestReport(t *testing.T) {
	t.Parallel()
	var entries []entry
	for i := range 300 {
		entries = append(entries, file(fmt.Sprintf("../%d%s", i, strings.Repeat("ü", 2000)), ""))
	}
	z, _ := open(t, pack(t, entries...))
	_, err := z.Pin()
	var refused *archive.Error
	if !errors.As(err, &refused) || len(refused.Problems) != 100 || refused.More != 200 {
		t.Fatalf("error = %.200v", err)
	}
	if text := refused.Error(); len(text) > 4000 || !strings.HasSuffix(text, "; and 295 more problems") ||
		refused.Problems[99].Entry != entries[99].Name {
		t.Errorf("error = %d bytes, %s", len(text), text)
	}
}

// What the directory promises and the data do not keep is an error of the read.
func TestDataIsHeldToDirectory(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("content ", 1000)
	good := pack(t, file("a.txt", body))
	size := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	descriptor := "PK\x07\x08"
	for name, archive := range map[string][]byte{
		"longer than said":  patch(t, good, central, 0, 24, size(100)...),
		"shorter than said": patch(t, good, central, 0, 24, size(9000)...),
		"other checksum":    patch(t, good, central, 0, 16, 1, 2, 3, 4),
		"broken stream":     patch(t, good, descriptor, 0, -20, 0xff, 0xff, 0xff, 0xff, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z, path := open(t, archive)
			data, err := fs.ReadFile(z, "a.txt")
			if err == nil || len(data) > len(body) {
				t.Errorf("read %d bytes, %v", len(data), err)
			}
			if strings.Contains(fmt.Sprint(err), filepath.Dir(path)) {
				t.Errorf("the error names the place: %v", err)
			}
		})
	}
}

// A file that is no regular one is not waited for, and one that is too large is not read.
func TestZipIsOddFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := source.NewZip(dir).Open("."); err == nil {
		t.Error("a directory is an archive")
	}
	path := filepath.Join(dir, "large.zip")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30+1); err != nil {
		t.Skipf("missing capability: sparse files: %v", err)
	}
	var refused *archive.Error
	if _, err := source.NewZip(path).Open("."); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "more than 1073741824 bytes") {
		t.Errorf("error = %v", err)
	}
}

// FuzzZip has archives of any bytes: what is accepted is a file system that can be walked and read
// within its limits, each file as long as it says.
func FuzzZip(f *testing.F) {
	good := pack(f, file("demo/SKILL.md", skill), script("demo/scripts/ok.sh", "#!/bin/sh\n"),
		file("demo/d/", ""))
	for _, seed := range [][]byte{
		nil, pack(f), good, patch(f, good, central, 1, 42, 0, 0, 0, 0), patch(f, good, end, 0, 8, 9, 0, 9, 0),
		forged(f, 2, 1<<31),
		patch(f, good, central, 0, 46, '.', '.', '/'), pack(f, special("l", fs.ModeSymlink|0o777)),
		raw(f, zip.FileHeader{Name: "s", CRC32: crc32.ChecksumIEEE([]byte("xy")), CompressedSize64: 2,
			UncompressedSize64: 2}, "xy"),
	} {
		f.Add(seed)
	}
	path := filepath.Join(f.TempDir(), "fuzz.zip")
	f.Fuzz(func(t *testing.T, archive []byte) {
		write(t, path, archive)
		z := source.NewZip(path)
		defer z.Close()
		if _, err := z.Open("."); err != nil {
			return
		}
		err := fs.WalkDir(z, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			if !fs.ValidPath(name) || strings.Contains(name, `\`) || !e.Type().IsRegular() {
				t.Errorf("%q is a %v", name, e.Type())
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if data, err := fs.ReadFile(z, name); err == nil && int64(len(data)) != info.Size() {
				t.Errorf("%q has %d bytes, read %d", name, info.Size(), len(data))
			}
			return nil
		})
		if err != nil {
			t.Errorf("walk = %v", err)
		}
	})
}
