package detect

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// BenchmarkBackends takes turns between a bare process and every backend that works here, so that
// what else the machine does meets all of them alike, and reports the median of each.
func BenchmarkBackends(b *testing.B) {
	sandboxtest.Need(b, "userns", "bash")
	tree, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	type turn struct {
		name  string
		run   func(ctx context.Context) error
		times []time.Duration
	}
	turns := []*turn{{name: "bare", run: bare}}
	for _, name := range []string{Native, Bwrap, Runsc} {
		r, _, err := Select(b.Context(), name, &Options{Path: os.Getenv("PATH")})
		if err != nil {
			b.Logf("missing capability %s: %v", name, err)
			continue
		}
		turns = append(turns, &turn{name: name, run: func(ctx context.Context) error {
			_, err := r.Run(ctx, &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "-c", "true"}, Tree: tree, Env: []string{"PATH=/usr/bin:/bin"}})
			return err
		}})
	}
	for b.Loop() {
		for _, t := range turns {
			begin := time.Now()
			if err := t.run(b.Context()); err != nil {
				b.Fatal(t.name, err)
			}
			t.times = append(t.times, time.Since(begin))
		}
	}
	for _, t := range turns {
		slices.Sort(t.times)
		b.ReportMetric(float64(t.times[len(t.times)/2].Microseconds())/1000, t.name+"-ms")
	}
}

func bare(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "/usr/bin/bash", "-c", "true")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	return cmd.Run()
}
