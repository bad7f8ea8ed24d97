package native

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A guest is the process that is a command's kernel. The memory of the command, including its files in
// memory, is one file of that process. While the command's address space is not active, that file is in no
// process's resident set.
type guest struct {
	pid      int
	file     string // the memory, in /proc; "" if not found
	baseline int64  // memory of the kernel before the command started, in bytes
}

// guestMemory begins the file's name in /proc.
const guestMemory = "/memfd:runsc-memory"

func newGuest(pid int) *guest {
	dir := "/proc/" + strconv.Itoa(pid)
	g := &guest{pid: pid}
	// After an error, the memory of the process itself is still measured.
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		path := dir + "/fd/" + fd.Name()
		if name, err := os.Readlink(path); err == nil && strings.HasPrefix(name, guestMemory) {
			g.file = path
		}
	}
	g.baseline = g.memory()
	return g
}

// memory returns the memory of the guest beyond its memory at the start, in bytes.
func (g *guest) memory() int64 {
	var n int64
	for i, pid := range append([]int{g.pid}, descendants(g.pid)...) {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			continue
		}
		// The other processes map the command's memory, so only their page tables are added.
		n += field(status, "VmPTE:") * 1024
		if i == 0 {
			n += field(status, "RssAnon:") * 1024
		}
	}
	if info, err := os.Stat(g.file); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			n += st.Blocks * 512
		}
	}
	return n - g.baseline
}

// guestTasks is room for the threads of a guest's kernel and for the processes in which it runs the
// command's.
const guestTasks = 4096
