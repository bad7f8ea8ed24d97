package wire

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

var benchArguments = `{"text":"` + strings.Repeat("x", 200) + `"}`

// BenchmarkDispatch is a call without a transport.
func BenchmarkDispatch(b *testing.B) {
	d, line := &testServer().Dispatcher, []byte(callLine("1", "echo", benchArguments))
	b.ReportAllocs()
	for b.Loop() {
		if d.dispatch(b.Context(), line) == nil {
			b.Fatal("no answer")
		}
	}
}

// BenchmarkServeStdio is a round trip through two in-memory pipes.
func BenchmarkServeStdio(b *testing.B) {
	in, feed := io.Pipe()
	read, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- ServeStdio(b.Context(), &testServer().Dispatcher, &StdioOptions{In: in, Out: out})
	}()
	line := []byte(callLine("1", "echo", benchArguments) + "\n")
	answers := bufio.NewReader(read)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := feed.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := answers.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	feed.Close()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPipes is what the pipes of BenchmarkServeStdio cost by themselves.
func BenchmarkPipes(b *testing.B) {
	in, feed := io.Pipe()
	read, out := io.Pipe()
	go func() {
		lines := newLineReader(in, 1<<20)
		for line, err := lines.next(); err == nil; line, err = lines.next() {
			out.Write(append(line, '\n'))
		}
	}()
	line := []byte(callLine("1", "echo", benchArguments) + "\n")
	answers := bufio.NewReader(read)
	for b.Loop() {
		feed.Write(line)
		if _, err := answers.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	feed.Close()
}

func BenchmarkParse(b *testing.B) {
	line := []byte(callLine("1", "echo", benchArguments))
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if m, err := parse(line); err != nil || m.method != string(mcp.MethodToolsCall) {
			b.Fatal(err)
		}
	}
}
