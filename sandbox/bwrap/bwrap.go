// Package bwrap isolates commands with bubblewrap, for machines where that program may make user
// namespaces and others may not.
//
// Bubblewrap makes the namespaces, the file tree and the read-only mounts. Process 1 in them is the
// helper of package native, this program's own binary, passed in as a descriptor: it compares each
// mount with the directory that was meant, checks that every capability is gone, sets resource limits,
// the system call filter and Landlock, closes every descriptor that bubblewrap passed on, checks the
// working directory and starts the command. Package native also supervises it from outside: time,
// memory, processes, output, /out and the network proxy.
//
// # Differences
//
// The guarantees of package native hold here too, except for these points:
//
//   - A staged workspace needs a server that is root: bubblewrap has no overlay whose upper layer can
//     be read afterwards, so an ordinary user's command is refused, not run with less.
//   - The number of files in /tmp is bounded by memory alone: bubblewrap's tmpfs has no such limit. Empty
//     files take memory of the kernel, which cgroups count; samples count a kibibyte each. Results state no
//     limit on files, though it holds for the changes to a staged workspace.
//   - The five devices are mounted writable, but belong to nobody inside; /dev/shm and /out may hold
//     programs.
//   - The command of an ordinary user's server can read the paths of the tree, of packages and of a root file
//     system on their own file system from /proc/self/mountinfo.
//   - Files of /proc with secrets of the machine are covered by a device that cannot be opened.
//   - /proc/self/cgroup shows the path of the run's control group, which holds the server's process number.
//   - Where memory is sampled, the kernel lets the buffers of a TCP connection grow to the host's usual
//     sizes, of which tens of MiB may be one pair's, and counts them as the smaller ones of package native.
//
// Of the scripts in e2e/testdata/sandbox-cases, which attack a sandbox or must work in one, all pass for
// a root server. For an ordinary user's server S023, which needs a staged workspace, and S085 and S160,
// which need a user other than the server's, cannot be tried; all others pass.
//
// # Servers of root
//
// To a root server's bubblewrap, directories that only root could reach are attached in a mount namespace
// of its own, and in a user namespace that has no user but the command's. Bubblewrap run by root in the
// host's would be root towards files, exempt from process limits and able to leave set-id files behind,
// whatever --uid says. A user namespace that bubblewrap made as the command's user would give every process
// of that user all rights in it; this one is root's. The process that becomes bubblewrap in these namespaces
// can wait for its command, see package native; an ordinary user's server starts bubblewrap itself.
package bwrap

import "github.com/skillsd/skillsd/sandbox/native"

// Name is the backend's name in results, flags and errors.
const Name = "bwrap"

// New returns a runner that isolates with the bwrap at an absolute path. With an empty path it refuses
// every command, as it does if the system is not Linux. A nil opts means the defaults. New starts nothing
// and looks at nothing: the first Run shows whether that program can make a sandbox.
func New(path string, opts *native.Options) *native.Runner {
	return native.Built(Name, newBuilder(path), opts)
}
