// Package staged applies the changes that a command made in an overlay to the workspace below it.
//
// The layer of changes was written by the command and is therefore hostile. The workspace may be changed by
// its owner at the same time and may contain links of any kind. Both are accessed only by single names in
// open directories.
//
// # What is applied
//
//   - New and changed regular files, each atomically: after a crash it is the old or the new file.
//   - New directories, and directories that replace files.
//   - Deletions, after everything else has been applied.
//   - The modification time of a file, unless it is in the future or not later than the replaced file's.
//   - The mode of a file, without set-id bits, and with write permission for group and others only if the
//     replaced file had it.
//
// # What is refused
//
// A refused change leaves the workspace unchanged and is reported with a reason.
//
//   - Every change of a run that did not exit by itself, and changes that remain when the time limit is
//     reached.
//   - Links, devices, pipes and sockets. No link in the workspace is followed.
//   - Names and directories that known tools run or trust, at any depth, and the caller's protected paths.
//     They are not written, deleted, or moved with a directory around them.
//   - Files and paths that contain a secret (Workspace.Withhold), because the client reads the workspace.
//   - Changes that would make, change or delete a git repository, including one without a .git directory.
//   - Changes to anything that another process changed since the run began, or that is below another mount.
//   - Modes of existing directories, because they decide who can access the files in them.
//   - A file that replaces one whose owner, group or access list it cannot get. A root server gives no file
//     to a user other than the directory's owner and the command's.
//   - Deletion of a tree with an entry that must stay, and of entries that the command may have moved to a
//     place where the change was refused: no moved file may vanish from both places.
//
// A file of another user that the command only moved or wrote to keeps its owner, group, mode and access
// list. Its digest is reported only if the command could read it.
//
// # Limits
//
// The list of names that tools trust is never complete, and files that the host runs on request, such as a
// Makefile or a script, are applied. Concurrent changes are detected by the file system's clock, which
// advances in steps of milliseconds. A file that another process deleted and the command changed is created
// again. A moved file is recognized by its size, so one that was also changed is not. Attributes other than
// owner, mode, time and access list are lost when a file is replaced. Directories are locked with flock while
// changes are applied to them; a process that holds such a lock delays that.
package staged

import (
	"os"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// A Layer is the set of changes that a run left above a staged workspace.
type Layer struct {
	Upper   *os.File // the overlay's upper directory
	Trusted bool     // the server mounted the overlay, so the command cannot set its marks

	// The user and group of the command's own files in the layer, and their replacements in the workspace.
	// Only a root server uses them.
	UID, GID, FileUID, FileGID int

	Began     time.Time
	Workspace sandbox.Workspace
	Outcome   sandbox.Outcome
	MaxBytes  int64         // limit for all files together
	Timeout   time.Duration // for applying

	Kept *sandbox.Kept // set by Apply to what the Keeper of the workspace has; nil if it has nothing
}
