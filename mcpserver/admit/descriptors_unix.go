//go:build unix

package admit

import "syscall"

// descriptors returns how many file descriptors this process may have open; 1<<20 if the limit is unknown.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 20
	}
	return uint64(limit.Cur)
}
