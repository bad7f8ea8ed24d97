package native_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	native.MaybeHelper()
	if os.Getenv("SKILLSD_TEST_MEMORY") != "" { // a server of a test of cgroups
		fmt.Println(native.New(nil).Memory())
		return
	}
	os.Exit(m.Run())
}

// Each run gets a sandbox that was begun ahead, as most runs of a server do.
func TestNative(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash", "python3")
	var differs []sandboxtest.Difference
	if native.New(nil).Processes() == native.MemorySampled {
		differs = append(differs, sandboxtest.UncountedProcesses)
	}
	sandboxtest.Run(t, func(t *testing.T) sandbox.Runner {
		return native.Prepared{Runner: native.Hold(native.New(&native.Options{Ahead: true})), T: t}
	}, differs...)
}

// Each run makes its own sandbox, and has no control group of its own. What depends on neither is for the night.
func TestNativeSampled(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash", "python3")
	sandboxtest.RunLimits(t, sampled, sandboxtest.UncountedProcesses)
}

func TestNativeSampledWhole(t *testing.T) {
	nightly.Only(t)
	sandboxtest.Need(t, "userns", "bash", "python3")
	sandboxtest.Run(t, sampled, sandboxtest.UncountedProcesses)
}

func sampled(*testing.T) sandbox.Runner { return native.New(&native.Options{NoCgroup: true}) }

// A run that is over before the helper could be let go has the outcome that ended it: nothing was
// wrong with the sandbox.
func TestEndedAsItStarts(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	run := func(ctx context.Context, opts *native.Options, timeout time.Duration, want sandbox.Outcome) {
		t.Helper()
		cmd := &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "-c", "while :; do :; done"}, Tree: tree, Limits: sandbox.Limits{Timeout: timeout}}
		res, err := native.New(opts).Run(ctx, cmd)
		if err != nil || res.Outcome != want {
			t.Fatalf("Run with timeout %v = %+v, %v, want outcome %s", timeout, res, err, want)
		}
	}
	for _, opts := range []*native.Options{nil, {NoCgroup: true}} {
		for i := range nightly.Size(20, 50) {
			run(t.Context(), opts, time.Duration(i%10)*200*time.Microsecond+1, sandbox.TimedOut)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(i%10)*200*time.Microsecond, cancel)
			run(ctx, opts, time.Minute, sandbox.Canceled)
			cancel()
		}
	}
}
