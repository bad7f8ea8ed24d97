package native

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A guest is the process that is the kernel of a command. The command's memory, files in memory
// included, is one file of that process, which is not in any process's resident set while the command's
// own address space is put away.
type guest struct {
	pid      int
	file     string // the memory, in /proc; "" if it was not found
	baseline int64  // bytes that the kernel took before the command started
}

// guestMemory begins the file's name as the kernel shows it.
const guestMemory = "/memfd:runsc-memory"

func newGuest(pid int) *guest {
	dir := "/proc/" + strconv.Itoa(pid)
	g := &guest{pid: pid}
	fds, _ := os.ReadDir(dir + "/fd") // without it the process's own memory is still watched
	for _, fd := range fds {
		path := dir + "/fd/" + fd.Name()
		if name, err := os.Readlink(path); err == nil && strings.HasPrefix(name, guestMemory) {
			g.file = path
		}
	}
	g.baseline = g.memory()
	return g
}

// memory returns the bytes that the guest takes beyond those it took at the start.
func (g *guest) memory() int64 {
	var n int64
	for i, pid := range append([]int{g.pid}, descendants(g.pid)...) {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			continue
		}
		// The other processes map the command's memory, and only their tables come on top.
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

// guestTasks is room for the threads of a guest's kernel and of the processes it uses for the command's.
const guestTasks = 4096
