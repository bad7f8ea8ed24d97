//go:build unix

package skills_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// spent is the processor time of this process: what other programs take of it on a busy machine is no part of
// that.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
