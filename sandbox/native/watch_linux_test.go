package native_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// Locks on files take memory that no control group counts.
func TestLocks(t *testing.T) {
	sandboxtest.Need(t, "userns", "python3")
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	const script = `
import fcntl, os, struct, sys, time
for i in range(int(sys.argv[1])):
    if i % 100 == 0: f = os.open("/tmp/%d" % i, os.O_RDWR | os.O_CREAT)
    try: fcntl.fcntl(f, int(sys.argv[2]), struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 200 - i % 100 * 2, 1, 0))
    except OSError: sys.exit(3)
time.sleep(float(sys.argv[3]))
`
	for _, tt := range []struct {
		name, number, command, rest string
		want                        sandbox.Outcome
		exit                        int
	}{
		{"many", "20000", "6", "60", sandbox.MemoryLimit, 0},
		{"few", "200", "6", "0.1", sandbox.Exited, 0},
		{"of open files", "200", "37", "0", sandbox.Exited, 3},
	} {
		for _, opts := range []*native.Options{nil, {NoCgroup: true}} {
			cmd := &sandbox.Cmd{Argv: []string{"/usr/bin/python3", "-c", script, tt.number, tt.command, tt.rest}, Tree: tree}
			cmd.Limits.Files = 1024
			res, err := native.New(opts).Run(t.Context(), cmd)
			if err != nil || res.Outcome != tt.want || res.ExitCode != tt.exit {
				t.Errorf("%s with %+v: Run = %+v, %v; want %s, exit %d", tt.name, opts, res, err, tt.want, tt.exit)
			}
		}
	}
}

// What waits in the buffers of TCP connections is not seen: they have the size they are counted as.
func TestConnectionsDoNotGrow(t *testing.T) {
	sandboxtest.Need(t, "userns", "python3")
	var st unix.Statfs_t
	if err := unix.Statfs("/proc/sys/net", &st); err != nil || st.Flags&unix.ST_RDONLY != 0 {
		t.Skip("missing capability: settings of network namespaces that can be written")
	}
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	// A reader that keeps up makes the kernel give a connection more room.
	const script = `
import socket, time
l = socket.create_server(("127.0.0.1", 0))
w = socket.create_connection(l.getsockname())
r, _ = l.accept()
w.setblocking(False); r.setblocking(False)
data, n, end = b"x" * (1 << 20), 0, time.monotonic() + 1
while time.monotonic() < end:
    try: w.send(data)
    except BlockingIOError: pass
    try:
        while r.recv(1 << 20): pass
    except BlockingIOError: pass
end = time.monotonic() + 0.3
while time.monotonic() < end:
    try: n += w.send(data); end = time.monotonic() + 0.3
    except BlockingIOError: time.sleep(0.002)
print("large" if n > 1 << 20 else "small", n)
`
	res, err := native.New(nil).Run(t.Context(), &sandbox.Cmd{Argv: []string{"/usr/bin/python3", "-c", script}, Tree: tree})
	if err != nil || !strings.HasPrefix(string(res.Stdout.Head), "small ") {
		t.Errorf("Run = %+v, %v, printed %q; want a pair that holds less than a MiB", res, err, res.Stdout.Head)
	}
}

// The name of a run's control group holds the server's process number.
func TestControlGroupHasNoName(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	const script = `while IFS=: read -r _ _ path; do [ "$path" = / ] || echo "$path"; done </proc/self/cgroup`
	res, err := native.New(nil).Run(t.Context(), &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "-c", script}, Tree: tree})
	if err != nil || res.Outcome != sandbox.Exited || res.Stdout.Total != 0 {
		t.Errorf("Run = %+v, %v, printed %q", res, err, res.Stdout.Head)
	}
}
