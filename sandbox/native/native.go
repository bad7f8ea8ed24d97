// Package native isolates commands with the kernel's own means, on Linux. The running binary
// executes itself again as the first process of user, mount, pid, net, ipc, uts and cgroup
// namespaces, builds a minimal read-only tree, gives up every privilege and only then starts
// the command.
//
// It guarantees that a command sees no file but /usr, a synthetic /etc, its tree at /skill, the
// workspace it was granted, its interpreter and its own scratch space; that it writes nowhere
// but in scratch space, /out and a writable workspace; that it reaches no socket of the host and no
// network but through the proxy of its Cmd, when it has one; that it holds no capability, gains none,
// and runs as no root user; that nothing it started outlives Run; and that time, memory, processes and
// output are bounded. A sandbox that cannot be built whole is an error: nothing runs with less.
//
// It does not guarantee anything against a fault of the kernel, which the command shares. A
// server of an ordinary user cannot drop its supplementary groups: the command keeps the rights
// they give on the files it sees, and it sees them as the server's user. Processor
// time is bounded for each process; for all together by the wall clock. Mode rw of a workspace is
// what it says: files that tools of the host trust can be written.
//
// A command learns which kernel, processors, memory, PCI devices and partitions the machine has, its
// load, when it was started and the identifier of that start, what is installed below /usr and when a
// program there was last read where the file system keeps that, identifiers of file systems, the number of
// the host's user it runs as, where locks of open files are held, and the path of a workspace that is
// mounted ro or rw on its own file system; not where its tree lies. It may have the host's file systems
// write out what they hold in memory. Files cannot be watched, by inotify or otherwise.
//
// A command may lock whatever it can open, files mounted read-only among them, with flock and with
// locks for reading: a program of the host that waits for the same lock waits until the run is over.
// Leases, which hold up those who only open a file, are refused. Pipes count against the command's user
// on the host too: a command may have enough of them that other pipes of that user are made small. Without
// Landlock, which package detect tells of, a command may write to a named pipe of a directory that is
// mounted read-only.
//
// Changes to a staged workspace are applied but for names and directories that known tools run or trust; a
// list of such names is never complete, and what the host runs because somebody asks for it, a Makefile or
// a script, is written. Deletions are made last, and what may be what was moved to where it is refused stays:
// it is known by what is in it, so a file that is moved and changed is not. What was changed by others since
// the run began stays, as far as the file system's clock tells, which moves in steps of milliseconds; a file
// that they deleted and the command changed comes back. What the command may move and not read keeps its owner, mode and access list. A file that takes
// another's place keeps that one's owner, group and list where the server may give them, and where the
// command could have written to it; other attributes are lost. Files keep the time the command gave them,
// unless it is to come or no later than that of the file before. Of a directory that was there the mode
// changes but for its owner's rights, the right of others to write and set-id bits, and not where it holds
// a protected name or path. Directories are locked with flock while changes are applied to them,
// and whoever has locked one holds that up. Applying may take as long as the run, at least ten seconds, and
// ends with the context of Run; what it then has not got to is refused.
//
// A host that has core files written, or piped to a program, gets none. To one that has them sent to a
// socket goes a file without memory, but with registers, names of mapped files and the start of the
// command line, if the calling process can set what goes into core files: the first Run, or question for
// how limits are enforced, sets that for this process and all that it starts.
//
// Without a memory cgroup the memory limit is enforced by sampling every 20 ms, or as seldom as twice
// a second where adding up takes long, so a burst may pass it for that long. Counted are private and
// shared memory, in swap or not, page tables and mappings, files in /tmp, /dev/shm, /out and the layer of a staged
// workspace, with a kibibyte for each, empty or not, locks on files, and sockets as if their buffers had
// the usual size. A file that is mapped as well counts twice, and memory that is shared without a file has
// at most 4 MiB a piece and counts as if it had them. Not counted are buffers of TCP connections beyond the
// usual size where a container shows /proc/sys read-only, memory shared by /dev/zero on a kernel without
// Landlock, and what else the kernel keeps for a process, such as descriptors and pipes, which is bounded
// only by the limits on processes and descriptors. Other ways to memory that no process owns are refused
// as far as they are known.
//
// No cgroup counts locks on files, of which more than 16384 are over any limit. Under cgroup v1 the
// buffers of sockets and pipes are in no limit but those on processes and descriptors, and a run that
// leaves files in the host's memory leaves the kernel some memory to know its cgroup by until those are
// written and forgotten. Only a cgroup tells for sure that processes were refused; where none counts them,
// a run that fails for it may have outcome exited.
//
//	func main() {
//		native.MaybeHelper()
//		r := native.New(nil)
//		res, err := r.Run(ctx, &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "/skill/scripts/x.sh"}, Tree: tree})
//	}
package native

import (
	"cmp"
	"context"
	"errors"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// Name is the backend's name in results, flags and errors.
const Name = "native"

// DefaultUID is the user and group that commands of a server of root run as: nobody.
const DefaultUID = 65534

// Options change how a [Runner] isolates. The zero value is the default of every field.
type Options struct {
	// UID and GID are the host's ids a command runs as when the server runs as root. They should
	// own no file. 0 means [DefaultUID].
	UID, GID int

	// Cgroup is the absolute path of a cgroup v2 directory with the memory and pids controllers
	// enabled for its children, in which a cgroup is made for each run. Empty means the server's
	// own cgroup where that allows it; then cgroup v1; then sampling.
	Cgroup string

	// NoCgroup enforces limits without cgroups.
	NoCgroup bool
}

// Memory says how a memory limit is enforced.
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
}

var _ sandbox.Runner = (*Runner)(nil)

// New returns a runner; a nil opts means the defaults. It starts nothing and looks at nothing:
// whether the host allows a sandbox shows in the first Run.
func New(opts *Options) *Runner { return Built("", nil, opts) }

// Built returns a runner whose sandboxes b makes, and that name stands for in results and errors; an
// empty name is this package's own. A nil opts means the defaults. Like [New] it looks at nothing.
func Built(name string, b Builder, opts *Options) *Runner {
	r := &Runner{name: cmp.Or(name, Name), builder: b}
	if opts != nil {
		r.opts = *opts
	}
	if r.opts.UID <= 0 {
		r.opts.UID = DefaultUID
	}
	if r.opts.GID <= 0 {
		r.opts.GID = DefaultUID
	}
	return r
}

// Name is the name of the backend: [Name], or what [Built] was given.
func (r *Runner) Name() string { return r.name }

// Run runs cmd and returns what it did. It returns when no process of the run is left and
// nothing of it remains on the host but staged changes that were applied. When ctx ends, so does
// the run, with outcome [sandbox.Canceled].
//
// Errors: *[sandbox.UnavailableError] when the sandbox could not be built or the interpreter not
// started, and always where the system is not Linux; *[sandbox.CwdError].
func (r *Runner) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	res, err := r.run(ctx, cmd)
	if u, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		u.Backend = r.name
	}
	if res != nil {
		res.Backend = r.name
	}
	return res, err
}

// MaybeHelper turns the process into the first process of a sandbox when it was started as one,
// and then never returns; otherwise it does nothing. It must be the first statement of main and
// of the TestMain of every package whose tests run commands: a binary that links this package
// has usually become the helper before that, while its packages are initialised.
func MaybeHelper() { pidone.Main() }

func unavailable(reason, remedy string, err error) *sandbox.UnavailableError {
	return &sandbox.UnavailableError{Reason: reason, Remedy: remedy, Err: err}
}
