package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// TestScripts runs testdata/script/*.txtar: each is a user at a shell with skillsd on PATH, a clean
// HOME and the files of the archive. Besides the commands of testscript there are those of
// scriptCommands, and conditions, such as [sandbox]: a script of a skill can be isolated here; and [nightly]: what takes
// long runs too.
func TestScripts(t *testing.T) {
	sandboxed := sync.OnceValue(func() bool { return canIsolate(t) })
	testscript.Run(t, testscript.Params{
		Condition: func(name string) (bool, error) {
			switch name {
			case "sandbox":
				return sandboxed(), nil
			case "pip", "npm":
				return canResolve(t, name), nil
			case "own-name":
				_, _, err := ownName()
				return err == nil, nil
			case "rootfs":
				return canMakeRoot(t), nil
			case "nightly":
				return nightly.Size(0, 1) > 0, nil
			}
			return false, fmt.Errorf("there is no condition %q", name)
		},
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds:                scriptCommands(),
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, ".home")
			if err := os.MkdirAll(home, 0o700); err != nil {
				return err
			}
			env.Setenv("HOME", home)
			env.Values[indexKey{}] = new(atomic.Pointer[packageIndex])
			env.Setenv("XDG_STATE_HOME", "")
			env.Setenv("SKILLSD", binary)
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			return nil
		},
	})
}

// canIsolate reports whether skillsd finds a sandbox that can isolate.
func canIsolate(t *testing.T) bool {
	t.Helper()
	if os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
		return true
	}
	args := append([]string{"run", "demo", "scripts/ok.sh", "--config", os.DevNull, "--state", t.TempDir()}, demo(t, "ok.sh")...)
	out, _ := exec.Command(binary, args...).CombinedOutput()
	return !bytes.Contains(out, []byte("sandbox_unavailable"))
}
