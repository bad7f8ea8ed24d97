//go:build !unix

package host

import (
	"os"
	"syscall"
)

const supported = false

func attributes() *syscall.SysProcAttr { return nil }

func awaitEnd(int) bool { return false }

func killSession(int) {}

func signalOf(*os.ProcessState) (string, int) { return "", 0 }
