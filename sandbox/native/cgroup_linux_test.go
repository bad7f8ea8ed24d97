package native

import "testing"

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
		if got := tt.base.processes(); got != tt.want {
			t.Errorf("processes of %+v = %q, want %q", tt.base, got, tt.want)
		}
	}
}
