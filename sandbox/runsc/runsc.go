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
//   - A staged workspace needs a server that is root, and so does a writable one: to any other command
//     no file of the host is its own, and one that only its owner may read is unreadable.
//   - What is in /out is lost when a run is ended from outside.
//   - The directories on the way to a cache are scratch space of 16 MiB each.
//   - The number of files in /tmp, /dev/shm and /out is bounded by memory alone.
//   - /proc, /sys and the devices are the guest kernel's, and show more names than native does. A command
//     may end process 1 of its guest, and the guest with it, which then counts as ended by a signal.
//   - Landlock does not exist in the guest.
//
// Of the scripts in e2e/testdata/sandbox-cases, which attack a sandbox or must work in one, all hold for
// a root server. For an ordinary user S023, which needs a staged workspace, and S085, which needs another
// user to be kept from, cannot be tried; all others hold.
//
// To the host, all of gVisor is the command's user, also that of a root server: its kernel and its file
// server are root of a user namespace with nobody else in it. Only for a staged or writable workspace,
// whose files belong to others, and on a machine whose settings leave user namespaces to root, do the
// gVisor of a root server and its file server, which is confined to the mounts and by a system call
// filter, stay root; the kernel then is nobody and has no capability.
//
// Everything gVisor writes for itself, its state, sockets and mounts, lies in a mount namespace made
// for the run and is gone with it.
package runsc

import "github.com/skillsd/skillsd/sandbox/native"

// Name is the backend's name in results, flags and errors.
const Name = "runsc"

// New returns a runner that isolates with the runsc whose absolute path is given; without one it
// refuses every command, as it does where the system is not Linux. A nil opts means the defaults. It
// starts nothing and looks at nothing: whether that program can make a sandbox shows in the first Run.
func New(path string, opts *native.Options) *native.Runner {
	return native.Built(Name, newBuilder(path), opts)
}
