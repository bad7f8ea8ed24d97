package staged

import (
	"io"
	"os"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// An Undo returns the entries that a run changed or deleted in a workspace, and removes those that it made.
//
// It has the rules of Apply: no link is followed, no other mount is entered, no protected name is written or
// removed, and a file is replaced whole or not at all. Owners are returned by a root server only; set-id bits
// and the access lists and other attributes of deleted entries are not, and a returned file has the time at
// which it was returned, so that tools which compare times see the change.
type Undo struct {
	Dir     *os.File // the workspace
	Changes []sandbox.Change
	// Open opens the kept content of a file.
	Open func(digest string) (io.ReadCloser, error)
	// Force also replaces or removes files that are no longer what the run left.
	Force   bool
	DryRun  bool // change nothing
	Timeout time.Duration
}

// Undone is the outcome for one entry.
type Undone struct {
	Path string
	Op   string // "write", "link", "mkdir", "chmod" or "delete"; empty if the entry is as before the run
	// Changed is set if the entry is no longer what the run left. It is then refused, unless Force is set.
	Changed bool
	Refused string // why it is not returned; empty if it is
}
