// Package native isolates commands with the kernel's own means, on Linux. The running binary
// executes itself again as the first process of user, mount, pid, net, ipc, uts and cgroup
// namespaces, builds a minimal read-only tree, gives up every privilege and only then starts
// the command.
//
//	func main() {
//		native.MaybeHelper()
//		r := native.New(nil)
//		res, err := r.Run(ctx, &sandbox.Cmd{
//			Argv: []string{"/usr/bin/bash", "/skill/scripts/x.sh"}, Tree: tree,
//		})
//	}
//
// # Guarantees
//
// A sandbox that cannot be built whole is an error: nothing runs with less. A command
//
//   - sees no file but /usr, a synthetic /etc, its tree at /skill, the workspace it was granted, its
//     interpreter and its own scratch space;
//   - writes nowhere but in scratch space, /out and a writable workspace, without what stays read-only there;
//   - reaches no socket of the host, and no network but through the proxy of its Cmd, if it has one;
//   - holds no capability, gains none, and runs as a user who is not root and, if the server is, whom nothing
//     else on the machine has while it runs: no other run and no service can look into its processes, signal
//     them, or use up what the kernel counts by user;
//   - leaves no process behind when Run returns;
//   - is bounded in time, memory, processes and output.
//
// Changes to a staged workspace are applied by package staged, which says what it refuses. Applying may
// take as long as the run may, at least ten seconds, and ends with the context of Run.
//
// # Ahead
//
// With [Options.Ahead] a helper is started after each run, once no other run is in progress, for the next
// one.
// It makes its namespaces and what every sandbox shows of the host, and waits. It serves one run, and knows
// nothing of one before: the run's user is leased with it, and everything else that differs between runs,
// such
// as directories, the size of scratch space, limits, control groups and what the filter and Landlock
// refuse, is
// put in place after it was taken, by the code that does so in every helper. It serves no run if something
// was mounted or unmounted on the host since, or a file replaced that sandboxes show; if the run has a
// root file
// system; and if the run, in a workspace whose owners no mount can change, has no user of its own. Such a
// run,
// and one that finds no helper, starts its own. A helper for which nothing comes ends after five minutes.
//
// The kernel copies the tables of a process's memory when it clones it into a new user namespace, which takes
// the longer the more memory the server has. So the server starts a small process, in a way that copies
// nothing, and that process starts the helper, as a child of the server.
//
// For a root server's [Builder] that calls [Plan.Enter], the process waits that becomes its program, in its
// namespaces and with nothing mounted. Programs of other Builders are started without a new user namespace,
// so that nothing of the server's memory is copied, and nothing waits.
//
// # Limits of isolation
//
// Nothing here protects against a fault of the kernel, which the command shares.
//
// In a workspace the command of a root server has the rights of [FileOwner], and leaves files of that user.
// It is another user everywhere else only if the workspace can be mounted with changed owners, as local
// file systems can with a kernel of version 5.12 or later, and of version 5.19 or later if it is staged. If
// not, it is that user, whom services and other such runs may have: they may signal its processes, but have
// no rights in its user namespace, and so cannot look into them.
//
// A server of an ordinary user cannot drop its supplementary groups: the command keeps the rights that
// they give on the files it sees, and it sees them as the server's user. A workspace in mode rw can be
// written anywhere, also where tools of the host trust what they find.
//
// A command can learn which kernel, processors, memory, PCI devices and partitions the machine has, its
// load, when it was started and the identifier of that start, what is installed below /usr and when a
// program there was last read if the file system keeps that, identifiers of file systems, the number of
// the host's user it runs as, where locks of open files are held, and the path of a workspace that is
// mounted ro or rw on its own file system. It cannot learn where its tree lies. It may make the host's
// file systems write what they hold in memory. Files cannot be watched, by inotify or otherwise.
//
// A command may lock whatever it can open, files mounted read-only among them, with flock and with locks
// for reading: a program of the host that waits for the same lock waits until the run is over. Leases,
// which delay those who only open a file, are refused. Pipes count against the command's user on the host
// too: a command of an ordinary user's server may have so many that other pipes of that user are made
// small. Without Landlock, which package detect reports, a command may write to a named pipe of a directory
// that is mounted read-only.
//
// A host that has core files written, or piped to a program, gets none. A host that has them sent to a
// socket gets a file without memory, but with registers, names of mapped files and the start of the
// command line, if the calling process can set what goes into core files: the first Run, or question
// how limits are enforced, sets that for this process and all that it starts.
//
// # Limits of memory and processes
//
// Processor time is bounded for each process; for all together by the wall clock.
//
// Without a memory cgroup the memory limit is enforced by sampling every 20 ms, or as seldom as twice a
// second where adding up takes long, so a burst may pass it for that long. Samples count private and
// shared memory, in swap or not, page tables and mappings, files in /tmp, /dev/shm, /out and the layer
// of a staged workspace with a kibibyte for each, locks on files, watches of epoll, and sockets and
// pipes as if their buffers had the usual size and were full, with what waits in TCP connections beyond
// it. A file that is mapped as well counts twice, and memory that is shared without a file has at most
// 4 MiB a piece and counts as if it had them. Samples do not count memory shared by /dev/zero on a
// kernel without Landlock, pipes that are only in flight between processes, at most as many as one
// process may have descriptors, and what else the kernel keeps for a process, such as descriptors and
// timers, which is bounded only by the limits on processes and descriptors. Other ways to memory that no
// process owns are refused as far as they are known.
//
// No cgroup counts locks on files; a run that has more than 16384 is over its memory limit. Under cgroup
// v1 the cgroup does not count the buffers of sockets, which are added as for a sample; a run
// that leaves files in the host's memory leaves the kernel some memory to know its cgroup by until those
// are written and forgotten.
//
// Only a cgroup counts refused processes reliably: without one, a run that fails because of a refused
// process may have outcome exited.
package native

import (
	"context"
	"errors"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// Name is the backend's name in results, flags and errors.
const Name = "native"

// Options change how a [Runner] isolates. The zero value is the default of every field.
type Options struct {
	// UIDs are the host's users that commands run as if the server runs as root, one for each run.
	UIDs UIDs

	// Cgroup is the absolute path of a cgroup v2 directory with the memory and pids controllers
	// enabled for its children, in which a cgroup is made for each run. Empty means the server's
	// own cgroup where that allows it, or if it was delegated to the server, which then moves into a
	// cgroup within; then cgroup v1; then sampling.
	Cgroup string

	// NoCgroup enforces limits without cgroups.
	NoCgroup bool

	// Ahead has a sandbox wait for the next run after each run, as far as the backend can make one before its
	// command is known. Whoever sets it calls [Runner.Close] at the end, for no process to be left.
	Ahead bool
}

// Memory is a way to enforce a memory limit.
type Memory string

// The ways to enforce a memory limit.
const (
	MemoryCgroup2 Memory = "cgroup v2"
	MemoryCgroup1 Memory = "cgroup v1"
	MemorySampled Memory = "sampled" // every 20 ms, less often while that takes long
)

// A Runner runs commands isolated. It is safe for concurrent use.
type Runner struct {
	name    string
	builder Builder // nil: the helper makes the sandbox
	opts    Options
	host    host
	ahead   ahead
}

var _ sandbox.Runner = (*Runner)(nil)

// New returns a runner; a nil opts means the defaults. It starts nothing and looks at nothing: the
// first Run shows whether the host allows a sandbox.
func New(opts *Options) *Runner { return Built(Name, nil, opts) }

// Built returns a runner whose sandboxes b makes, with its name in results and errors. A nil opts means
// the defaults. Like [New] it looks at nothing.
func Built(name string, b Builder, opts *Options) *Runner {
	r := &Runner{name: name, builder: b}
	if opts != nil {
		r.opts = *opts
	}
	return r
}

// Name returns the name of the backend: [Name], or the one that [Built] was given.
func (r *Runner) Name() string { return r.name }

// Run runs cmd and returns what it did. It returns when no process of the run is left and
// nothing of it remains on the host but staged changes that were applied. When ctx ends, so does
// the run, with outcome [sandbox.Canceled].
//
// Errors: *[sandbox.UnavailableError] if the sandbox could not be built or the interpreter could not be
// started, and always if the system is not Linux; *[sandbox.CwdError].
func (r *Runner) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	return r.RunAfter(ctx, cmd, func() error { return nil })
}

// RunAfter is Run for [sandbox.RunAfter]: the sandbox is made before begin is called, and waits.
func (r *Runner) RunAfter(
	ctx context.Context, cmd *sandbox.Cmd, begin func() error,
) (*sandbox.Result, error) {
	res, err := r.run(ctx, cmd, begin)
	if u, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		u.Backend = r.name
	}
	if res != nil {
		res.Backend = r.name
	}
	return res, err
}

// MaybeHelper turns the process into the first process of a sandbox if it was started as one, and then
// never returns; otherwise it does nothing. It must be the first statement of main and
// of the TestMain of every package whose tests run commands: a binary that links this package
// has usually become the helper before that, while its packages are initialised.
func MaybeHelper() { pidone.Main() }

func unavailable(reason, remedy string, err error) *sandbox.UnavailableError {
	return &sandbox.UnavailableError{Reason: reason, Remedy: remedy, Err: err}
}
