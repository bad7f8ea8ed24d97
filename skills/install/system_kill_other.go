//go:build !unix

package install

import "os/exec"

// killTree does nothing: without process groups, only the command itself is killed.
func killTree(*exec.Cmd) {}
