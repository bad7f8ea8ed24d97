package bwrap_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/bwrap"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	native.MaybeHelper()
	os.Exit(m.Run())
}

func find(t testing.TB) string {
	t.Helper()
	sandboxtest.Need(t, "userns", "bash")
	path, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("missing capability: bwrap")
	}
	return path
}

func TestBwrap(t *testing.T) {
	sandboxtest.Need(t, "python3")
	path := find(t)
	differs := []sandboxtest.Difference{sandboxtest.WritableDevices, sandboxtest.NoInodeLimit}
	if os.Geteuid() != 0 {
		differs = append(differs, sandboxtest.NoStaging)
	}
	sandboxtest.Run(t, func(*testing.T) sandbox.Runner { return bwrap.New(&bwrap.Options{Path: path}) }, differs...)
}

func TestKilled(t *testing.T) {
	path := find(t)
	// The program's two, the command and what it starts.
	sandboxtest.Killed(t, func(*testing.T) sandbox.Runner { return bwrap.New(&bwrap.Options{Path: path}) }, 5)
}

func TestEndedWhileStarting(t *testing.T) {
	sandboxtest.EndedWhileStarting(t, bwrap.New(&bwrap.Options{Path: find(t)}), 60, time.Millisecond/2)
}
