// Package staged applies to a workspace what a command changed in an overlay above it.
//
// The layer of changes is the work of the command, and so hostile. The workspace belongs to somebody who
// may change it at the same time, and may hold links of any kind. Both are read and written by single
// names in open directories.
//
// # What is applied
//
//   - New and changed regular files, each as a whole: after a crash it is the old or the new one.
//   - New directories, and directories that take the place of files.
//   - Deletions, after all else is in place.
//   - The time of a file, unless it is in the future, or not later than the time of the file before.
//   - The mode of a file but for set-id bits, and the right of others to write only where the file that
//     it replaces gave that too.
//
// # What is refused
//
// A change that is refused leaves the workspace as it is, and is reported with a reason.
//
//   - Every change of a run that did not exit by itself, and what is left when the time is over.
//   - Links, devices, pipes and sockets. No link of the workspace is followed.
//   - Names and directories that known tools run or trust, at any depth, and the caller's protected
//     paths: they are neither written nor deleted nor moved away with a directory around them.
//   - Files and paths that hold a secret (Workspace.Withhold): the client reads the workspace.
//   - What would make, change or delete a git repository, one without a .git among them.
//   - What somebody else changed since the run began, and anything below another mount.
//   - Modes of directories that were there: they decide who reaches what is in them.
//   - A file in the place of one whose owner, group or access list it cannot have. A server of root
//     gives no file to a user who is neither the directory's owner nor the command's.
//   - Deletion of a tree of which something must stay, and of what may have been moved to where it was
//     refused: nothing that was moved is gone from both places.
//
// A file of another user that the command only moved or wrote to keeps its owner, group, mode and
// access list, and its digest is reported only if the command could read it.
//
// # Limits
//
// A list of names that tools trust is never complete, and what the host runs because somebody asks for
// it, a Makefile or a script, is applied. Changes by others are noticed by the file system's clock, which
// moves in steps of milliseconds; a file that they deleted and the command changed comes back. A moved
// file is known by its size: one that was also changed is not recognised. Other attributes than owner,
// mode, time and access list are lost when a file is replaced. Directories are locked with flock while
// changes are applied to them, and whoever has locked one delays that.
package staged

import (
	"os"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// A Layer is what a run left above a staged workspace.
type Layer struct {
	Upper   *os.File // the overlay's upper directory
	Trusted bool     // the server mounted the overlay, whose marks the command cannot set

	// The user and group of the command's own files in the layer, and the ones that replace them in the
	// workspace. Only a server of root looks at them.
	UID, GID, FileUID, FileGID int

	Began     time.Time
	Workspace sandbox.Workspace
	Outcome   sandbox.Outcome
	MaxBytes  int64         // of all files together
	Timeout   time.Duration // for applying
}
