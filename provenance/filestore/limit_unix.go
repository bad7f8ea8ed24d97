//go:build unix

package filestore

import (
	"math"
	"syscall"
)

// descriptors is how many file descriptors an open session holds: its lock and its record.
const descriptors = 2

// MaxOpen returns how many sessions can be open with half of the file descriptors this process may
// have, at least 1. The other half is for what else the process does, writing views included.
func MaxOpen() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(max(uint64(limit.Cur)/2/descriptors, 1), math.MaxInt32))
}
