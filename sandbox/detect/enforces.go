package detect

import (
	"runtime"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
)

// Enforces describes how a backend limits commands on this machine.
type Enforces struct {
	Memory     native.Memory `json:"memory"`
	Processes  string        `json:"processes"`
	Network    string        `json:"network"`
	Workspaces []string      `json:"workspaces"`
	Files      string        `json:"files"`
	Kernel     string        `json:"kernel"`
}

// enforcement returns the limits that package native enforces on this machine.
func enforcement(memory, processes native.Memory) *Enforces {
	e := &Enforces{
		Memory:    memory,
		Processes: string(processes),
		Network:   "none, or through the proxy",
		Files:     "counted",
		Kernel:    "the host's, behind a system call filter",
		Workspaces: []string{
			string(sandbox.WorkspaceRO), string(sandbox.WorkspaceStaged), string(sandbox.WorkspaceRW),
		},
	}
	if runtime.GOOS == "linux" && !native.Landlock() {
		e.Kernel += " and without Landlock: a named pipe in a workspace mounted ro can be written to"
	}
	if processes == native.MemorySampled {
		e.Processes = "resource limit"
	}
	return e
}

// String returns a description for the operator.
func (e *Enforces) String() string {
	memory := "by " + string(e.Memory)
	if e.Memory == native.MemorySampled {
		memory = "is sampled every 20 ms"
	}
	return "memory " + memory + "; processes: " + e.Processes + "; files: " + e.Files +
		"; network: " + e.Network + "; workspace: " + strings.Join(e.Workspaces, ", ") +
		"; kernel: " + e.Kernel
}
