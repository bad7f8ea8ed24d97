package native

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// The smallest limit of a group and those above it counts, of both versions.
func TestGroupMemory(t *testing.T) {
	base := t.TempDir()
	unified, memory := filepath.Join(base, "2", "a", "b"), filepath.Join(base, "1", "a")
	testtree.Write(t, base, map[string]string{
		"2/a/b/memory.max": "max\n", "2/a/memory.max": "536870912\n", "2/memory.max": "1073741824\n",
		"1/a/memory.limit_in_bytes": "9223372036854771712\n", "1/memory.limit_in_bytes": "268435456\n",
	})
	for _, tt := range []struct {
		unified, memory string
		want            int64
	}{{unified, "", 512 << 20}, {unified, memory, 256 << 20}, {"", "", 0}, {filepath.Join(base, "gone"), "", 0}} {
		if got := groupMemory(tt.unified, tt.memory); got != tt.want {
			t.Errorf("groupMemory(%q, %q) = %d, want %d", tt.unified, tt.memory, got, tt.want)
		}
	}
}

func TestCgroupMount(t *testing.T) {
	const mountinfo = `30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
31 25 0:27 /docker/abc /sys/fs/cgroup/cpu,memory rw,nosuid - cgroup cgroup rw,cpu,memory
32 25 0:28 / /sys/fs/cgroup/name rw - cgroup cgroup rw,name=memory2
broken line
`
	for _, tt := range []struct {
		controller, mount, root string
		ok                      bool
	}{
		{"", "/sys/fs/cgroup/unified", "/", true},
		{"memory", "/sys/fs/cgroup/cpu,memory", "/docker/abc", true},
		{"pids", "", "", false},
	} {
		mount, root, ok := cgroupMount(mountinfo, tt.controller)
		if mount != tt.mount || root != tt.root || ok != tt.ok {
			t.Errorf("cgroupMount(%q) = %q, %q, %t; want %q, %q, %t", tt.controller, mount, root, ok, tt.mount, tt.root, tt.ok)
		}
	}
}

func TestProcessesWithoutController(t *testing.T) {
	for _, tt := range []struct {
		base cgroupBase
		want Memory
	}{
		{cgroupBase{memory: MemoryCgroup2, unified: "/x"}, MemoryCgroup2},
		{cgroupBase{memory: MemoryCgroup1, mem: "/m", pids: "/p"}, MemoryCgroup1},
		{cgroupBase{memory: MemoryCgroup1, mem: "/m"}, MemorySampled},
		{cgroupBase{memory: MemorySampled}, MemorySampled},
	} {
		r := New(nil)
		r.host.once.Do(func() { r.host.base = tt.base })
		if got := r.Processes(); got != tt.want {
			t.Errorf("processes of %+v = %q, want %q", tt.base, got, tt.want)
		}
	}
}

// A server that is alone in a cgroup of version 2 that was delegated to it makes room for runs there; in any
// other it changes nothing, and memory is sampled.
func TestDelegatedGroup(t *testing.T) {
	sandboxtest.Need(t, "memory-cgroup")
	b := findCgroups(Options{})
	if b.memory != MemoryCgroup2 {
		t.Skip("missing capability memory-cgroup: no cgroup of version 2 could be made")
	}
	for _, tt := range []struct {
		name                string
		delegated, stranger bool
		want                Memory
	}{
		{"nobody's", false, false, MemorySampled},
		{"shared", true, true, MemorySampled},
		{"its own", true, false, MemoryCgroup2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// What is delegated to this test is not the parent of the server's group.
			between := filepath.Join(b.unified, "between-"+strconv.Itoa(os.Getpid()))
			own := filepath.Join(between, "own")
			for _, dir := range []string{between, own} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.Remove(dir) })
			}
			if err := writeExisting(filepath.Join(between, "cgroup.subtree_control"), "+memory +pids"); err != nil {
				t.Fatal(err)
			}
			if tt.delegated {
				if err := unix.Setxattr(own, "user.delegate", []byte("1"), 0); err != nil {
					t.Fatal(err)
				}
			}
			group, err := os.Open(own)
			if err != nil {
				t.Fatal(err)
			}
			defer group.Close()
			within := &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
			if tt.stranger {
				sleep := exec.Command("sleep", "60")
				sleep.SysProcAttr = within
				if err := sleep.Start(); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
			}
			server := exec.Command("/proc/self/exe")
			server.Env = append(os.Environ(), "SKILLSD_TEST_MEMORY=1")
			server.SysProcAttr = within
			out, err := server.Output()
			if got := strings.TrimSpace(string(out)); err != nil || got != string(tt.want) {
				t.Errorf("memory of a server in it: %q, %v; want %q", got, err, tt.want)
			}
			inner := filepath.Join(own, serverGroup)
			if err := os.Remove(inner); (err == nil) != (tt.want == MemoryCgroup2) {
				t.Errorf("a group for the server's processes: %v", err)
			}
		})
	}
}

// The limits of a run are those of its cgroup of version 2.
func TestUnifiedLimits(t *testing.T) {
	sandboxtest.Need(t, "memory-cgroup")
	b := findCgroups(Options{})
	if b.memory != MemoryCgroup2 {
		t.Skip("missing capability memory-cgroup: no cgroup of version 2 could be made")
	}
	g, err := b.create(sandbox.Limits{Memory: 64 << 20, PIDs: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.remove(); err != nil {
			t.Error(err)
		}
	}()
	for file, want := range map[string]string{
		"memory.max": "67108864", "memory.oom.group": "1", "pids.max": strconv.Itoa(10 + ownTasks), "cpu.weight": runWeight,
	} {
		if controllers, err := os.ReadFile(filepath.Join(g.dirs[0], "cgroup.controllers")); file == "cpu.weight" && (err != nil || !slices.Contains(strings.Fields(string(controllers)), "cpu")) {
			t.Log("without the controller for processors")
			continue
		}
		if got, err := os.ReadFile(filepath.Join(g.dirs[0], file)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s = %q, %v; want %s", file, got, err, want)
		}
	}
}
