package native

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// sockets returns how many sockets are open in the network namespace of a process.
func sockets(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/sockstat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return field(bytes.TrimPrefix(line, []byte("sockets: ")), "used")
}

// queued returns how many bytes wait in the TCP connections of the network namespace of a process, beyond
// perSocket in each.
func queued(pid int) (n int64) {
	for _, name := range []string{"tcp", "tcp6"} {
		if data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/" + name); err == nil {
			n += queuedIn(data)
		}
	}
	return n
}

// connecting is how the kernel's lists of TCP connections show the state SYN_SENT.
const connecting = "02"

// queuedIn returns the same for one of the kernel's lists. The kernel shows the difference of two sequence
// numbers of a connection, which it reads without a lock. While connect is at work, one of them has its first
// value, which is random, and the other has none yet, so the difference may be gigabytes. Later it may be
// negative for a moment.
func queuedIn(list []byte) (n int64) {
	for line := range bytes.Lines(list) {
		f := bytes.Fields(line)
		if len(f) < 5 || string(f[3]) == connecting { // nothing can wait yet
			continue
		}
		sent, received, _ := strings.Cut(string(f[4]), ":")
		for _, digits := range []string{sent, received} {
			size, err := strconv.ParseUint(digits, 16, 32) // fails in the line of headings
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
		names, _ := d.Readdirnames(-1) // a process that ends meanwhile has none
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

// live returns the directory in which the kernel shows the memory of a process, and the status there.
// After a process's first thread has ended, the process's own directory shows none, but the directory of
// any other thread does.
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
	names, _ := d.Readdirnames(-1) // a process that ends meanwhile has none
	for _, name := range names {
		thread := dir + "/task/" + name
		if s, err := os.ReadFile(thread + "/status"); err == nil && bytes.Contains(s, []byte("RssAnon:")) {
			return thread, s
		}
	}
	return dir, status
}

// resident returns the memory of a process with the given status. Swap counts: a process may have its
// memory put there, and swap may be in memory too.
func resident(status []byte) int64 {
	return (field(status, "RssAnon:") + field(status, "RssShmem:") + field(status, "VmSwap:")) * 1024
}

// mappings describe what processes map: how many mappings, and which memory is shared without a file.
type mappings struct {
	number int
	shared map[string]bool // by inode
	buf    []byte
}

const (
	perMapping = 256 // bytes that the kernel keeps for one, about

	// maxMappings is how many are looked at. Sixteen processes may have as many, and a command that means
	// well does not; looking at more would delay the watch over everything else.
	maxMappings = 256 << 10
)

// read adds the mappings of the process whose directory is dir.
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
			// The kernel shows memory that is shared without a file as a deleted /dev/zero, or under the
			// name it has from the process.
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

// descriptors describe what the kernel keeps for open descriptors: which pipes, and how many watches.
type descriptors struct {
	pipes   map[uint64]bool // by inode
	watches int             // of all epoll instances
	buf     []byte
}

const (
	perPipe  = 64 << 10 // the most that one holds whose size cannot be set
	perWatch = 256

	// fewPipes are not charged: whoever starts programs has them, and they are read.
	fewPipes = 32

	// maxWatches is how many are looked at: the kernel writes a line for each.
	maxWatches = 64 << 10
)

// read adds the descriptors of the process whose directory is dir. Its threads have the same: the filter
// refuses those that would have their own.
func (d *descriptors) read(dir string, done <-chan struct{}) {
	f, err := os.Open(dir + "/fd")
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1) // a process that ends meanwhile has none
	for _, name := range names {
		select {
		case <-done:
			return
		default:
		}
		var st unix.Statx_t
		// A file system of a network is not asked, which could take long.
		const local, want = unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE | unix.STATX_INO
		if unix.Statx(int(f.Fd()), name, local, want, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFIFO:
			d.pipes[st.Ino] = true
		case 0:
			if target, _ := os.Readlink(dir + "/fd/" + name); target == "anon_inode:[eventpoll]" {
				d.count(dir + "/fdinfo/" + name)
			}
		}
	}
}

// count adds the watches of the epoll instance that is described in a file.
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

// size returns how many bytes all of it may take, which is more than limit if not all was looked at.
func (d *descriptors) size(limit int64) int64 {
	if d.watches > maxWatches {
		return limit + 1
	}
	return int64(max(len(d.pipes)-fewPipes, 0))*perPipe + int64(d.watches)*perWatch
}

// size returns how many bytes all of it may take, which is more than limit if not all was looked at.
func (m *mappings) size(limit int64) int64 {
	if m.number > maxMappings {
		return limit + 1
	}
	return int64(m.number)*perMapping + int64(len(m.shared))*pidone.MaxShared
}
