package sandboxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"golang.org/x/sys/unix"
)

// testAttacks plants data that a script could find, and runs scripts that search for it.
func testAttacks(t *testing.T, f *fixture) {
	attack := func(name string, args ...string) {
		t.Run(name, func(t *testing.T) { f.attack(t, f.command(t, name, args...)) })
	}
	host := filepath.Join(t.TempDir(), "host")
	mkTree(t, host, map[string]string{"secret": "PLANTED secret"})
	attack("files.sh", host+"/secret", host, f.tolerated())
	attack("writes.sh", f.tolerated())
	attack("skill.py")
	attack("privileges.sh", plantGroups(t), f.tolerated())
	attack("syscalls.py")

	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	abstract := fmt.Sprintf("sandboxtest-%d", os.Getpid())
	for _, name := range []string{host + "/s", "@" + abstract} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	_, port, _ := net.SplitHostPort(tcp.Addr().String())
	attack("network.py", port, host+"/s", abstract)

	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("a process of the host was ended: %v", err)
		}
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	}()
	attack("processes.py", fmt.Sprint(bystander.Process.Pid), "sleep", f.tolerated())

	plantLeaks(t, host)
	attack("leaks.sh")
	t.Run("tree unchanged", func(t *testing.T) {
		if b, err := os.ReadFile(filepath.Join(f.dir, "SKILL.md")); err != nil || string(b) != treeText {
			t.Errorf("SKILL.md = %q, %v", b, err)
		}
		if left, _ := filepath.Glob(f.dir + "/*planted*"); len(left) != 0 {
			t.Errorf("the tree has %q", left)
		}
	})
}

// plantGroups gives this process supplementary groups if it may, and then returns "root".
func plantGroups(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return ""
	}
	before, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{0, 42, 4242}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setgroups(before); err != nil {
			t.Error(err)
		}
	})
	return "root"
}

// plantLeaks puts variables, inheritable descriptors and shared memory into this process.
func plantLeaks(t *testing.T, host string) {
	t.Helper()
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "BASH_ENV", "ENV", "LD_LIBRARY_PATH",
		"GITHUB_TOKEN", "NODE_OPTIONS", "PYTHONPATH"} {
		t.Setenv(name, "planted-in-the-server")
	}
	secret, err := os.Open(host + "/secret")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	for _, fd := range []int{99, 251} {
		if err := unix.Dup3(int(secret.Fd()), fd, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(dir) })
	shm, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(shm, unix.IPC_RMID, nil) })
}

// testLeavesNothing compares the host before and after runs.
func testLeavesNothing(t *testing.T, f *fixture) {
	run := func() {
		f.run(t, f.script(t, "ok.sh", "echo x >/tmp/f; exit 0"))
		timeout := f.script(t, "slow.sh", "(setsid sleep 60 &); sleep 60")
		timeout.Limits.Timeout = 200e6
		f.run(t, timeout)
		cwd := f.command(t, "works.sh")
		cwd.Cwd = "/usr"
		if _, err := f.runner.Run(t.Context(), cwd); err == nil {
			t.Error("ran in /usr")
		}
		missing := f.command(t, "works.sh")
		missing.Argv = []string{"/nowhere"}
		if _, err := f.runner.Run(t.Context(), missing); err == nil {
			t.Error("ran /nowhere")
		}
		ws := t.TempDir()
		mkTree(t, ws, map[string]string{"a": "x"})
		for _, mode := range f.modes()[1:] {
			write := f.script(t, "w.sh", "echo y >/workspace/a; echo z >/out/z")
			dir, err := os.Open(ws)
			if err != nil {
				t.Fatal(err)
			}
			write.Workspace = sandbox.Workspace{Mode: mode, Dir: dir}
			f.runOK(t, write)
			if err := dir.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	shared, own := os.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", own)
	run() // a backend may create some state once and keep it
	before := traces(t, shared, filepath.Dir(own))
	run()
	run()
	after := traces(t, shared, filepath.Dir(own))
	for name, n := range before {
		if after[name] > n {
			t.Errorf("%s: %d before, %d after", name, n, after[name])
		}
	}
}

// traces returns the numbers of traces that runs could leave on the host. Mounts of concurrent tests are
// excluded: they are in other directories than own, but below shared.
func traces(t *testing.T, shared, own string) map[string]int {
	t.Helper()
	count := func(glob string) int {
		l, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		return len(l)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	mounts := 0
	for line := range strings.Lines(string(table)) {
		at := strings.Fields(line)[4] // the tests' directories contain no spaces
		if strings.HasPrefix(at, resolved(t, own)+"/") || !strings.HasPrefix(at, resolved(t, shared)+"/") {
			mounts++
		}
	}
	children := 0
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, p := range tasks {
		if b, err := os.ReadFile(p); err == nil {
			children += len(strings.Fields(string(b)))
		}
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	cgroups := 0
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		controller := parts[1]
		// Other servers create groups in the same place at the same time; the name identifies the server.
		cgroups += count(filepath.Join("/sys/fs/cgroup", controller, parts[2],
			"*-"+strconv.Itoa(os.Getpid())+"-*/cgroup.procs"))
	}
	return map[string]int{
		"open descriptors": count("/proc/self/fd/*"), "mounts": mounts,
		"child processes": children, "cgroups": cgroups,
		"temporary files": count(filepath.Join(os.TempDir(), "*")),
	}
}

// resolved returns the path of a directory with links resolved, as the kernel shows it.
func resolved(t *testing.T, dir string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
