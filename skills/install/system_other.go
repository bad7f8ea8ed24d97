//go:build !linux

package install

import (
	"errors"
	"os/exec"
)

// killTree does nothing: there are no process groups here, so only the command itself ends.
func killTree(*exec.Cmd) {}

// limitFiles does nothing: there are no limits of processes here.
func limitFiles(int, int64) error { return nil }

// exchange cannot be done in one step here.
func exchange(_, _ string) error { return errors.ErrUnsupported }
