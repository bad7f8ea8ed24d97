package detect

import (
	"testing"

	"github.com/skillsd/skillsd/sandbox/native"
)

func TestEnforcementOfProcesses(t *testing.T) {
	for _, tt := range []struct {
		memory, processes native.Memory
		want              string
	}{
		{native.MemoryCgroup2, native.MemoryCgroup2, "cgroup v2"},
		{native.MemoryCgroup1, native.MemoryCgroup1, "cgroup v1"},
		{native.MemoryCgroup1, native.MemorySampled, "resource limit"},
		{native.MemorySampled, native.MemorySampled, "resource limit"},
	} {
		e := enforcement(tt.memory, tt.processes)
		if e.Memory != tt.memory || e.Processes != tt.want {
			t.Errorf("enforcement(%q, %q) = memory %q, processes %q; want %q", tt.memory, tt.processes, e.Memory, e.Processes, tt.want)
		}
	}
}
