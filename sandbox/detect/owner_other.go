//go:build !linux

package detect

import (
	"io/fs"
	"os/exec"

	"github.com/skillsd/skillsd/sandbox/native"
)

// ownOrRoots allows every program: this system starts none.
func ownOrRoots(string) error { return nil }

// uidOf returns -1: owners are not numbers everywhere.
func uidOf(fs.FileInfo) int { return -1 }

// asOwner leaves programs to the process's own user: this system's owners are not examined.
func asOwner(_ *exec.Cmd, _ string, dirs []string, home string) ([]string, string, error) {
	return dirs, home, nil
}

// runAlone runs cmd in this process's session, and leaves alone what that leaves behind.
func runAlone(cmd *exec.Cmd, _ native.UIDs) error { return cmd.Run() }

// pidSpace returns "": numbers of processes are not compared on this system.
func pidSpace() string { return "" }

// gone reports false: here only age decides.
func gone(int) bool { return false }
