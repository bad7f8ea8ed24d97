package native_test

import (
	"os"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func BenchmarkRun(b *testing.B) {
	sandboxtest.Need(b, "userns", "bash")
	tree, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	for _, bb := range []struct {
		name string
		opts *native.Options
	}{{"cgroup", nil}, {"sampled", &native.Options{NoCgroup: true}}} {
		b.Run(bb.name, func(b *testing.B) {
			r := native.New(bb.opts)
			for b.Loop() {
				res, err := r.Run(b.Context(), &sandbox.Cmd{
					Argv: []string{"/usr/bin/bash", "-c", "true"}, Tree: tree, Env: []string{"PATH=/usr/bin:/bin"},
				})
				if err != nil || res.Outcome != sandbox.Exited {
					b.Fatal(res, err)
				}
			}
		})
	}
}
