//go:build !linux

package native

import (
	"context"
	"os"
	"strconv"

	"github.com/skillsd/skillsd/sandbox"
)

type (
	host  struct{}
	ahead struct{}
)

// Prepare does nothing on this system.
func (r *Runner) Prepare() {}

// Close does nothing on this system.
func (r *Runner) Close() {}

// A Builder lets another program build the sandbox. No program can on this system.
type Builder any

// GroupMemory returns 0: this system has no control groups.
func GroupMemory() int64 { return 0 }

// Memory returns "": no command runs on this system.
func (r *Runner) Memory() Memory { return "" }

// Processes returns "": no command runs on this system.
func (r *Runner) Processes() Memory { return "" }

func (r *Runner) run(context.Context, *sandbox.Cmd, func() error, bool) (*sandbox.Result, error) {
	return nil, unavailable("this system is not Linux",
		"run the server on Linux, or in a Linux virtual machine", nil)
}

// DefaultUIDs returns the default range.
func DefaultUIDs() UIDs { return defaults[0] }

// Check accepts every range, because no command runs on this system.
func (u UIDs) Check() error { return nil }

// OwnMark returns this process's ID after a hyphen.
func OwnMark() string { return "-" + strconv.Itoa(os.Getpid()) }

// Orphaned reports false: process IDs are not compared on this system.
func Orphaned(_, _ string) bool { return false }

// Landlock reports false: this system has no Landlock.
func Landlock() bool { return false }
