package native

import (
	"bytes"
	"os"
	"strconv"

	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// sockets is how many sockets are open in the network namespace of a process, which is the run's own.
func sockets(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/sockstat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return field(bytes.TrimPrefix(line, []byte("sockets: ")), "used")
}

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

// live is where the kernel shows the memory of the process whose directory is given, and the status
// there. Once a process's first thread has ended, that shows none, and any other does.
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

// resident is the memory of a process with the given status, wherever the kernel keeps it: a process may
// have its own put into swap, which may be memory too.
func resident(status []byte) int64 {
	return (field(status, "RssAnon:") + field(status, "RssShmem:") + field(status, "VmSwap:")) * 1024
}

// mappings is what processes map: how much, and which memory that is shared without a file.
type mappings struct {
	number int
	shared map[string]bool // by inode
	buf    []byte
}

const (
	// perMapping is what the kernel keeps for one mapping, about.
	perMapping = 256

	// mostMappings is how many are looked at: more, of which sixteen processes could have as many as the
	// kernel lets one have, are no command's that means well, and would hold up the watch over the rest.
	mostMappings = 256 << 10
)

// read adds those that the kernel shows in dir.
func (m *mappings) read(dir string, done <-chan struct{}) {
	f, err := os.Open(dir + "/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for rest := 0; m.number <= mostMappings; {
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
			m.note(line)
		}
		rest = copy(m.buf, lines[end:])
		if err != nil || rest == len(m.buf) {
			return
		}
	}
}

// note looks for memory that is shared without a file: of it the kernel shows the file it would be of, or
// the name that the process gave it.
func (m *mappings) note(line []byte) {
	if !bytes.HasSuffix(line, []byte(" /dev/zero (deleted)\n")) && !bytes.Contains(line, []byte(" [anon_shmem:")) {
		return
	}
	if f := bytes.Fields(line); len(f) > 4 {
		m.shared[string(f[4])] = true
	}
}

// size is what all of it may take in bytes, and above limit when there was too much to look at.
func (m *mappings) size(limit int64) int64 {
	if m.number > mostMappings {
		return limit + 1
	}
	return int64(m.number)*perMapping + int64(len(m.shared))*pidone.MaxShared
}
