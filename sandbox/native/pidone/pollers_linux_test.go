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
	var kinds []string
	for _, fd := range got {
		link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, link)
	}
	if !slices.Contains(kinds, "anon_inode:[eventpoll]") || !slices.Contains(kinds, "anon_inode:[eventfd]") || len(got) != 2 {
		t.Errorf("pollers() = %v, which are %q", got, kinds)
	}
}
