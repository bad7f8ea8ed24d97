package native

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// maxPause limits the time between two measurements.
const maxPause = 500 * time.Millisecond

// meter measures until the run ends. Measuring takes longer the more processes there are, so it is limited to
// half of a processor, and nothing else waits for it.
func (e *execution) meter() {
	wait := time.NewTimer(sampleEvery)
	defer wait.Stop()
	for {
		select {
		case <-e.done:
			return
		case <-wait.C:
			begin := time.Now()
			e.measure()
			wait.Reset(max(sampleEvery, min(time.Since(begin), maxPause)))
		}
	}
}

// measure ends the run if it exceeds its memory limit, and records that it reached its process limit.
func (e *execution) measure() {
	first, g := e.first(), e.guest.Load()
	switch {
	case e.group != nil && e.group.killed():
		e.end(sandbox.MemoryLimit)
	case first == 0:
	case g != nil:
		if g.memory() > e.limits.Memory {
			e.end(sandbox.MemoryLimit)
		}
	case e.group != nil && e.group.exceeds(e.limits.Memory, first):
		e.end(sandbox.MemoryLimit)
	case e.group != nil:
		// File locks are the only memory that no cgroup includes.
		if root, ok := ownRoot(first); ok {
			if _, counted := locks(root); !counted {
				e.end(sandbox.MemoryLimit)
			}
		}
	default:
		u := sample(first, e.limits.Memory, e.mounted(), e.done)
		if u.memory > e.limits.Memory {
			e.end(sandbox.MemoryLimit)
		}
		if u.tasks >= e.limits.PIDs {
			e.crowded.Store(true)
		}
	}
}

// A usage is the resource usage of a run's processes at one moment.
type usage struct {
	memory int64
	tasks  int
}

// sample adds up the usage of the processes below pid, which are all processes of the sandbox except the
// first. It includes resident memory, page tables and mappings; sockets and pipes, as if they were full;
// epoll watches; locks; and files in mounted directories that are in memory. Once done is
// closed, it returns the sum so far.
func sample(pid int, limit int64, mounted []string, done <-chan struct{}) usage {
	var u usage
	pids := descendants(pid)
	kernel := unread(pid)
	if root, ok := ownRoot(pid); ok {
		held, counted := locks(root)
		kernel += files(root, mounted) + held*perLock
		if !counted {
			kernel += limit + 1
		}
	}
	mapped := mappings{shared: map[string]bool{}, buf: make([]byte, 64<<10)}
	open := descriptors{pipes: map[uint64]bool{}, buf: mapped.buf}
	dirs := make([]string, 0, len(pids))
	for _, p := range pids {
		dir, status := live("/proc/" + strconv.Itoa(p))
		dirs = append(dirs, dir)
		u.memory += resident(status)
		u.tasks += int(field(status, "Threads:"))
		kernel += field(status, "VmPTE:") * 1024
		mapped.read(dir, done)
		open.read(dir, done)
	}
	kernel += mapped.size(limit) + open.size(limit)
	u.memory += kernel
	if u.memory <= limit {
		return u
	}
	// The resident set includes a shared page once for each process. Only if that exceeds the limit, the
	// proportional set is read, which takes the kernel far longer to compute.
	u.memory = kernel
	for _, dir := range dirs {
		select {
		case <-done:
			return u
		default:
		}
		if rollup, err := os.ReadFile(dir + "/smaps_rollup"); err == nil {
			u.memory += (field(rollup, "Pss_Anon:") + field(rollup, "Pss_Shmem:") +
				field(rollup, "SwapPss:")) * 1024
		} else if status, err := os.ReadFile(dir + "/status"); err == nil {
			u.memory += resident(status)
		}
	}
	return u
}

// Approximate kernel memory, in bytes.
const (
	perSocket = 416 << 10 // maximum size of its buffers with the usual settings
	perInode  = 1 << 10   // a file in memory, besides its content
	perLock   = 256       // a lock on a range of a file
)

// fewSockets is how many sockets are not charged: programs with event loops and resolvers have them, and they
// buffer nothing.
const fewSockets = 16

// maxLocks is how many locks are counted. For every page of locks that it shows, the kernel walks all locks
// of the machine, and a legitimate command does not have more.
const maxLocks = 16 << 10

// unread returns the maximum kernel memory for the sockets in the network namespace of pid. The kernel shows
// the fill of buffers only for TCP connections, which may grow beyond perSocket if pidone could not bound
// them.
func unread(pid int) int64 {
	n := sockets(pid)
	if n == 0 {
		return 0
	}
	return max(n-fewSockets, 0)*perSocket + queued(pid)
}

// ownRoot returns the path to the file tree of process pid, the first of a sandbox. It reports false if the
// process has ended or still has the host's tree.
func ownRoot(pid int) (string, bool) {
	root := "/proc/" + strconv.Itoa(pid) + "/root"
	own, err := os.Stat(root + "/")
	host, herr := os.Stat("/")
	return root, err == nil && herr == nil && !os.SameFile(own, host)
}

// locks returns the number of file locks held by processes of the sandbox with file tree root, and false if
// it exceeds maxLocks. Locks of open file descriptions are excluded, because they have no owner and the
// kernel shows them in every sandbox.
func locks(root string) (n int64, counted bool) {
	f, err := os.Open(root + "/proc/locks")
	if err != nil {
		return 0, true
	}
	defer f.Close()
	// The kernel writes only whole lines.
	buf := make([]byte, 32<<10)
	for n <= maxLocks {
		m, err := f.Read(buf)
		n += int64(bytes.Count(buf[:m], []byte("\n")) - bytes.Count(buf[:m], []byte("OFDLCK")))
		if err != nil {
			return n, true
		}
	}
	return n, false
}

// files returns the memory used by those mounted directories that are file systems in memory, in the sandbox
// with file tree root.
func files(root string, mounted []string) int64 {
	var n int64
	for _, dir := range mounted {
		var st unix.Statfs_t
		if unix.Statfs(root+dir, &st) != nil {
			continue
		}
		// An overlay reports the numbers of its upper layer.
		if st.Type != unix.TMPFS_MAGIC && st.Type != unix.OVERLAYFS_SUPER_MAGIC {
			continue
		}
		n += int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*perInode
	}
	return n
}

// mounted returns the directories of the run that are separate file systems in memory.
func (e *execution) mounted() []string {
	dirs := []string{"/tmp", "/dev/shm", "/out"}
	if e.cmd.Workspace.Mode == sandbox.WorkspaceStaged {
		dirs = append(dirs, sandbox.WorkspaceDir)
	}
	return dirs
}

// field returns the number after key in a file of lines, or 0.
func field(data []byte, key string) int64 {
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				n, err := strconv.ParseInt(string(f[0]), 10, 64)
				if err != nil {
					return 0
				}
				return n
			}
		}
	}
	return 0
}

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
