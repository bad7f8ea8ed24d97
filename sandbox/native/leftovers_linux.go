package native

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// OwnMark returns a part of a name that identifies this process on this machine. A process ID is valid only
// in its PID namespace, so the mark begins with the identity of the namespace.
func OwnMark() string { return pidSpace() + "-" + strconv.Itoa(os.Getpid()) }

// Orphaned reports whether name begins with prefix, the [OwnMark] of an ended process, and a hyphen.
// It reports false for a process of another PID namespace.
func Orphaned(prefix, name string) bool {
	rest, ok := strings.CutPrefix(name, prefix+pidSpace()+"-")
	if !ok || pidSpace() == "" {
		return false
	}
	number, _, marked := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	return marked && err == nil && pid > 0 && unix.Kill(pid, 0) == unix.ESRCH
}

// pidSpace returns the identity of this process's PID namespace, or "" if the kernel does not show it.
var pidSpace = sync.OnceValue(func() string {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return ""
	}
	return strconv.FormatUint(st.Ino, 36)
})
