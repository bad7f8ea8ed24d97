// Package runsc isolates commands with gVisor, whose own kernel, an ordinary process on this machine, handles
// their system calls. Bugs in the host's kernel are then out of their reach.
//
// Process 1 of the guest is the helper of package native, which is this program's own binary. As there, it
// checks that no capability is left, sets resource limits and the system call filter, checks the working
// directory and starts the command. Package native also supervises the guest from outside.
//
// # Differences
//
// The guarantees of package native apply, with these exceptions:
//
//   - Only memory bounds processes and threads, because gVisor has no limit for them. Results state 0 as
//     their limit.
//   - The memory of a run is the memory of gVisor's kernel process, without the 50 MiB or so that it uses
//     from the start, but including everything it later needs for the guest. A run that exceeds the limit is
//     ended.
//   - There is no network proxy: a command with a network is refused.
//   - Staged and writable workspaces require a root server. In other cases, the command owns no file of the
//     host and cannot read files that only their owner may read.
//   - The files in /out are lost if a run is ended from outside.
//   - The parent directories of a cache are scratch space of 16 MiB each.
//   - Only memory bounds the number of files in /tmp, /dev/shm and /out. Results state no limit on files,
//     although it applies to the changes to a staged workspace.
//   - /proc, /sys and the devices are the guest kernel's, and show more names than in package native. A
//     command may kill process 1 of its guest, and with it the guest; the outcome is then a signal.
//   - Landlock does not exist in the guest.
//
// All scripts in e2e/testdata/sandbox-cases, which attack a sandbox or must work in one, pass for a root
// server. For an ordinary user's server, S023, which needs a staged workspace, and S085 and S160, which need
// a user other than the server's, cannot be tried; all others pass.
//
// # Users
//
// On the host, all of gVisor runs as the command's user, even under a root server: its kernel and its file
// server are root in a user namespace without other users. There are two exceptions in which a root server's
// gVisor stays root: for a staged or writable workspace, whose files belong to other users, and on a
// machine that allows only root to create user namespaces. Its file server is then confined to the mounts and
// by a system call filter; its kernel runs as nobody, regardless of the command's user, and has no
// capability.
//
// All files that gVisor writes for itself, such as its state, sockets and mounts, are in a mount namespace
// created for the run, and vanish with it.
package runsc

import "github.com/skillsd/skillsd/sandbox/native"

// Name is the backend's name in results, flags and errors.
const Name = "runsc"

// New returns a runner that isolates with the runsc program at an absolute path. With an empty path, or if
// the system is not Linux, it refuses every command. A nil opts means the defaults. New starts nothing and
// checks nothing: the first Run shows whether the program can create a sandbox.
func New(path string, opts *native.Options) *native.Runner {
	return native.Built(Name, newBuilder(path), opts)
}
