//go:build !linux

package detect

import "os/exec"

// ownOrRoots allows every program: none is started here.
func ownOrRoots(string) error { return nil }

// asOwner leaves programs to the process's own user: owners are not looked at here.
func asOwner(_ *exec.Cmd, _ string, dirs []string, home string) ([]string, string, error) {
	return dirs, home, nil
}

// runAlone runs cmd in this process's session, and leaves alone what that leaves behind.
func runAlone(cmd *exec.Cmd) error { return cmd.Run() }

// pidSpace returns "": numbers of processes say nothing here.
func pidSpace() string { return "" }

// gone reports false: age alone decides.
func gone(int) bool { return false }
