// Package e2e drives the real binary as its users do: from a shell, and as an MCP client over
// stdin and stdout.
package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// binary is the server under test, built once, or given where nothing can be built.
var binary string

// tags are those of the Makefile.
const tags = "-tags=grpcnotrace"

var built = flag.String("binary", "", "the server to test, instead of one that is built")

func TestMain(m *testing.M) {
	clustertest.Main()
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "skillsd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	flag.Parse()
	binary = *built
	if binary == "" {
		binary = filepath.Join(dir, "skillsd")
		build := exec.Command("go", "build", tags, "-o", binary, "../cmd/skillsd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as releases are: it is process 1 on foreign root file systems
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build skillsd: %v\n%s", err, out)
			return 1
		}
	}
	// The sandbox's helper runs as another user, who must be able to reach the binary.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Whoever runs the tests may have a configuration of their own.
	if err := errors.Join(os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")), os.Unsetenv("SKILLSD_CONFIG")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience bounds every wait for the server, and soon the wait for what would also end by itself, a minute
// after it began.
const patience, soon = 90 * time.Second, 30 * time.Second

// eventually asks until the answer is yes, where nothing tells of the change.
func eventually(t testing.TB, what string, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !yes(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
