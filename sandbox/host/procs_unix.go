//go:build unix

package host

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const supported = true

// signalOf returns the name and the number of the signal that ended a process, or zero values.
func signalOf(state *os.ProcessState) (string, int) {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return unix.SignalName(ws.Signal()), int(ws.Signal())
	}
	return "", 0
}
