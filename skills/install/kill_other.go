//go:build !linux

package install

import "os/exec"

// killTree does nothing: there are no process groups here, so only the command itself ends.
func killTree(*exec.Cmd) {}

// limitFiles does nothing: there are no limits of processes here.
func limitFiles(int, int64) error { return nil }
