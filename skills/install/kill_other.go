//go:build !unix

package install

import "os/exec"

// killTree leaves it at the command itself: there are no process groups here.
func killTree(*exec.Cmd) {}

// limitFiles leaves a process as it is.
func limitFiles(int, int64) error { return nil }
