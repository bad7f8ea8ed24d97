// Package bwrap isolates commands with bubblewrap, for machines where that program may make user
// namespaces and others may not.
//
// Bubblewrap makes the namespaces, the file tree and the read-only mounts. Process 1 in them is the
// helper of package native, this program's own binary, handed in as a descriptor: it compares each
// mount with the directory that was meant, finds every capability gone, sets resource limits, the
// system call filter and Landlock, closes every descriptor that bubblewrap passed on, checks the
// working directory and starts the command. The supervision from outside, with time, memory,
// processes, output, /out and the network proxy, is native's as well. So what package native
// guarantees holds here too, but for these differences:
//
//   - A staged workspace needs a server that is root: bubblewrap has no overlay whose upper layer can
//     be read afterwards, so an ordinary user's command is refused, not run with less.
//   - The number of files in /tmp is bounded by memory alone: bubblewrap's tmpfs has no such limit. Empty
//     files take memory of the kernel's, which cgroups count, and samples as a kibibyte each.
//   - The five devices are mounted writable, but belong to nobody inside; /dev/shm and /out may hold
//     programs.
//   - The path of the tree on its own file system can be read from /proc/self/mountinfo.
//   - The files of /proc that tell of the machine's secrets are covered by a device that cannot be opened.
//   - /proc/self/cgroup shows the path of the run's control group, in which the server's process number is.
//   - Where memory is sampled, the kernel lets the buffers of a TCP connection grow to the host's usual
//     sizes, of which tens of MiB may be one pair's, and counts them as the smaller ones of package native.
//
// Of the scripts in e2e/testdata/sandbox-cases, which attack a sandbox or must work in one, all hold for
// a root server. For an ordinary user S023, which needs a staged workspace, and S085, which needs another
// user to be kept from, cannot be tried; all others hold.
//
// A root server gives up its user before bubblewrap starts, in a mount namespace of its own where the
// directories are attached that only root could reach: bubblewrap run by root is root towards files,
// exempt from process limits and able to leave set-id files behind, whatever --uid says.
package bwrap

import "github.com/skillsd/skillsd/sandbox/native"

// Name is the backend's name in results, flags and errors.
const Name = "bwrap"

// New returns a runner that isolates with the bwrap whose absolute path is given; without one it
// refuses every command, as it does where the system is not Linux. A nil opts means the defaults. It
// starts nothing and looks at nothing: whether that program can make a sandbox shows in the first Run.
func New(path string, opts *native.Options) *native.Runner {
	return native.Built(Name, newBuilder(path), opts)
}
