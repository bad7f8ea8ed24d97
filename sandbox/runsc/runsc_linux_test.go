package runsc_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/runsc"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	native.MaybeHelper()
	os.Exit(m.Run())
}

func find(t testing.TB) string {
	t.Helper()
	sandboxtest.Need(t, "userns", "bash")
	path, err := exec.LookPath("runsc")
	if err != nil {
		t.Skip("missing capability: runsc")
	}
	return path
}

func TestRunsc(t *testing.T) {
	sandboxtest.Need(t, "python3")
	path := find(t)
	differs := []sandboxtest.Difference{sandboxtest.OwnKernel, sandboxtest.NoProcessLimit, sandboxtest.NoInodeLimit}
	if os.Geteuid() != 0 {
		differs = append(differs, sandboxtest.NoWriting)
	}
	sandboxtest.Run(t, func(*testing.T) sandbox.Runner { return runsc.New(path, nil) }, differs...)
}

func TestKilled(t *testing.T) {
	path := find(t)
	// The program, its file server, its kernel and what that keeps the command's memory in.
	sandboxtest.Killed(t, func(*testing.T) sandbox.Runner { return runsc.New(path, nil) }, 7)
}

type proxy struct{}

func (proxy) Serve(context.Context, net.Listener) {}

// What cannot be isolated as asked does not run with less.
func TestRefuses(t *testing.T) {
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for name, tt := range map[string]struct {
		path string
		cmd  sandbox.Cmd
	}{
		"no program": {"", sandbox.Cmd{}},
		"a network":  {"/usr/bin/true", sandbox.Cmd{Network: sandbox.Network{Proxy: proxy{}}}},
	} {
		tt.cmd.Argv, tt.cmd.Tree = []string{"/usr/bin/true"}, tree
		_, err := runsc.New(tt.path, nil).Run(t.Context(), &tt.cmd)
		if u, ok := errors.AsType[*sandbox.UnavailableError](err); !ok || u.Backend != runsc.Name || u.Remedy == "" {
			t.Errorf("%s: Run = %v, want an UnavailableError with a remedy", name, err)
		}
	}
}

// A guest that the program cannot start is an error with the program's own words as its cause.
func TestCauseIsKept(t *testing.T) {
	sandboxtest.Need(t, "userns")
	dir := t.TempDir()
	tree, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	program := filepath.Join(dir, "runsc")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho the words of the program >&2\nexit 128\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = runsc.New(program, nil).Run(t.Context(), &sandbox.Cmd{Argv: []string{"/usr/bin/true"}, Tree: tree})
	u, ok := errors.AsType[*sandbox.UnavailableError](err)
	if !ok || u.Err == nil || !strings.Contains(u.Err.Error(), "the words of the program") || strings.Contains(err.Error(), "words") {
		t.Errorf("Run = %v, because %v", err, errors.Unwrap(err))
	}
}

func TestEndedWhileStarting(t *testing.T) {
	sandboxtest.EndedWhileStarting(t, runsc.New(find(t), nil), 20, 10*time.Millisecond)
}
