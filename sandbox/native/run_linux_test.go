package native

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// What a run wrote is read although the time for reading is over before anyone began to: a machine
// that stalls loses neither output nor outcome.
func TestReadAfterTheDeadline(t *testing.T) {
	said := strings.Repeat("output\n", 9000) // two reads, and less than a pipe holds
	for _, closed := range []bool{true, false} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(said); err != nil {
			t.Fatal(err)
		}
		if closed {
			w.Close()
		}
		if err := r.SetDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
		c := sandbox.NewCapture(1<<20, nil)
		c.Drain(r, func(o sandbox.Outcome) { t.Errorf("the run was ended: %s", o) })
		if got := c.Stream().Total; got != int64(len(said)) {
			t.Errorf("%d bytes of %d were read, the other end closed: %v", got, len(said), closed)
		}
		r.Close()
		w.Close()
	}
}

func TestListenAfterTheDeadline(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	if _, err := theirs.Write([]byte{pidone.MsgFiles}); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write(binary.LittleEndian.AppendUint64([]byte{pidone.MsgExit}, 7<<8)); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if err := ours.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	e := &execution{launch: launch{runner: New(nil), cmd: &sandbox.Cmd{}, child: &child{control: ours}}, ready: make(chan struct{})}
	e.listen(t.Context())
	if e.report.status == nil || e.report.status.ExitStatus() != 7 {
		t.Errorf("status = %v, want exit 7", e.report.status)
	}
}

// A helper that failed before it read what it was sent is still heard.
func TestListenAfterAReset(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	failed := append(binary.LittleEndian.AppendUint32([]byte{pidone.MsgError}, uint32(unix.EPERM)), "mount /proc"...)
	if _, err := theirs.Write(failed); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write([]byte{pidone.MsgGo}); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	e := &execution{launch: launch{runner: New(nil), cmd: &sandbox.Cmd{}, child: &child{control: ours}}, ready: make(chan struct{})}
	e.listen(t.Context())
	if e.report.step != "mount /proc" || e.report.errno != unix.EPERM {
		t.Errorf("the helper said %q, %v, want its last words", e.report.step, e.report.errno)
	}
}
