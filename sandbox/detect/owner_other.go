//go:build !linux

package detect

import (
	"io/fs"
	"os/exec"

	"github.com/skillsd/skillsd/sandbox/native"
)

// ownOrRoots accepts every program, because this system runs no commands.
func ownOrRoots(string) error { return nil }

// uidOf returns -1, because not all systems have numeric owners.
func uidOf(fs.FileInfo) int { return -1 }

// asOwner leaves cmd to the process's own user, because owners are not examined on this system.
func asOwner(_ *exec.Cmd, _ string, dirs []string, home string) ([]string, string, error) {
	return dirs, home, nil
}

// runAlone runs cmd in this process's session and ignores its remaining processes.
func runAlone(cmd *exec.Cmd, _ native.UIDs) error { return cmd.Run() }
