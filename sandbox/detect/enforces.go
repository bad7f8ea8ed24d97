package detect

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
)

// enforcement is what the packages of the backends document, for this machine.
func enforcement(name string, memory, processes native.Memory) *Enforces {
	e := &Enforces{
		Memory: memory, Processes: string(processes), Network: "none, or through the proxy", Files: "counted",
		Kernel:     "the host's, behind a system call filter",
		Workspaces: []string{string(sandbox.WorkspaceRO), string(sandbox.WorkspaceStaged), string(sandbox.WorkspaceRW)},
	}
	if runtime.GOOS == "linux" && !native.Landlock() {
		e.Kernel += " and without Landlock: a named pipe in a workspace mounted ro can be written to"
	}
	if processes == native.MemorySampled {
		e.Processes = "resource limit"
	}
	root := os.Geteuid() == 0
	if name != Native {
		e.Files = "bounded by memory"
	}
	if name == Bwrap && !root {
		e.Workspaces = []string{string(sandbox.WorkspaceRO), string(sandbox.WorkspaceRW)}
	}
	if name == Runsc {
		e.Processes, e.Network, e.Kernel = "bounded by memory", "none", "gVisor's"
		if !root {
			e.Workspaces = []string{string(sandbox.WorkspaceRO)}
		}
	}
	return e
}

// String is a sentence's part for the operator.
func (e *Enforces) String() string {
	memory := "by " + string(e.Memory)
	if e.Memory == native.MemorySampled {
		memory = "is sampled every 20 ms"
	}
	return "memory " + memory + "; processes: " + e.Processes + "; files: " + e.Files + "; network: " + e.Network +
		"; workspace: " + strings.Join(e.Workspaces, ", ") + "; kernel: " + e.Kernel
}

// candidates are the executable files called name in the directories of path, which is a list as in
// PATH, and in those of the system, with links resolved.
func candidates(path, name string) []string {
	var found []string
	for _, d := range append(filepath.SplitList(path), "/usr/bin", "/usr/local/bin", "/bin") {
		// A relative directory would depend on where the server was started.
		if !filepath.IsAbs(d) {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(d, name))
		if err != nil || slices.Contains(found, real) {
			continue
		}
		if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			found = append(found, real)
		}
	}
	return found
}
