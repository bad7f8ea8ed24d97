// Package bwrap isolates commands with bubblewrap, for machines that allow that program, but not others, to
// create user namespaces.
//
// Bubblewrap creates the namespaces, the file tree and the read-only mounts. Process 1 in them is the helper
// of package native, which is this program's own binary, passed as a descriptor. It compares each mount with
// the intended directory, checks that no capability is left, sets resource limits, the system call filter and
// Landlock, closes all descriptors inherited from bubblewrap, checks the working directory and starts the
// command. Package native also supervises it from outside: time, memory, processes, output, /out and the
// network proxy.
//
// # Differences
//
// The guarantees of package native apply, with these exceptions:
//
//   - A staged workspace requires a root server, because bubblewrap does not support an overlay with an upper
//     layer that can be read afterwards. For an ordinary user's server, the command is refused.
//   - Only memory bounds the number of files in /tmp, because bubblewrap's tmpfs has no such limit. Empty
//     files use kernel memory, which cgroups include; samples add 1 KiB for each. Results state no limit on
//     files, although it applies to the changes to a staged workspace.
//   - The five devices are mounted writable, but have no owner inside; programs can be executed in /dev/shm
//     and /out.
//   - The command of an ordinary user's server can read the paths of the tree, of packages and of a root file
//     system on their own file systems from /proc/self/mountinfo.
//   - Files in /proc with secrets of the machine are covered by a device that cannot be opened.
//   - /proc/self/cgroup shows the path of the run's control group, which contains the server's process ID.
//   - If memory is sampled, the buffers of a TCP connection can grow to the host's usual sizes, which may be
//     tens of MiB for a pair, but are charged with the smaller sizes of package native.
//
// All scripts in e2e/testdata/sandbox-cases, which attack a sandbox or must work in one, pass for a root
// server. For an ordinary user's server, S023, which needs a staged workspace, and S085 and S160, which need
// a user other than the server's, cannot be tried; all others pass.
//
// # Root servers
//
// For a root server, directories that only root can access are attached in a mount namespace for bubblewrap,
// and in a user namespace that maps only the command's user. In the host's user namespace, bubblewrap run by
// root would have root's access to files, be exempt from process limits and be able to leave set-id files
// behind, regardless of --uid. If bubblewrap created the user namespace as the command's user, all processes
// of that user would have full rights in it; this namespace is owned by root. The process that becomes
// bubblewrap in these namespaces can be started before its command is known, see package native. An ordinary
// user's server starts bubblewrap directly.
package bwrap

import "github.com/skillsd/skillsd/sandbox/native"

// Name is the backend's name in results, flags and errors.
const Name = "bwrap"

// New returns a runner that isolates with the bwrap program at an absolute path. With an empty path, or if
// the system is not Linux, it refuses every command. A nil opts means the defaults. New starts nothing and
// checks nothing: the first Run shows whether the program can create a sandbox.
func New(path string, opts *native.Options) *native.Runner {
	return native.Built(Name, newBuilder(path), opts)
}
