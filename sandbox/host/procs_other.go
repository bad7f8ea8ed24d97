//go:build !unix

package host

import (
	"os"
	"syscall"
)

const supported = false

// Disinherit does nothing: this system's programs inherit only what they are given.
func Disinherit() {}

func attributes() *syscall.SysProcAttr { return nil }

func awaitEnd(int) bool { return false }

func killSession(int) {}

func signalOf(*os.ProcessState) (string, int) { return "", 0 }
