package native

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// sockets returns the number of open sockets in the network namespace of a process.
func sockets(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/sockstat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return field(bytes.TrimPrefix(line, []byte("sockets: ")), "used")
}

// queued returns the number of bytes queued in the TCP connections of a process's network namespace, beyond
// perSocket for each.
func queued(pid int) (n int64) {
	for _, name := range []string{"tcp", "tcp6"} {
		if data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/" + name); err == nil {
			n += queuedIn(data)
		}
	}
	return n
}

// connecting is the state SYN_SENT in the kernel's lists of TCP connections.
const connecting = "02"

// queuedIn is queued for one of the kernel's lists. The kernel shows the difference of two sequence numbers
// of a connection, which it reads without a lock. During connect, one of them has its random initial value
// and the other is still zero, so the difference may be gigabytes. Later it may be negative for a moment.
func queuedIn(list []byte) (n int64) {
	for line := range bytes.Lines(list) {
		f := bytes.Fields(line)
		// Nothing can be queued yet.
		if len(f) < 5 || string(f[3]) == connecting {
			continue
		}
		sent, received, _ := strings.Cut(string(f[4]), ":")
		for _, digits := range []string{sent, received} {
			// The header line has no numbers.
			size, err := strconv.ParseUint(digits, 16, 32)
			if err == nil {
				n += max(int64(int32(size))-perSocket, 0)
			}
		}
	}
	return n
}

// descendants returns the processes that descend from pid.
func descendants(pid int) []int {
	var found []int
	queue := []int{pid}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		tasks := "/proc/" + strconv.Itoa(p) + "/task"
		d, err := os.Open(tasks)
		if err != nil {
			continue
		}
		// The list is empty if the process has ended meanwhile.
		names, _ := d.Readdirnames(-1)
		_ = d.Close()
		for _, t := range names {
			children, err := os.ReadFile(tasks + "/" + t + "/children")
			if err != nil {
				continue
			}
			for f := range bytes.FieldsSeq(children) {
				if c, err := strconv.Atoi(string(f)); err == nil {
					found = append(found, c)
					queue = append(queue, c)
				}
			}
		}
	}
	return found
}

// live returns the /proc directory with the memory of a process, and its status. After the first thread of a
// process has ended, the directory of the process shows no memory, but the directory of any other thread
// does.
func live(dir string) (string, []byte) {
	status, err := os.ReadFile(dir + "/status")
	if err != nil || bytes.Contains(status, []byte("RssAnon:")) {
		return dir, status
	}
	d, err := os.Open(dir + "/task")
	if err != nil {
		return dir, status
	}
	defer d.Close()
	// The list is empty if the process has ended meanwhile.
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		thread := dir + "/task/" + name
		if s, err := os.ReadFile(thread + "/status"); err == nil && bytes.Contains(s, []byte("RssAnon:")) {
			return thread, s
		}
	}
	return dir, status
}

// resident returns the memory of a process from its status. It includes swap, because swapped memory still
// belongs to the process, and swap may itself be in memory.
func resident(status []byte) int64 {
	return (field(status, "RssAnon:") + field(status, "RssShmem:") + field(status, "VmSwap:")) * 1024
}

// mappings collects the number of mappings of processes and the memory that they share without a file.
type mappings struct {
	number int
	shared map[string]bool // by inode
	buf    []byte
}

const (
	perMapping = 256 // approximate kernel memory for one mapping, in bytes

	// maxMappings is how many mappings are examined. Sixteen processes may have as many, and a legitimate
	// command has fewer; examining more would delay all other measurements.
	maxMappings = 256 << 10
)

// read adds the mappings of the process with directory dir.
func (m *mappings) read(dir string, done <-chan struct{}) {
	f, err := os.Open(dir + "/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for rest := 0; m.number <= maxMappings; {
		select {
		case <-done:
			return
		default:
		}
		n, err := f.Read(m.buf[rest:])
		lines := m.buf[:rest+n]
		end := bytes.LastIndexByte(lines, '\n') + 1
		for line := range bytes.Lines(lines[:end]) {
			m.number++
			// The kernel shows memory shared without a file as a deleted /dev/zero, or under a name set by
			// the process.
			zero := bytes.HasSuffix(line, []byte(" /dev/zero (deleted)\n"))
			if !zero && !bytes.Contains(line, []byte(" [anon_shmem:")) {
				continue
			}
			if f := bytes.Fields(line); len(f) > 4 {
				m.shared[string(f[4])] = true
			}
		}
		rest = copy(m.buf, lines[end:])
		if err != nil || rest == len(m.buf) {
			return
		}
	}
}

// descriptors collects the pipes and epoll watches of processes.
type descriptors struct {
	pipes   map[uint64]bool // by inode
	watches int             // of all epoll instances
	buf     []byte
}

const (
	perPipe  = 64 << 10 // maximum size of a pipe whose size cannot be set
	perWatch = 256

	// fewPipes is how many pipes are not charged: programs that start others have them, and they are read.
	fewPipes = 32

	// maxWatches is how many watches are examined: the kernel writes a line for each.
	maxWatches = 64 << 10
)

// read adds the descriptors of the process with directory dir. Its threads share them, because the filter
// refuses threads with their own.
func (d *descriptors) read(dir string, done <-chan struct{}) {
	f, err := os.Open(dir + "/fd")
	if err != nil {
		return
	}
	defer f.Close()
	// The list is empty if the process has ended meanwhile.
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		select {
		case <-done:
			return
		default:
		}
		var st unix.Statx_t
		// A network file system is not queried, which could take long.
		const local, want = unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE | unix.STATX_INO
		if unix.Statx(int(f.Fd()), name, local, want, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFIFO:
			d.pipes[st.Ino] = true
		// Anonymous inodes, such as the inode of an epoll instance, have no file type.
		case 0:
			if target, _ := os.Readlink(dir + "/fd/" + name); target == "anon_inode:[eventpoll]" {
				d.count(dir + "/fdinfo/" + name)
			}
		}
	}
}

// count adds the watches of the epoll instance described in file.
func (d *descriptors) count(file string) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	for d.watches <= maxWatches {
		n, err := f.Read(d.buf)
		d.watches += bytes.Count(d.buf[:n], []byte("\n"))
		if err != nil {
			return
		}
	}
}

// size returns the maximum size of all pipes and watches. If not all were examined, it exceeds limit.
func (d *descriptors) size(limit int64) int64 {
	if d.watches > maxWatches {
		return limit + 1
	}
	return int64(max(len(d.pipes)-fewPipes, 0))*perPipe + int64(d.watches)*perWatch
}

// size returns the maximum size of all mappings. If not all were examined, it exceeds limit.
func (m *mappings) size(limit int64) int64 {
	if m.number > maxMappings {
		return limit + 1
	}
	return int64(m.number)*perMapping + int64(len(m.shared))*pidone.MaxShared
}
