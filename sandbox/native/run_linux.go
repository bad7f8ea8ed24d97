package native

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
	"github.com/skillsd/skillsd/sandbox/staged"
)

const (
	sampleEvery = 20 * time.Millisecond

	// drainFor is how long output is read after the last process is gone.
	drainFor = 500 * time.Millisecond

	// leastApply is the least time for applying staged changes: half of a script's changes is worth less
	// than a wait.
	leastApply = 10 * time.Second
)

// An execution is one run from its start to its result.
type execution struct {
	launch
	begin   func() error // is called before the command starts
	child   *child
	began   time.Time
	held    time.Duration // how long begin took
	refusal error         // of begin
	group   *cgroup       // nil if memory is sampled
	stdout  *sandbox.Capture
	stderr  *sandbox.Capture
	report  report
	egress  *egress

	// Of a sandbox that a Builder makes.
	inside atomic.Pointer[process] // process 1 in it
	guest  atomic.Pointer[guest]   // its kernel, if it has one, once the command may start
	ready  chan struct{}           // closed once inside is set, or will not be
	once   sync.Once               // closes ready

	cause   atomic.Pointer[sandbox.Outcome] // why the run was ended from outside
	crowded atomic.Bool                     // the process limit was seen reached
	done    chan struct{}                   // closed when no process of the run is left
}

// run runs a command in a sandbox of its own.
func (r *Runner) run(
	ctx context.Context, cmd *sandbox.Cmd, begin func() error,
) (*sandbox.Result, error) {
	res, err := r.try(ctx, cmd, begin, true)
	if err == errLost {
		return r.try(ctx, cmd, begin, false)
	}
	return res, err
}

// errLost is the error of a run whose helper had waited for it and died before the sandbox was there, so that
// nothing of the command can have run.
var errLost = errors.New("the helper that was started ahead is gone")

func (r *Runner) try(
	ctx context.Context, cmd *sandbox.Cmd, begin func() error, ahead bool,
) (res *sandbox.Result, err error) {
	e := &execution{
		launch: launch{runner: r, cmd: cmd, limits: cmd.Limits.WithDefaults(), root: os.Geteuid() == 0},
		begin:  begin,
		began:  time.Now(),
		ready:  make(chan struct{}),
		done:   make(chan struct{}),
	}
	if ctx.Err() != nil {
		return &sandbox.Result{Outcome: sandbox.Canceled, Limits: r.Enforced(e.limits)}, nil
	}
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	if r.builder != nil {
		if err := r.builder.Check(cmd); err != nil {
			return nil, err
		}
	}
	e.spare = r.take(ahead)
	defer r.ended(&e.launch)
	if e.root {
		var release func()
		if e.spare != nil {
			e.uid, release = e.spare.uid, e.spare.release
		} else if e.uid, release, err = r.lease(); err != nil {
			return nil, err
		}
		e.gid = e.uid
		defer release() // after all else: what the run leaves has another owner by then
	}
	e.stdout = sandbox.NewCapture(e.limits.Output, cmd.Live)
	e.stderr = sandbox.NewCapture(e.limits.Output, cmd.Live)
	// A run that leaves something behind fails, with the first reason if there are several.
	cleanUp := func(reason string, undo func() error) {
		if uerr := undo(); uerr != nil && err == nil {
			res, err = nil, unavailable(reason, "", uerr)
		}
	}
	base := r.base()
	e.spec.NoAnonFiles = base.memory == MemorySampled
	defer func() {
		if e.group != nil {
			cleanUp("the control group could not be removed", e.group.remove)
		}
	}()
	// The cgroup is made before the helper is started. At the same time, the two would wait for one another
	// longer than this takes; but a helper that waited makes only mounts meanwhile.
	waited := e.spare != nil && r.builder == nil
	if !waited {
		if err := e.makeGroup(base); err != nil {
			return nil, err
		}
	}
	defer func() {
		if e.spare != nil {
			e.spare.end()
		}
		closeAll(e.report.files)
		closeAll([]*os.File{e.upper})
		if p := e.inside.Load(); p != nil {
			_ = p.fd.Close()
		}
		if e.command != nil && e.command.Close != nil {
			cleanUp("the run's own files could not be removed", e.command.Close)
		}
	}()
	// The kernel kills the helper when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e.child, err = e.start()
	if err != nil {
		return nil, err
	}
	defer e.child.close()
	if waited {
		if err := e.makeGroup(base); err != nil {
			e.end(sandbox.Canceled)
			_, _ = e.child.proc.Wait()
			return nil, err
		}
	}
	state, err := e.supervise(ctx)
	if err == nil {
		res, err = e.result(ctx, state)
	}
	if err != nil {
		if e.adopted && !e.report.began && e.report.step == "" && e.refusal == nil {
			err = errLost
		}
		return nil, err
	}
	if e.adopted {
		r.ahead.served.Add(1)
	}
	res.Duration = time.Since(e.began) - e.held
	return res, nil
}

// makeGroup makes the cgroup, unless memory is sampled.
func (e *execution) makeGroup(base cgroupBase) (err error) {
	if base.memory == MemorySampled {
		return nil
	}
	limits := e.limits
	if b := e.runner.builder; b != nil && b.Setting() == pidone.Guest {
		// The threads of the guest's kernel are in its cgroup, and must not count against the command.
		limits.PIDs = max(limits.PIDs, guestTasks)
	}
	e.group, err = base.create(limits)
	if err != nil {
		e.group = nil
		return unavailable("no control group could be made", cgroupRemedy, err)
	}
	return nil
}

// Enforced returns limits as the runner enforces them, see [sandbox.Enforced]: what a [Builder] makes has
// file systems of its own, without a limit on files, and a guest's kernel counts no processes.
func (r *Runner) Enforced(l sandbox.Limits) sandbox.Limits {
	if r.builder != nil {
		l.Inodes = 0
		if r.builder.Setting() == pidone.Guest {
			l.PIDs = 0
		}
	}
	return l
}

// supervise lets the command start, reads its output and watches it, and returns once its processes are
// gone.
func (e *execution) supervise(ctx context.Context) (*os.ProcessState, error) {
	var readers, watchers sync.WaitGroup
	e.egress = newEgress(ctx, e.cmd.Network)
	defer e.egress.wait()
	readers.Go(func() { e.drain(e.child.stdout, e.stdout) })
	readers.Go(func() { e.drain(e.child.stderr, e.stderr) })
	readers.Go(func() {
		e.listen()
		e.once.Do(func() { close(e.ready) })
	})
	if e.child.stdin != nil {
		readers.Go(func() { // a command need not read what it is given
			_, _ = e.child.stdin.Write(e.cmd.Stdin)
			_ = e.child.stdin.Close()
		})
	}
	begun := time.Now()
	e.refusal = e.begin()
	e.held = time.Since(begun)
	watchers.Go(func() { sandbox.Watch(ctx, e.limits.Timeout, e.done, func(o sandbox.Outcome) { e.end(o) }) })
	watchers.Go(e.meter)
	goErr := e.refusal
	if goErr == nil {
		goErr = e.letGo()
	}
	// Killing the helper makes letting it go fail too; then the cause of that is how the run ended.
	if goErr != nil && !e.end(sandbox.Canceled) {
		goErr = nil
	}
	state, err := e.child.proc.Wait()
	if p := e.inside.Load(); p != nil {
		// The program that made the sandbox may end before what is inside does.
		p.kill()
		p.wait()
	}
	close(e.done)
	e.egress.cancel()
	watchers.Wait()
	// Nobody is left who could write; what is read from here on was written before.
	deadline := time.Now().Add(drainFor)
	for _, f := range []*os.File{e.child.stdout, e.child.stderr, e.child.control} {
		_ = f.SetDeadline(deadline)
	}
	if e.child.stdin != nil {
		_ = e.child.stdin.SetDeadline(time.Now())
	}
	readers.Wait()
	switch {
	case err != nil:
		return nil, unavailable("the helper could not be waited for", "", err)
	case e.refusal != nil:
		return nil, e.refusal
	case goErr == nil || e.report.step != "":
		return state, nil
	case e.command != nil && !e.report.began:
		return nil, e.neverBegan(state)
	}
	return nil, unavailable("limits could not be put in place", cgroupRemedy, goErr)
}

func (e *execution) drain(f *os.File, into *sandbox.Capture) {
	if into.Drain(f) {
		e.end(sandbox.OutputLimit)
	}
}

// letGo puts the limits in place and lets the helper start the command.
func (e *execution) letGo() error {
	pids, err := e.members()
	if err != nil {
		return err
	}
	var doors []*os.File
	switch {
	case e.group == nil:
	case e.group.hasDoors() && e.spec.Setting != pidone.Guest:
		doors, err = e.group.doors()
		defer closeAll(doors)
		if err != nil {
			return err
		}
	default:
		for i, pid := range pids {
			// A guest's kernel may end what it does not need any more.
			if err := e.group.add(pid); err != nil && (i == 0 || !errors.Is(err, unix.ESRCH)) {
				return err
			}
		}
	}
	return e.child.send(pidone.MsgGo, doors)
}

// end ends the run and reports whether cause is why; the first cause stays.
func (e *execution) end(cause sandbox.Outcome) bool {
	first := e.cause.CompareAndSwap(nil, &cause)
	// It may have ended by itself. What a Builder's program has just started may not be bound to its end
	// yet, but is still in its session's first group.
	if err := e.child.proc.Kill(); err == nil && e.command != nil {
		_ = unix.Kill(-e.child.proc.Pid, unix.SIGKILL)
	}
	if p := e.inside.Load(); p != nil {
		p.kill()
	}
	return first
}

// result returns what the run did, after no process of it is left.
func (e *execution) result(ctx context.Context, state *os.ProcessState) (*sandbox.Result, error) {
	res := &sandbox.Result{Limits: e.runner.Enforced(e.limits)}
	cause := e.cause.Load()
	switch {
	case e.report.cwd != "":
		return nil, e.cwdError()
	case e.report.step != "":
		return nil, e.setupError()
	case cause != nil:
		// Whatever the command did after that, the server ended it.
		res.Outcome = *cause
	case e.group != nil && e.group.killed():
		res.Outcome = sandbox.MemoryLimit
	case e.report.status != nil:
		e.ended(res, *e.report.status)
	case e.report.began:
		// The first process was killed from outside, and everything with it.
		res.Outcome, res.ExitCode = sandbox.Signaled, 128+int(unix.SIGKILL)
		res.Signal = unix.SignalName(unix.SIGKILL)
	default:
		return nil, e.neverBegan(state)
	}
	res.Stdout, res.Stderr = e.stdout.Stream(), e.stderr.Stream()
	switch {
	case e.spec.Setting == pidone.Guest:
		unpack(e.report.out, res)
	case len(e.report.files) > 0:
		collect(e.report.files[0], res)
	}
	upper, trusted := e.upper, e.upper != nil
	if upper == nil && len(e.report.files) > 1 {
		upper = e.report.files[1] // the helper made the overlay, in a user namespace
	}
	if upper != nil && e.cmd.Workspace.Mode == sandbox.WorkspaceStaged {
		fileUID, fileGID := FileOwner(e.cmd.Workspace)
		res.Writes = staged.Apply(ctx, &staged.Layer{
			Upper: upper, Trusted: trusted, UID: e.uid, GID: e.gid, FileUID: fileUID, FileGID: fileGID,
			Began: e.began, Workspace: e.cmd.Workspace, Outcome: res.Outcome,
			MaxBytes: e.limits.Scratch, Timeout: max(e.limits.Timeout, leastApply),
		})
	}
	return res, nil
}

// ended notes how the command itself ended.
func (e *execution) ended(res *sandbox.Result, ws syscall.WaitStatus) {
	res.Outcome, res.ExitCode = sandbox.Exited, ws.ExitStatus()
	if ws.Signaled() {
		res.Outcome, res.ExitCode = sandbox.Signaled, 128+int(ws.Signal())
		res.Signal = unix.SignalName(ws.Signal())
	}
	// Anybody can send that signal. The kernel counts in ticks, which are coarse.
	if res.Signal == "SIGXCPU" && e.report.cpu >= e.limits.CPU/2 {
		res.Outcome, res.Signal = sandbox.TimedOut, ""
	}
	// A command that was refused a process and succeeded all the same has its own outcome.
	if ws != 0 && (e.crowded.Load() || e.group != nil && e.group.refused()) {
		res.Outcome = sandbox.PIDsLimit
	}
}
