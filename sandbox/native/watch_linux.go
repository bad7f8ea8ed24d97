package native

import (
	"bytes"
	"os"
	"strconv"
)

// A usage is what the processes of a run hold at one moment.
type usage struct {
	memory int64
	tasks  int
}

// perSocket is the most that the buffers of a socket take whose owner asks for as much as it may, with
// the kernel's usual settings.
const perSocket = 416 << 10

// fewSockets are not charged: a program of event loops and resolvers has them, and they hold nothing.
const fewSockets = 16

// sample adds up the processes below pid: every process of a sandbox descends from its first.
// Resident memory counts a shared page once for each process; when the sum passes limit it is
// asked for again as the proportional set, which the kernel computes more slowly. Beside it are
// counted the page tables, and sockets as if their buffers were full, which cannot be seen.
func sample(pid int, limit int64) usage {
	var u usage
	pids := descendants(pid)
	kernel := max(sockets(pid)-fewSockets, 0) * perSocket
	for _, p := range pids {
		dir := "/proc/" + strconv.Itoa(p)
		if status, err := os.ReadFile(dir + "/status"); err == nil {
			u.memory += field(status, "RssAnon:")*1024 + field(status, "RssShmem:")*1024
			u.tasks += int(field(status, "Threads:"))
			kernel += field(status, "VmPTE:") * 1024
		}
	}
	if u.memory += kernel; u.memory <= limit {
		return u
	}
	u.memory = kernel
	for _, p := range pids {
		dir := "/proc/" + strconv.Itoa(p)
		if rollup, err := os.ReadFile(dir + "/smaps_rollup"); err == nil {
			u.memory += (field(rollup, "Pss_Anon:") + field(rollup, "Pss_Shmem:")) * 1024
		} else if status, err := os.ReadFile(dir + "/status"); err == nil {
			u.memory += field(status, "RssAnon:")*1024 + field(status, "RssShmem:")*1024
		}
	}
	return u
}

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
