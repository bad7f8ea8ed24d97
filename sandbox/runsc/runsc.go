// Package runsc isolates commands with gVisor, whose own kernel, an ordinary process of this machine,
// answers their system calls: a fault of the host's kernel is then out of their reach.
//
// Process 1 of the guest is the helper of package native, this program's own binary, which does the same
// as there: it checks that no capability is left, sets resource limits and the system call filter, checks
// the working directory and starts the command. Package native also supervises the guest from outside.
//
// # Differences
//
// The guarantees of package native hold here too, except for these points:
//
//   - Processes and threads are bounded by memory alone: gVisor has no limit for them. Results
//     state 0 as their limit.
//   - The memory of a run is the memory of gVisor's kernel process, without the 50 MiB or so that it needs
//     from the start, and with what it needs later for the guest's sake. A run over the limit is ended.
//   - There is no network proxy: a command that was granted a network is refused.
//   - A staged workspace needs a server that is root, and so does a writable one. Any other command owns
//     no file of the host, and cannot read files that only their owner may read.
//   - The files in /out are lost if a run is ended from outside.
//   - The directories on the way to a cache are scratch space of 16 MiB each.
//   - The number of files in /tmp, /dev/shm and /out is bounded by memory alone. Results state no
//     limit on files, though it holds for the changes to a staged workspace.
//   - /proc, /sys and the devices are the guest kernel's, and show more names than native does. A command
//     may end process 1 of its guest, and the guest with it, which then counts as ended by a signal.
//   - Landlock does not exist in the guest.
//
// Of the scripts in e2e/testdata/sandbox-cases, which attack a sandbox or must work in one, all pass for
// a root server. For an ordinary user's server S023, which needs a staged workspace, and S085 and S160,
// which need a user other than the server's, cannot be tried; all others pass.
//
// # Users
//
// To the host, all of gVisor runs as the command's user, also for a root server: its kernel and its file
// server are root in a user namespace without other users. There are two exceptions: for a staged or
// writable workspace, whose files belong to others, and on a machine whose settings leave user
// namespaces to root, a root server's gVisor stays root. Its file server is then confined to the mounts
// and by a system call filter; its kernel is nobody, whatever the command's user, and has no capability.
//
// Everything gVisor writes for itself, its state, sockets and mounts, lies in a mount namespace made
// for the run and is gone with it.
package runsc

import "github.com/skillsd/skillsd/sandbox/native"

// Name is the backend's name in results, flags and errors.
const Name = "runsc"

// New returns a runner that isolates with the runsc at an absolute path. With an empty path it refuses
// every command, as it does if the system is not Linux. A nil opts means the defaults. New starts nothing
// and looks at nothing: the first Run shows whether that program can make a sandbox.
func New(path string, opts *native.Options) *native.Runner {
	return native.Built(Name, newBuilder(path), opts)
}
