//go:build unix

package host

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const supported = true

func signalOf(state *os.ProcessState) string {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return unix.SignalName(ws.Signal())
	}
	return ""
}
