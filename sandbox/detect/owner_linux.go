package detect

import (
	"errors"
	"os"
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
