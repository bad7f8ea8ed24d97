package bwrap_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/bwrap"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// greeter answers every connection with a line and its end.
type greeter struct{}

func (greeter) Serve(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "greeted\n")
		_ = c.Close()
	}
}

// The proxy's socket, which listens in a network namespace that bubblewrap made, is served out here.
func TestProxy(t *testing.T) {
	sandboxtest.Need(t, "bash")
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	r := bwrap.New(find(t), nil)
	script := `exec 3<>/dev/tcp/127.0.0.1/3128; cat <&3; (exec 4<>/dev/tcp/192.0.2.1/80) 2>/dev/null && echo BREACH; echo done`
	res, err := r.Run(t.Context(), &sandbox.Cmd{
		Argv: []string{"/usr/bin/bash", "-c", script}, Tree: tree, Network: sandbox.Network{Proxy: greeter{}},
	})
	if err != nil || string(res.Stdout.Head) != "greeted\ndone\n" {
		t.Fatalf("Run = %+v, %v, because %v", res, err, errors.Unwrap(err))
	}
	if strings.Contains(string(res.Stdout.Head), "BREACH") {
		t.Error("there is another way out")
	}
}
