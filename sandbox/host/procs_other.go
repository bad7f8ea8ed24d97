//go:build !unix

package host

import (
	"os"
	"syscall"
)

const supported = false

// Disinherit does nothing: programs on this system inherit no other descriptors.
func Disinherit() {}

func attributes() *syscall.SysProcAttr { return nil }

func awaitEnd(int) bool { return false }

func killSession(int) {}

func signalOf(*os.ProcessState) (string, int) { return "", 0 }
