//go:build !linux

package runsc

import (
	"context"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
)

// A Runner refuses every command: gVisor exists on Linux only.
type Runner struct{}

// New returns a runner; a nil opts means the defaults.
func New(*Options) *Runner { return &Runner{} }

// Memory returns "": nothing runs here.
func (r *Runner) Memory() native.Memory { return "" }

// Processes returns "", like Memory.
func (r *Runner) Processes() native.Memory { return "" }

// Run always returns an *[sandbox.UnavailableError].
func (r *Runner) Run(context.Context, *sandbox.Cmd) (*sandbox.Result, error) {
	return nil, unavailable("this system is not Linux", "run the server on Linux, or in a Linux virtual machine", nil)
}
