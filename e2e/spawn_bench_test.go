package e2e

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/bwrap"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/runsc"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// BenchmarkSpawn runs `bash -c true` bare and on every backend that is found here in turn, so that what
// else the machine does falls on all of them alike, and reports the median and the least of each in
// milliseconds.
func BenchmarkSpawn(b *testing.B) {
	sandboxtest.Need(b, "userns", "bash")
	tree, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	isolated := func(r sandbox.Runner) func() error {
		return func() error {
			_, err := r.Run(b.Context(), &sandbox.Cmd{
				Argv: []string{"/usr/bin/bash", "-c", "true"}, Tree: tree, Env: []string{"PATH=/usr/bin:/bin"},
			})
			return err
		}
	}
	type contender struct {
		name   string
		before func() // may be nil; is not measured
		run    func() error
		every  int // how many turns there are for each that it takes; 0 is 1
		took   []time.Duration
	}
	// A helper waits for each of these runs, as it does in a server between two calls.
	ahead := &native.Options{Ahead: true}
	begun := func(name string, r *native.Runner) *contender {
		b.Cleanup(r.Close)
		return &contender{name: name, run: isolated(r), before: r.Prepare}
	}
	contenders := []*contender{
		{name: "bare", run: spawnBare},
		{name: "native", run: isolated(native.New(nil))},
		begun("native-ahead", native.New(ahead)),
		{name: "native-sampled", run: isolated(native.New(&native.Options{NoCgroup: true}))},
	}
	if path, err := exec.LookPath("bwrap"); err == nil {
		contenders = append(contenders, &contender{name: "bwrap", run: isolated(bwrap.New(path, nil))},
			begun("bwrap-ahead", bwrap.New(path, ahead)),
			&contender{name: "bwrap-sampled", run: isolated(bwrap.New(path, &native.Options{NoCgroup: true}))})
	}
	if path, err := exec.LookPath("runsc"); err == nil {
		// Twenty times as slow, it would leave the others few turns.
		contenders = append(contenders, &contender{name: "runsc", run: isolated(runsc.New(path, nil)), every: 10})
	}
	for _, c := range contenders {
		if err := c.run(); err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
	}
	for turn := 0; b.Loop(); turn++ {
		for _, c := range contenders {
			if c.every > 0 && turn%c.every > 0 {
				continue
			}
			if c.before != nil {
				c.before()
			}
			begin := time.Now()
			if err := c.run(); err != nil {
				b.Fatalf("%s: %v", c.name, err)
			}
			c.took = append(c.took, time.Since(begin))
		}
	}
	for _, c := range contenders {
		slices.Sort(c.took)
		b.ReportMetric(c.took[len(c.took)/2].Seconds()*1000, c.name+"-ms")
		b.ReportMetric(c.took[0].Seconds()*1000, c.name+"-min-ms")
	}
}

func spawnBare() error {
	cmd := exec.Command("/usr/bin/bash", "-c", "true")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	var out, errs discard
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd.Run()
}

// discard takes output through a pipe, as a sandbox does.
type discard struct{}

func (*discard) Write(p []byte) (int, error) { return io.Discard.Write(p) }
