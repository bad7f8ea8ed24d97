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

// perSocket is the most that the buffers of a socket take with the kernel's usual settings, when their
// sizes are those it started with.
const perSocket = 416 << 10

// fewSockets are not charged: a program of event loops and resolvers has them, and they hold nothing.
const fewSockets = 16

// sample adds up the processes below pid: every process of a sandbox descends from its first.
// Resident memory counts a shared page once for each process; when the sum passes limit it is
// asked for again as the proportional set, which the kernel computes more slowly. Beside it are
// counted the page tables and mappings, sockets as if their buffers were full, which cannot be seen,
// locks, and the files in memory of the directories mounted, of which a process's maps count twice. It
// returns early with what it has when done is closed.
func sample(pid int, limit int64, mounted []string, done <-chan struct{}) usage {
	var u usage
	pids := descendants(pid)
	kernel := max(sockets(pid)-fewSockets, 0) * perSocket
	if root, ok := ownRoot(pid); ok {
		held, counted := locks(root)
		kernel += files(root, mounted) + held*perLock
		if !counted {
			kernel += limit + 1
		}
	}
	mapped := mappings{shared: map[string]bool{}, buf: make([]byte, 64<<10)}
	dirs := make([]string, 0, len(pids))
	for _, p := range pids {
		dir, status := live("/proc/" + strconv.Itoa(p))
		dirs = append(dirs, dir)
		u.memory += resident(status)
		u.tasks += int(field(status, "Threads:"))
		kernel += field(status, "VmPTE:") * 1024
		mapped.read(dir, done)
	}
	kernel += mapped.size(limit)
	if u.memory += kernel; u.memory <= limit {
		return u
	}
	u.memory = kernel
	for _, dir := range dirs {
		select {
		case <-done:
			return u
		default:
		}
		if rollup, err := os.ReadFile(dir + "/smaps_rollup"); err == nil {
			u.memory += (field(rollup, "Pss_Anon:") + field(rollup, "Pss_Shmem:") + field(rollup, "SwapPss:")) * 1024
		} else if status, err := os.ReadFile(dir + "/status"); err == nil {
			u.memory += resident(status)
		}
	}
	return u
}

func (e *execution) measure() {
	if e.group != nil {
		if e.group.killed() {
			e.end(sandbox.MemoryLimit)
		}
		if e.guest.Load() == nil {
			e.measureLocks()
			return
		}
	}
	u := e.sample()
	if u.memory > e.limits.Memory {
		e.end(sandbox.MemoryLimit)
	}
	if u.tasks >= e.limits.PIDs {
		e.crowded.Store(true)
	}
}

// perInode is what the kernel keeps for a file in memory beside its content, about.
const perInode = 1 << 10

// ownRoot is where the tree of process pid, the first of a sandbox, is seen from here, unless it is gone
// or not in its own tree yet.
func ownRoot(pid int) (string, bool) {
	root := "/proc/" + strconv.Itoa(pid) + "/root"
	own, err := os.Stat(root + "/")
	host, herr := os.Stat("/")
	return root, err == nil && herr == nil && !os.SameFile(own, host)
}

// perLock is what the kernel keeps for a lock on a range of a file, about.
const perLock = 256

// mostLocks is how many locks are counted: the kernel goes through all of the machine's for every page of
// them that it shows, and more are no command's that means well.
const mostLocks = 16 << 10

// locks is how many locks on files have owners that the sandbox with the given tree shows, unless they are
// too many to be counted. Those of an open file have no owner, and are shown to everybody.
func locks(root string) (n int64, counted bool) {
	f, err := os.Open(root + "/proc/locks")
	if err != nil {
		return 0, true
	}
	defer f.Close()
	buf := make([]byte, 32<<10) // what the kernel writes at once are whole lines
	for n <= mostLocks {
		m, err := f.Read(buf)
		n += int64(bytes.Count(buf[:m], []byte("\n")) - bytes.Count(buf[:m], []byte("OFDLCK")))
		if err != nil {
			return n, true
		}
	}
	return n, false
}

// measureLocks ends a run with more locks than are counted: no control group counts any.
func (e *execution) measureLocks() {
	pid := e.child.proc.Pid
	if e.runner.builder != nil {
		p := e.inside.Load()
		if p == nil {
			return
		}
		pid = p.pid
	}
	if root, ok := ownRoot(pid); ok {
		if _, counted := locks(root); !counted {
			e.end(sandbox.MemoryLimit)
		}
	}
}

// files is what the file systems in memory hold that the sandbox with the given tree has mounted at the
// given directories.
func files(root string, mounted []string) int64 {
	var n int64
	for _, dir := range mounted {
		var st unix.Statfs_t
		// An overlay tells of the layer that is written.
		if unix.Statfs(root+dir, &st) != nil || st.Type != unix.TMPFS_MAGIC && st.Type != unix.OVERLAYFS_SUPER_MAGIC {
			continue
		}
		n += int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*perInode
	}
	return n
}

// mounted are the directories of a run that are in memory, all of file systems of their own.
func (e *execution) mounted() []string {
	dirs := []string{"/tmp", "/dev/shm", "/out"}
	if e.cmd.Workspace.Mode == sandbox.WorkspaceStaged {
		dirs = append(dirs, sandbox.WorkspaceDir)
	}
	return dirs
}

// meter measures until the run is over. Adding up takes the longer the more processes there are:
// it gets no more than half of a processor, and nothing else waits for it.
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
