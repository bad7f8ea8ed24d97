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

// sample adds up the processes below pid: every process of a sandbox descends from its first.
// Resident memory counts a shared page once for each process; when the sum passes limit it is
// asked for again as the proportional set, which the kernel computes more slowly.
func sample(pid int, limit int64) usage {
	var u usage
	pids := descendants(pid)
	for _, p := range pids {
		dir := "/proc/" + strconv.Itoa(p)
		if status, err := os.ReadFile(dir + "/status"); err == nil {
			u.memory += field(status, "RssAnon:")*1024 + field(status, "RssShmem:")*1024
			u.tasks += int(field(status, "Threads:"))
		}
	}
	if u.memory <= limit {
		return u
	}
	u.memory = 0
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
