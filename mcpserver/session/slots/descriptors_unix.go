//go:build unix

package slots

import "syscall"

// descriptors is how many file descriptors this process may have open; many when that is not known.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 20
	}
	return uint64(limit.Cur)
}
