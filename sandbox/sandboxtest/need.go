package sandboxtest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"
)

// RequireVar is the environment variable that, if set to "1", makes [Need] fail instead of skip if the
// sandbox itself cannot be tested. A missing interpreter still skips.
const RequireVar = "SKILLSD_REQUIRE_SANDBOX"

var slow = sync.OnceValue(func() int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("SKILLSD_TEST_SLOW"), "1"))
	if err != nil || n < 1 {
		panic("sandboxtest: SKILLSD_TEST_SLOW is not a whole number above 0")
	}
	return n
})

// Scaled returns d times SKILLSD_TEST_SLOW in the environment, which is how many times slower than usual this
// machine is, such as an emulated one.
func Scaled(d time.Duration) time.Duration { return d * time.Duration(slow()) }

// Need skips the test, naming what is missing, unless this machine has every capability:
//
//	linux          namespaces exist
//	userns         this process may make a user namespace
//	root           the process is root
//	memory-cgroup  there are cgroups with a memory controller, for whoever may make some
//	attributes     tmpfs keeps attributes of ordinary users, as from Linux 6.6 on
//	landlock       the kernel has Landlock of version 2 or later
//	bash, sh, python3, node, deno   the interpreter is in PATH
//
// An unknown capability fails the test.
func Need(t testing.TB, capabilities ...string) {
	t.Helper()
	for _, c := range capabilities {
		err := probe(c)
		if err == nil {
			continue
		}
		if (c == "linux" || c == "userns") && os.Getenv(RequireVar) == "1" {
			t.Fatalf("missing capability %s (%s=1): %v", c, RequireVar, err)
		}
		t.Skipf("missing capability %s: %v", c, err)
	}
}

// NeedDeleting skips the test if a script cannot delete the directories of a staged workspace here. Under an
// ordinary user's server, that requires extended attributes in the overlay.
func NeedDeleting(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Need(t, "attributes")
	}
}

func probe(capability string) error {
	switch capability {
	case "linux", "userns", "memory-cgroup", "attributes", "landlock":
		return probeSystem(capability)
	case "root":
		if os.Geteuid() != 0 {
			return fmt.Errorf("effective uid is %d", os.Geteuid())
		}
		return nil
	case "bash", "sh", "python3", "node", "deno":
		_, err := exec.LookPath(capability)
		return err
	}
	panic("sandboxtest: unknown capability " + capability)
}
