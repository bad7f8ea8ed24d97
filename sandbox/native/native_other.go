//go:build !linux

package native

import (
	"context"

	"github.com/skillsd/skillsd/sandbox"
)

type (
	host  struct{}
	ahead struct{}
)

// Prepare does nothing: no sandbox is begun on this system.
func (r *Runner) Prepare() {}

// Close does nothing: no sandbox is begun on this system.
func (r *Runner) Close() {}

// A Builder lets another program make the sandbox. None can on this system.
type Builder any

// GroupMemory returns 0: there are no control groups on this system.
func GroupMemory() int64 { return 0 }

// Memory returns "": nothing runs here.
func (r *Runner) Memory() Memory { return "" }

// Processes returns "", like Memory.
func (r *Runner) Processes() Memory { return "" }

func (r *Runner) run(context.Context, *sandbox.Cmd, func() error) (*sandbox.Result, error) {
	return nil, unavailable("this system is not Linux",
		"run the server on Linux, or in a Linux virtual machine", nil)
}

// DefaultUIDs returns the range where no other was named.
func DefaultUIDs() UIDs { return defaults[0] }

// Check refuses no range: nothing runs here.
func (u UIDs) Check() error { return nil }

// OwnUsers reports false: nothing runs here.
func OwnUsers(sandbox.Workspace) bool { return false }

// Landlock reports false: this system has none.
func Landlock() bool { return false }
