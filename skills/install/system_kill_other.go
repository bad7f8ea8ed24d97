//go:build !unix

package install

import "os/exec"

// killTree does nothing: there are no process groups here, so only the command itself ends.
func killTree(*exec.Cmd) {}
