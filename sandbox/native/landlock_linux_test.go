package native_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// The kernel stacks sixteen Landlock rulesets. That a command can add fifteen shows that one is there;
// what it refuses is tested where it is made. Where memory is sampled it can add none, and that it cannot
// open a certain device for writing shows the same.
func TestLandlockIsInPlace(t *testing.T) {
	sandboxtest.Need(t, "userns", "python3")
	if version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 || version < 2 {
		t.Skipf("missing capability: landlock of version 2: %v", errno)
	}
	const script = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
attr = ctypes.c_uint64(1 << 6)  # making character devices
n = 0
while n < 20:
    fd = libc.syscall(444, ctypes.byref(attr), 8, 0)
    if fd < 0 or libc.syscall(446, fd, 0) != 0: break
    n += 1
print("stacked", n)
try: os.open("/dev/zero", os.O_WRONLY)
except PermissionError: print("closed")
open("/dev/null", "w").write("x")
`
	cmd := &sandbox.Cmd{Argv: []string{"/usr/bin/python3", "-c", script}, Tree: openDir(t, t.TempDir()), Env: []string{"PATH=/usr/bin:/bin"}}
	for _, r := range []*native.Runner{native.New(nil), native.New(&native.Options{NoCgroup: true})} {
		res, err := r.Run(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		want := "stacked 15"
		if r.Memory() == native.MemorySampled {
			want = "stacked 0\nclosed"
		}
		if got := strings.TrimSpace(string(res.Stdout.Head)); got != want || res.ExitCode != 0 {
			t.Errorf("the command says %q, %q; want %q", got, res.Stderr.Head, want)
		}
	}
}
