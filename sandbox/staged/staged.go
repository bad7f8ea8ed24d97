// Package staged applies to a workspace what a command changed in an overlay above it.
package staged

import (
	"os"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// A Layer is what a run left above a staged workspace.
type Layer struct {
	Upper     *os.File // the overlay's upper directory
	Trusted   bool     // the server mounted the overlay, whose marks the command cannot set
	UID, GID  int      // the host's ids of the command's own files; only a server run by root looks at them
	Began     time.Time
	Workspace sandbox.Workspace
	Outcome   sandbox.Outcome
	MaxBytes  int64         // of all files together
	Timeout   time.Duration // for applying
}
