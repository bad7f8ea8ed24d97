package report

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// exported returns the export of a session of one event and these files.
func exported(t *testing.T, files map[string]string, wrap func(provenance.Reader) provenance.Reader, to io.Writer) {
	t.Helper()
	st, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	for name, content := range files {
		if _, err := st.Put(t.Context(), "s", name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteExport(t.Context(), to, wrap(st), "s"); err != nil {
		t.Fatal(err)
	}
}

// TestWriteExport wants every file as it was, in the form that its bytes allow, however the parts fall in which
// it is read.
func TestWriteExport(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i, content := range []string{
		"", "x", "é", "\xc3", "é\xc3", "\xff\n", "\"<&>\u2028\x00\x7f\\", "{}", " { \"a\" : [ 1, \"b \\\" c\" ] }\n", "{} x", "[1,", "1", " 12 ", `"` + "\xff" + `"`,
		strings.Repeat("é€🎈", 20_000), "x" + strings.Repeat("é€🎈", 20_000), strings.Repeat("🎈", 8192) + "\xf0", "[" + strings.Repeat(" 12 ,\n", 20_000) + "\"é\"]",
	} {
		files[fmt.Sprintf("outputs/%d.stdout", i)], files[fmt.Sprintf("outputs/%d.json", i)] = content, content
	}
	var out bytes.Buffer
	exported(t, files, func(r provenance.Reader) provenance.Reader { return r }, &out)
	for name, content := range files {
		var want bytes.Buffer
		switch {
		case path.Ext(name) == ".json" && json.Compact(&want, []byte(content)) == nil:
		case utf8.ValidString(content):
			text, err := provenance.Encode(map[string]string{"text": content})
			if err != nil {
				t.Fatal(err)
			}
			want.Write(text)
		default:
			fmt.Fprintf(&want, `{"base64":%q}`, base64.StdEncoding.EncodeToString([]byte(content)))
		}
		line := fmt.Sprintf("\n%q:%s", name, &want)
		if !strings.Contains(out.String(), line+",\n") && !strings.Contains(out.String(), line+"\n}}") {
			t.Errorf("%s of %.40q is not exported as %.80s", name, content, line)
		}
	}
}

// counting counts the bytes of files that were read and not yet written.
type counting struct {
	provenance.Reader
	io.Writer
	waiting, most int
}

func (c *counting) Stored(ctx context.Context, id, name string) (io.ReadCloser, error) {
	c.waiting = 0
	file, err := c.Reader.Stored(ctx, id, name)
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(file, writes(func(n int) { c.waiting += n })), file}, err
}

func (c *counting) Write(p []byte) (int, error) {
	// Words of the export itself come before what is read.
	if len(p) > 64 {
		c.most = max(c.most, c.waiting)
	}
	c.waiting = 0
	return len(p), nil
}

type writes func(n int)

func (w writes) Write(p []byte) (int, error) { w(len(p)); return len(p), nil }

// TestWriteExportStreams wants long files written as they are read.
func TestWriteExportStreams(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	for name, content := range map[string]string{
		"outputs/o.json": "[" + strings.Repeat("1,", size/2) + "1]", "outputs/o.stdout": strings.Repeat("text", size/4),
		"outputs/o.bin": strings.Repeat("\xff", size),
	} {
		c := &counting{}
		exported(t, map[string]string{name: content}, func(r provenance.Reader) provenance.Reader { c.Reader = r; return c }, c)
		if c.most > 256<<10 {
			t.Errorf("%s: %d bytes of %d were read before they were written", name, c.most, size)
		}
	}
}

// TestWriteJSON wants the same value back, and nothing in between that a terminal obeys.
func TestWriteJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "plain", "äöü 中文 🎈", "a\x1b[2Jb", "\u009b31m", "\u202egnp", "\u2028\u2029", "\x7f",
		"\u200b\ufeff", "\U000e0041tag", "\\u009b", "\u009b\u009b\u202e", "\ufffd", "end\u009b",
	} {
		var out bytes.Buffer
		if err := WriteJSON(&out, map[string]string{text: text}); err != nil {
			t.Fatalf("WriteJSON(%q): %v", text, err)
		}
		if shown := Printable(strings.ReplaceAll(out.String(), "\n", "")); shown != strings.ReplaceAll(
			out.String(), "\n", "") {
			t.Errorf("WriteJSON(%q) = %q: a terminal obeys it", text, out.String())
		}
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back) != 1 || back[text] != text {
			t.Errorf("WriteJSON(%q) is read as %q, %v", text, back, err)
		}
	}
}

// Rows that are encoded at the same time are written as a list that is encoded at once.
func TestWriteRows(t *testing.T) {
	t.Parallel()
	type row struct {
		Name string   `json:"name"`
		List []string `json:"list"`
	}
	for _, n := range []int{0, 1, rowsAtOnce, rowsAtOnce + 1, 5*rowsAtOnce + 3} {
		rows := []row{}
		for i := range n {
			rows = append(rows, row{fmt.Sprintf("<%d>\u202e\x7f", i), []string{"]", "\n]\n"}[:i%3]})
		}
		var want, got bytes.Buffer
		if err := WriteJSON(&want, rows); err != nil {
			t.Fatal(err)
		}
		if err := WriteRows(t.Context(), &got, rows); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Errorf("%d rows are written as\n%s", n, got.String())
		}
	}
	if err := WriteRows(t.Context(), io.Discard, make([]func(), rowsAtOnce+1)); err == nil {
		t.Error("functions are written")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WriteRows(ended, io.Discard, make([]row, rowsAtOnce+1)); err == nil {
		t.Error("a command that was ended writes a part of its rows")
	}
}
