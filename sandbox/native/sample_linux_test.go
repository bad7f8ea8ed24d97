package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// A measurement that is under way when the run ends holds up nobody.
func TestSampleStopsWithTheRun(t *testing.T) {
	// Neither what other tests start nor their sockets count.
	cat := exec.Command("sh", "-c", "cat; :")
	cat.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET}
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Skipf("missing capability: user and network namespaces: %v", err)
	}
	defer func() { _ = in.Close(); _ = cat.Wait() }()
	// Once it echoes it has memory of its own.
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	going := sample(cat.Process.Pid, -1, nil, done)
	close(done)
	ended := sample(cat.Process.Pid, -1, nil, done)
	if going.memory <= ended.memory {
		t.Errorf("sampled %d bytes during the run and %d after it", going.memory, ended.memory)
	}
}

// Before the helper has its own tree the directories are the host's.
func TestFilesOfTheHostDoNotCount(t *testing.T) {
	if root, ok := ownRoot(os.Getpid()); ok {
		t.Errorf("%s counts as a sandbox's", root)
	}
}

// Memory that was put into swap, or that only a later thread of a process shows, is still a process's.
func TestResident(t *testing.T) {
	const status = "Name:\tx\nVmSwap:\t    4 kB\nRssAnon:\t   16 kB\nRssFile:\t  512 kB\nRssShmem:\t    8 kB\n"
	if got := resident([]byte(status)); got != 28<<10 {
		t.Errorf("resident = %d, want %d", got, 28<<10)
	}
	dir := t.TempDir()
	testtree.Write(t, dir, map[string]string{"status": "Name:\tx\n", "task/1/status": "Name:\tx\n", "task/2/status": status})
	if at, got := live(dir); at != filepath.Join(dir, "task", "2") || string(got) != status {
		t.Errorf("live = %q, %q", at, got)
	}
}

// Bytes that wait in a connection are counted. A connection that is being made has none, though the kernel may show
// the first number of its sequence, and a difference that is negative for a moment is nothing.
func TestQueued(t *testing.T) {
	const (
		headings = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
		line     = "   6: 0100007F:D5C8 0100007F:A4D9 %s %08X:%08X 00:00000000 00000000     0        0 446921 1\n"
		much     = perSocket + 1<<20
	)
	for _, tt := range []struct {
		state          string
		sent, received uint32
		want           int64
	}{
		{"01", much, much, 2 << 20},
		{"08", 0, much, 1 << 20},
		{"01", perSocket, 100, 0},
		{"02", 0x889EDA57, 0, 0},
		{"02", 0x21F39B79, 0, 0},
		{"01", 0xFFFFFF00, much, 1 << 20},
	} {
		list := headings + fmt.Sprintf(line, tt.state, tt.sent, tt.received)
		if got := queuedIn([]byte(list)); got != tt.want {
			t.Errorf("queuedIn(%q) = %d, want %d", list, got, tt.want)
		}
	}
}

// Memory shared without a file counts once for all processes, under whatever name, and as if it were as
// large as it may be.
func TestMappings(t *testing.T) {
	const maps = "1000-2000 rw-p 00000000 00:00 0 \n" +
		"2000-3000 rw-s 00000000 00:01 7                          /dev/zero (deleted)\n" +
		"3000-4000 rw-s 00000000 00:01 7                          /dev/zero (deleted)\n" +
		"4000-5000 rw-s 00000000 00:01 8                          [anon_shmem:x]\n" +
		"5000-6000 rw-s 00000000 00:1b 9                          /tmp/zero\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "maps"), []byte(maps), 0o644); err != nil {
		t.Fatal(err)
	}
	m := mappings{shared: map[string]bool{}, buf: make([]byte, 100)} // lines are cut
	m.read(dir, make(chan struct{}))
	m.read(dir, make(chan struct{}))
	if got, want := m.size(1), int64(10*perMapping+2*pidone.MaxShared); got != want {
		t.Errorf("size = %d, want %d", got, want)
	}
	m.number = maxMappings + 1
	if got := m.size(1 << 40); got <= 1<<40 {
		t.Errorf("size of too many = %d", got)
	}
}
