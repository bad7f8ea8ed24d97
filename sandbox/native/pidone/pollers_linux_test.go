package pidone

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

// The descriptors that the runtime polls with are known, and no other is taken for one.
func TestPollers(t *testing.T) {
	r, w, err := os.Pipe() // which starts the poller
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	got, err := pollers()
	if err != nil {
		t.Fatal(err)
	}
	// They may have been opened where a helper has its own descriptors.
	var want []int
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		link, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if err == nil && fd >= FirstFD && (link == "anon_inode:[eventpoll]" || link == "anon_inode:[eventfd]") {
			want = append(want, fd)
		}
	}
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("pollers() = %v, want %v", got, want)
	}
}
