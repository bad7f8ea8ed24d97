// Package runsc isolates commands with gVisor, whose own kernel, an ordinary process of this machine,
// answers their system calls: a fault of the host's kernel is then not within their reach.
//
// Process 1 of the guest is the helper of package native, this program's own binary, with the same
// work as there: no capability may be left, then resource limits, the system call filter, the check
// of the working directory, and the command. The supervision from outside is native's as well. What
// package native guarantees holds here too, but for these differences:
//
//   - Processes and threads are bounded by memory alone: gVisor has no limit for them.
//   - Memory is that of gVisor's kernel process: what that needs for itself from the start, some 50
//     MiB, is not counted, what it needs later for the guest's sake is. A run over the limit is ended.
//   - There is no network proxy: a command that was granted a network is refused.
//   - A staged workspace needs a server that is root, and so does a writable one: for an ordinary
//     user's command every file belongs to root, and one that only its owner may read is unreadable.
//   - What is in /out is lost when a run is ended from outside.
//   - The number of files in /tmp, /dev/shm and /out is bounded by memory alone.
//   - /proc, /sys and the devices are the guest kernel's, and show more names than native does. A command
//     may end process 1 of its guest, and the guest with it, which then counts as ended by a signal.
//   - Landlock does not exist in the guest.
//
// Of the scripts in e2e/testdata/sandbox-cases, which attack a sandbox or must work in one, all hold for
// a root server. For an ordinary user S023, which needs a staged workspace, and S085, which needs another
// user to be kept from, cannot be tried; all others hold.
//
// Everything gVisor writes for itself, its state, sockets and mounts, lies in a mount namespace made
// for the run and is gone with it.
package runsc

import "github.com/skillsd/skillsd/sandbox"

// Name is the backend's name in results, flags and errors.
const Name = "runsc"

// Options change how a [Runner] isolates. The zero value is the default of every field.
type Options struct {
	// Path is runsc's own path. Empty means that there is none and every run is refused.
	Path string

	// UID, GID, Cgroup and NoCgroup are those of package native.
	UID, GID int
	Cgroup   string
	NoCgroup bool
}

var _ sandbox.Runner = (*Runner)(nil)

// Name returns [Name].
func (r *Runner) Name() string { return Name }

func unavailable(reason, remedy string, err error) *sandbox.UnavailableError {
	return &sandbox.UnavailableError{Backend: Name, Reason: reason, Remedy: remedy, Err: err}
}
