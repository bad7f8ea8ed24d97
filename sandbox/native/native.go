// Package native isolates commands with the Linux kernel's own mechanisms. The running binary executes itself
// again as the first process of new user, mount, pid, net, ipc, uts and cgroup namespaces, builds a minimal
// read-only tree, drops every privilege and only then starts the command.
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
// If any part of a sandbox cannot be built, Run returns an error; no command runs with less isolation. A
// command
//
//   - sees no files except /usr, a synthetic /etc, its tree at /skill, the workspace it was granted, its
//     interpreter and its own scratch space;
//   - writes only to scratch space, /out and a writable workspace, except for its read-only parts;
//   - reaches no socket of the host, and no network except through the proxy of its Cmd, if any;
//   - holds no capabilities, gains none, and is not root. Under a root server, it runs as a user that no
//     other process on the machine has meanwhile, so no other run or service can inspect or signal its
//     processes, or exhaust the resources that the kernel counts by user;
//   - leaves no process behind when Run returns;
//   - is limited in time, memory, processes and output.
//
// Package staged applies changes to a staged workspace, and documents the changes that it refuses. Applying
// may take as long as the run's time limit, but at least ten seconds, and stops when the context of Run ends.
//
// # Ahead
//
// With [Options.Ahead], after each run, once no other run is in progress, a helper is started for the next
// one. It creates its namespaces and the part of the tree that all sandboxes share, and waits. A helper
// serves one run and has no state from earlier runs: the run's user is leased with it, and everything that
// differs between runs, such as directories, the size of scratch space, limits, control groups, the filter
// and Landlock, is set up only after a run takes it, by the same code as in every helper.
//
// A run starts its own helper if none is waiting or the waiting one is unfit. A helper is unfit if something
// was mounted or unmounted on the host since it started, if a file that sandboxes show was replaced, if the
// run has a root file system, or if the run has no user of its own because the owners in its workspace cannot
// be mapped. A helper that is not used within five minutes ends.
//
// The kernel copies the page tables of a process when it clones it into a new user namespace, which takes
// longer the more memory the server has. Therefore the server starts a small process, in a way that copies
// nothing, and that process starts the helper as a child of the server.
//
// If the server is root and its [Builder] calls [Plan.Enter], the process that will become the Builder's
// program waits, in its namespaces and with nothing mounted. For other Builders no process waits: their
// programs start without a new user namespace, so none of the server's memory is copied.
//
// # Limits of isolation
//
// This package does not protect against kernel bugs: the command uses the host's kernel.
//
// In a workspace, the command of a root server has the rights of [FileOwner], and creates files owned by that
// user. Outside the workspace it is a different user only if the workspace can be mounted with mapped owners,
// which local file systems support from Linux 5.12 on, or 5.19 for a staged workspace. Otherwise it runs as
// FileOwner, a user that it may share with services and other such runs. They may signal its processes, but
// have no rights in its user namespace, so they cannot inspect them.
//
// A server that is an ordinary user cannot drop its supplementary groups. The command keeps the rights of
// these groups on the files it sees, and accesses files as the server's user. A workspace in mode rw is
// writable everywhere, including files that tools on the host trust.
//
// A command can learn the following about the host: its kernel, processors, memory, PCI devices and
// partitions; its load, boot time and boot ID; the programs below /usr and, if the file system records it,
// when they were last read; identifiers of file systems; the number of the host user it runs as; where locks
// of open files are held; and the path of a workspace that is mounted ro or rw on a file system of its own.
// It cannot learn where its tree is. It can make the host's file systems write back cached data. It cannot
// watch files, by inotify or otherwise.
//
// A command can take locks by flock, and read locks, on every file that it can open, including read-only
// ones. A program on the host that waits for such a lock then waits until the run ends. Leases, which delay
// processes that merely open a file, are refused. Pipes are charged to the command's user on the host as
// well: with the server of an ordinary user, a command may have so many that other pipes of that user become
// small. Without Landlock, which package detect reports, a command can write to a named pipe in a
// directory that is mounted read-only.
//
// If the host writes core dumps to files or pipes them to a program, none are written. If the host sends them
// to a socket, it receives a dump without memory contents, but with registers, names of mapped files and the
// start of the command line. This requires that the calling process can set its coredump filter. The first
// call of Run, [Runner.Memory] or [Runner.Processes] sets it for this process and all its children.
//
// # Limits of memory and processes
//
// Processor time is limited for each process; the wall clock limits the total.
//
// Without a memory cgroup, memory is sampled every 20 ms, or as rarely as twice a second if sampling takes
// long, so a burst may exceed the limit for that long. A sample includes private and shared memory, swapped
// out or not, page tables and mappings; files in /tmp, /dev/shm, /out and the layer of a staged workspace,
// plus 1 KiB for each; file locks; epoll watches; and sockets and pipes, as if their buffers had the usual
// size and were full, plus TCP data queued beyond that. A file that is also mapped is included twice. Memory
// shared without a file is limited to 4 MiB a piece and charged in full. A sample does not include memory
// shared through /dev/zero on a kernel without Landlock; pipes that are only in transit between processes, at
// most as many as one process may have descriptors; and other kernel memory of a process, such as descriptors
// and timers, which only the limits on processes and descriptors bound. All other known ways to allocate
// memory that belongs to no process are refused.
//
// File locks are charged to no cgroup; a run with more than 16384 exceeds its memory limit. Cgroup v1 does
// not charge socket buffers, so they are added as in a sample. After a run that leaves files in the host's
// page cache, the kernel keeps some memory for its cgroup until those are written and evicted.
//
// Only a cgroup reports refused processes reliably. Without one, a run that fails because a process was
// refused may have the outcome exited.
package native

import (
	"context"
	"errors"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// Name is the backend's name in results, flags and errors.
const Name = "native"

// Options configure how a [Runner] isolates commands. The zero value of each field is its default.
type Options struct {
	// UIDs are the host users that commands run as if the server is root, one for each run.
	UIDs UIDs

	// NoCgroup enforces limits without cgroups. Otherwise the server's own cgroup v2 is used if it allows
	// children or was delegated to the server, which then moves into a child; otherwise cgroup v1; otherwise
	// sampling.
	NoCgroup bool

	// Ahead prepares a sandbox for the next run after each run, as far as the backend can before the command
	// is known. A caller that sets it must call [Runner.Close] at the end, or a process is left.
	Ahead bool
}

// Memory is a way to enforce a memory limit.
type Memory string

// The ways to enforce a memory limit.
const (
	MemoryCgroup2 Memory = "cgroup v2"
	MemoryCgroup1 Memory = "cgroup v1"
	MemorySampled Memory = "sampled" // every 20 ms, or less often if sampling takes long
)

// A Runner runs commands in isolation. It is safe for concurrent use.
type Runner struct {
	name    string
	builder Builder // if nil, the helper builds the sandbox
	opts    Options
	host    host
	ahead   ahead
}

var _ sandbox.Runner = (*Runner)(nil)

// New returns a runner; a nil opts means the defaults. It starts nothing and checks nothing: the first Run
// shows whether the host allows a sandbox.
func New(opts *Options) *Runner { return Built(Name, nil, opts) }

// Built returns a runner that lets b build its sandboxes. name is the backend's name in results and errors. A
// nil opts means the defaults. Like [New], it checks nothing.
func Built(name string, b Builder, opts *Options) *Runner {
	r := &Runner{name: name, builder: b}
	if opts != nil {
		r.opts = *opts
	}
	return r
}

// Name returns the name of the backend: [Name], or the name given to [Built].
func (r *Runner) Name() string { return r.name }

// Run runs cmd and returns its result. When it returns, no process of the run is left, and nothing of the run
// remains on the host except applied staged changes. If ctx ends, the run is ended with outcome
// [sandbox.Canceled].
//
// Errors: *[sandbox.UnavailableError] if the sandbox could not be built or the interpreter could not be
// started, and always if the system is not Linux; *[sandbox.CwdError].
func (r *Runner) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	return r.RunAfter(ctx, cmd, func() error { return nil })
}

// RunAfter is Run for [sandbox.RunAfter]: it builds the sandbox before it calls begin, and starts the command
// after that.
func (r *Runner) RunAfter(
	ctx context.Context, cmd *sandbox.Cmd, begin func() error,
) (*sandbox.Result, error) {
	res, err := r.run(ctx, cmd, begin, true)
	if err == errLost {
		res, err = r.run(ctx, cmd, begin, false)
	}
	if u, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		u.Backend = r.name
	}
	if res != nil {
		res.Backend = r.name
	}
	return res, err
}

// errLost means that the helper that waited for the run died before the sandbox was complete, so nothing of
// the command can have run.
var errLost = errors.New("the helper that was started ahead is gone")

// MaybeHelper turns the process into the first process of a sandbox if it was started as one, and then never
// returns. Otherwise it does nothing. It must be the first statement of main, and of TestMain in every
// package whose tests run commands. A binary that links this package usually becomes the helper even earlier,
// during package initialization.
func MaybeHelper() { pidone.Main() }

func unavailable(reason, remedy string, err error) *sandbox.UnavailableError {
	return &sandbox.UnavailableError{Reason: reason, Remedy: remedy, Err: err}
}
