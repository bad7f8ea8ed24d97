package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func readAll(in io.Reader, limit int) ([]string, error) {
	r := newLineReader(in, limit)
	var got []string
	for {
		line, err := r.next()
		switch {
		case errors.Is(err, errLineTooLong):
			got = append(got, "TOO LONG")
		case err != nil:
			return got, err
		default:
			got = append(got, string(line))
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 3*readBuffer)
	tests := []struct {
		name, in string
		limit    int
		want     []string
	}{
		{"empty", "", 10, nil},
		{"lines", "a\nbc\n", 10, []string{"a", "bc"}},
		{"no last newline", "a\nbc", 10, []string{"a", "bc"}},
		{"blank lines", "\n\r\n\n", 10, []string{"", "\r", ""}},
		{"nul and bad utf-8", "a\x00\n\xff\n", 10, []string{"a\x00", "\xff"}},
		{"byte order mark", "\xef\xbb\xbfa\n\xef\xbb\xbfb\n", 10, []string{"a", "\xef\xbb\xbfb"}},
		{"at the limit", "1234\n12345\n123456\n1\n", 5, []string{"1234", "12345", "TOO LONG", "1"}},
		{"too long at the end", "1\n123456", 5, []string{"1", "TOO LONG"}},
		{"longer than the buffer", long + "\n" + long + "x\nb", 3 * readBuffer, []string{long, "TOO LONG", "b"}},
	}
	for _, tt := range tests {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytewise": iotest.OneByteReader, "data with error": iotest.DataErrReader,
		} {
			got, err := readAll(wrap(strings.NewReader(tt.in)), tt.limit)
			if err != io.EOF || !slices.Equal(got, tt.want) {
				t.Errorf("%s, %s: %q, %v, want %q, EOF", tt.name, name, got, err, tt.want)
			}
		}
	}
}

func TestLinesReadError(t *testing.T) {
	broken := errors.New("broken")
	got, err := readAll(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 10)
	if !errors.Is(err, broken) || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("readAll() = %q, %v", got, err)
	}
}

// repeat is n bytes made of text, never held as a whole.
type repeat struct {
	text string
	n    int
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && r.n > 0 {
		k := copy(p[n:min(len(p), n+r.n)], r.text)
		n, r.n = n+k, r.n-k
	}
	return n, nil
}

// All memory ever allocated bounds what a line costs.
func TestLongLineCostsLittle(t *testing.T) {
	const mib = 1 << 20
	out := new(lineLog)
	in := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping","params":"`),
		&repeat{strings.Repeat("x", 1<<16), 60 * mib}, strings.NewReader("\"}\n"+`{"jsonrpc":"2.0","id":2,"method":"ping"}`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := ServeStdio(t.Context(), &testServer().Dispatcher, &StdioOptions{In: in, Out: out, Drain: time.Hour}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if cost := (after.TotalAlloc - before.TotalAlloc) / mib; cost >= 32 {
		t.Errorf("a line of 60 MiB cost %d MiB", cost)
	}
	want := []string{
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"message too long"}}`, `{"jsonrpc":"2.0","id":2,"result":{}}`,
	}
	if got := out.take(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJunkSurvives(t *testing.T) {
	var block bytes.Buffer
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		for range random.IntN(10_000) {
			block.WriteByte(byte(random.UintN(256)))
		}
		block.WriteString("\n" + `{"jsonrpc":"2.0","id":` + "\n")
	}
	out := new(counter)
	in := io.MultiReader(&repeat{block.String(), 10 << 20}, strings.NewReader("\n"+`{"jsonrpc":"2.0","id":"last","method":"ping"}`))
	if err := ServeStdio(t.Context(), &testServer().Dispatcher, &StdioOptions{In: in, Out: out, Drain: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if want := `{"jsonrpc":"2.0","id":"last","result":{}}` + "\n"; out.last != want || out.n < 1_000 {
		t.Errorf("%d answers, the last %q, want %q", out.n, out.last, want)
	}
}

type counter struct {
	n    int
	last string
}

func (c *counter) Write(p []byte) (int, error) {
	c.n++
	c.last = string(p)
	return len(p), nil
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb"), uint8(3))
	f.Add([]byte("\xef\xbb\xbf\r\n\n1234567\n"), uint8(4))
	f.Fuzz(func(t *testing.T, in []byte, limit uint8) {
		var want []string
		for line := range bytes.Lines(in) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			if len(line) > int(limit) {
				want = append(want, "TOO LONG")
				continue
			}
			if len(want) == 0 || !slices.ContainsFunc(want, func(s string) bool { return s != "TOO LONG" }) {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			}
			want = append(want, string(line))
		}
		got, err := readAll(iotest.HalfReader(bytes.NewReader(in)), int(limit))
		if err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("readAll(%q) = %q, %v, want %q", in, got, err, want)
		}
	})
}

func FuzzServe(f *testing.F) {
	f.Add([]byte(initialize + "\n" + callLine("1", "ask", "") + "\n" + cancelLine("1")))
	f.Add([]byte(listenLine("1", `{"toolsListChanged":true}`) + "\n" + callLine("1", "progress", "")))
	f.Add([]byte(fmt.Sprintf("[\n{}\n\x00\n%s\r\n", callLine(`"a"`, "panic", ""))))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := new(lineLog)
		opts := &StdioOptions{}
		opts.In, opts.Out, opts.Drain = bytes.NewReader(in), out, 10e6
		if err := ServeStdio(t.Context(), fixture(testServer()), opts); err != nil {
			t.Errorf("ServeStdio(%q) = %v", in, err)
		}
		if len(out.bad) > 0 {
			t.Errorf("ServeStdio(%q) wrote %q", in, out.bad)
		}
	})
}
