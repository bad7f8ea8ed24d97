package detect

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// ownOrRoots refuses a program, which this process starts with its own rights, that is another
// user's.
func ownOrRoots(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return errors.New("belongs to another user")
	}
	return nil
}

// pidSpace identifies this process's namespace of process numbers. Where that cannot be told, the
// name is one that no other process has.
func pidSpace() string {
	info, err := os.Stat("/proc/self/ns/pid")
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			return strconv.FormatUint(st.Ino, 36)
		}
	}
	return "p" + strconv.Itoa(os.Getpid())
}

// gone reports whether there is no such process.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
