//go:build !linux

package native

import (
	"context"

	"github.com/skillsd/skillsd/sandbox"
)

type host struct{}

// Memory returns "": nothing runs here.
func (r *Runner) Memory() Memory { return "" }

// Processes returns "", like Memory.
func (r *Runner) Processes() Memory { return "" }

// Run always returns an *[sandbox.UnavailableError]: this backend needs Linux.
func (r *Runner) Run(context.Context, *sandbox.Cmd) (*sandbox.Result, error) {
	return nil, unavailable("this system is not Linux", "run the server on Linux, or in a Linux virtual machine", nil)
}
