package mcpserver

import (
	"bytes"
	"context"
	"io"
	"testing"
)

// A peer that does not begin with a message of the protocol gets no answer, and the process does not wait for it.
func TestFaultOfStranger(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"GET / HTTP/1.1", "[]", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), faultPatience/2)
			defer cancel()
			in, peer := io.Pipe()
			defer peer.Close()
			go peer.Write([]byte("\n" + first + "\n"))
			var out bytes.Buffer
			f := Fault{In: in, Out: &out, Version: "1", Text: "a fault", Changed: func() bool { return false },
				Start: func(context.Context, io.Reader, io.Writer) string { return "a fault" }}
			f.Serve(ctx)
			if ctx.Err() != nil || out.Len() > 0 {
				t.Errorf("waited: %v, answered %q", ctx.Err(), &out)
			}
		})
	}
}
