package native_test

import (
	"os"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// Files in memory are memory of the run, also where only samples are taken.
func TestSampledFiles(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	open := func(dir string) *os.File {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	tree := open(t.TempDir())
	const fill = "dd if=/dev/zero of=$0/big bs=1M count=100 2>/dev/null; echo filled; sleep 60"
	for _, tt := range []struct {
		name, script, dir string
		mode              sandbox.WorkspaceMode
		want              sandbox.Outcome
	}{
		{"scratch", fill, "/tmp", "", sandbox.MemoryLimit},
		{"staged", fill, sandbox.WorkspaceDir, sandbox.WorkspaceStaged, sandbox.MemoryLimit},
		{"inodes", "cd $0; i=0; while : >$i; do i=$((i+1)); done; sleep 60", "/tmp", "", sandbox.MemoryLimit},
		{"within", "dd if=/dev/zero of=$0/big bs=1M count=20 2>/dev/null; sleep 0.2", "/tmp", "", sandbox.Exited},
		{"host's", "dd if=/dev/zero of=$0/big bs=1M count=20 2>/dev/null; sleep 0.2", sandbox.WorkspaceDir, sandbox.WorkspaceRW, sandbox.Exited},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "-c", tt.script, tt.dir}, Tree: tree, Env: []string{"PATH=/usr/bin"}}
			cmd.Limits.Memory, cmd.Limits.Scratch, cmd.Limits.File = 64<<20, 1<<30, 1<<30
			cmd.Limits.Inodes = 100_000
			if tt.name == "inodes" {
				cmd.Limits.Memory = 16 << 20
			}
			if tt.mode != "" {
				cmd.Workspace = sandbox.Workspace{Mode: tt.mode, Dir: open(t.TempDir())}
			}
			res, err := native.New(&native.Options{NoCgroup: true}).Run(t.Context(), cmd)
			if err != nil || res.Outcome != tt.want {
				t.Errorf("Run = %+v, %v; want %s", res, err, tt.want)
			}
		})
	}
}
