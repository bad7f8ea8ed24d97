package native

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// maxPause bounds the time between two measurements.
const maxPause = 500 * time.Millisecond

// A usage is what the processes of a run hold at one moment.
type usage struct {
	memory int64
	tasks  int
}

// About how many bytes the kernel keeps.
const (
	perSocket = 416 << 10 // the most that its buffers take with the kernel's usual settings
	perInode  = 1 << 10   // of a file in memory, besides its content
	perLock   = 256       // on a range of a file
)

// fewSockets are not charged: a program with event loops and resolvers has them, and they hold nothing.
const fewSockets = 16

// maxLocks is how many locks are counted: for every page of them that the kernel shows it goes through
// all of the machine's, and a command that means well does not have more.
const maxLocks = 16 << 10

// unread returns the most that the kernel keeps for the sockets of the network namespace of pid: how full
// their buffers are is shown of TCP connections only, whose buffers grow where pidone could not bound them.
func unread(pid int) int64 {
	n := sockets(pid)
	if n == 0 {
		return 0
	}
	return max(n-fewSockets, 0)*perSocket + queued(pid)
}

// sample adds up what the processes below pid use: every process of a sandbox descends from its first.
// It counts resident memory, page tables and mappings, sockets and pipes as if they were full, watches of
// descriptors, locks, and files in the directories of mounted that are in memory. Once done is closed it
// returns early with what it has.
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
	// The resident set counts a shared page once for each process. Only if that is too much the
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

// measure ends the run if it is over its memory limit, and notes that it reached its process limit.
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
		// A cgroup counts everything else but locks on files.
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

// ownRoot returns where the file tree of process pid, the first of a sandbox, is seen from here. It
// reports false if the process is gone or still has the host's tree.
func ownRoot(pid int) (string, bool) {
	root := "/proc/" + strconv.Itoa(pid) + "/root"
	own, err := os.Stat(root + "/")
	host, herr := os.Stat("/")
	return root, err == nil && herr == nil && !os.SameFile(own, host)
}

// locks returns how many locks on files are held by processes of the sandbox whose file tree is at
// root, and false if there are too many to be counted. Locks of an open file description are left out:
// they have no owner, and the kernel shows them to everybody.
func locks(root string) (n int64, counted bool) {
	f, err := os.Open(root + "/proc/locks")
	if err != nil {
		return 0, true
	}
	defer f.Close()
	buf := make([]byte, 32<<10) // the kernel writes whole lines at once
	for n <= maxLocks {
		m, err := f.Read(buf)
		n += int64(bytes.Count(buf[:m], []byte("\n")) - bytes.Count(buf[:m], []byte("OFDLCK")))
		if err != nil {
			return n, true
		}
	}
	return n, false
}

// files returns how many bytes the directories of mounted take that are file systems in memory, in the
// sandbox whose file tree is at root.
func files(root string, mounted []string) int64 {
	var n int64
	for _, dir := range mounted {
		var st unix.Statfs_t
		if unix.Statfs(root+dir, &st) != nil {
			continue
		}
		// An overlay reports the figures of the layer that is written.
		if st.Type != unix.TMPFS_MAGIC && st.Type != unix.OVERLAYFS_SUPER_MAGIC {
			continue
		}
		n += int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*perInode
	}
	return n
}

// mounted returns the directories of the run that are in memory, each a file system of its own.
func (e *execution) mounted() []string {
	dirs := []string{"/tmp", "/dev/shm", "/out"}
	if e.cmd.Workspace.Mode == sandbox.WorkspaceStaged {
		dirs = append(dirs, sandbox.WorkspaceDir)
	}
	return dirs
}

// meter measures until the run is over. Adding up takes longer the more processes there are: it gets at
// most half of a processor, and nothing else waits for it.
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
