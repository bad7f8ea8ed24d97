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

	// drainFor is how long output is read after the last process has ended.
	drainFor = 500 * time.Millisecond

	// leastApply is the minimum time limit for applying staged changes, because waiting is better than losing
	// half of a script's changes.
	leastApply = 10 * time.Second
)

// An execution is one run from its start to its result.
type execution struct {
	launch
	begin   func() error // called before the command starts
	child   *child
	began   time.Time
	held    time.Duration // duration of begin
	refusal error         // error of begin
	group   *cgroup       // nil if memory is sampled
	stdout  *sandbox.Capture
	stderr  *sandbox.Capture
	report  report
	egress  *egress

	// Set for a sandbox built by a Builder.
	inside atomic.Pointer[process] // process 1 in the sandbox
	guest  atomic.Pointer[guest]   // its kernel, if any, once the command may start
	ready  chan struct{}           // closed once inside is set or cannot be set
	once   sync.Once               // closes ready

	cause   atomic.Pointer[sandbox.Outcome] // why the server ended the run
	crowded atomic.Bool                     // the process limit was reached
	done    chan struct{}                   // closed when no process of the run is left
}

// run runs a command in a sandbox of its own. If a waiting helper is lost, it tries again without one.
func (r *Runner) run(
	ctx context.Context, cmd *sandbox.Cmd, begin func() error,
) (*sandbox.Result, error) {
	res, err := r.try(ctx, cmd, begin, true)
	if err == errLost {
		return r.try(ctx, cmd, begin, false)
	}
	return res, err
}

// errLost means that the run's waiting helper died before the sandbox was complete, so nothing of the command
// can have run.
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
		// This is the last step: by then, no file of the run has this owner.
		defer release()
	}
	e.stdout = sandbox.NewCapture(e.limits.Output, cmd.Live)
	e.stderr = sandbox.NewCapture(e.limits.Output, cmd.Live)
	// A run that leaves anything behind fails, with the first reason.
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
	// The cgroup is created before the helper is started, because concurrently the two would block each other
	// for longer than it takes. A helper that waited only creates mounts meanwhile, so it does not block.
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
			return nil, errLost
		}
		return nil, err
	}
	if e.adopted {
		r.ahead.served.Add(1)
	}
	res.Duration = time.Since(e.began) - e.held
	return res, nil
}

// makeGroup creates the cgroup, unless memory is sampled.
func (e *execution) makeGroup(base cgroupBase) (err error) {
	if base.memory == MemorySampled {
		return nil
	}
	limits := e.limits
	if b := e.runner.builder; b != nil && b.Setting() == pidone.Guest {
		// The cgroup includes the threads of the guest's kernel, which must not use up the command's limit.
		limits.PIDs = max(limits.PIDs, guestTasks)
	}
	e.group, err = base.create(limits)
	if err != nil {
		e.group = nil
		return unavailable("no control group could be made", cgroupRemedy, err)
	}
	return nil
}

// Enforced returns the limits that the runner enforces, see [sandbox.Enforced]. A sandbox of a [Builder] has
// file systems of its own, without a limit on files, and a guest's kernel does not limit processes.
func (r *Runner) Enforced(l sandbox.Limits) sandbox.Limits {
	if r.builder != nil {
		l.Inodes = 0
		if r.builder.Setting() == pidone.Guest {
			l.PIDs = 0
		}
	}
	return l
}

// supervise starts the command, reads its output and enforces its limits. It returns once all its processes
// have ended.
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
		// A command need not read its input.
		readers.Go(func() {
			_, _ = e.child.stdin.Write(e.cmd.Stdin)
			_ = e.child.stdin.Close()
		})
	}
	begun := time.Now()
	e.refusal = e.begin()
	e.held = time.Since(begun)
	// The wait in begin is not part of the run's time, so the time limit is watched only from here on.
	watchers.Go(func() { sandbox.Watch(ctx, e.limits.Timeout, e.done, func(o sandbox.Outcome) { e.end(o) }) })
	watchers.Go(e.meter)
	goErr := e.refusal
	if goErr == nil {
		goErr = e.letGo()
	}
	// If the helper was killed, letGo fails too; the outcome is then the cause of the kill.
	if goErr != nil && !e.end(sandbox.Canceled) {
		goErr = nil
	}
	state, err := e.child.proc.Wait()
	if p := e.inside.Load(); p != nil {
		// The program that built the sandbox may end before the processes in it.
		p.kill()
		p.wait()
	}
	close(e.done)
	e.egress.cancel()
	watchers.Wait()
	// No writer is left, so all remaining output has been written.
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
		return nil, unavailable("waiting for the helper failed", "", err)
	case e.refusal != nil:
		return nil, e.refusal
	case goErr == nil || e.report.step != "":
		return state, nil
	case e.command != nil && !e.report.began:
		return nil, e.neverBegan(state)
	}
	return nil, unavailable("limits could not be applied", cgroupRemedy, goErr)
}

func (e *execution) drain(f *os.File, into *sandbox.Capture) {
	if into.Drain(f) {
		e.end(sandbox.OutputLimit)
	}
}

// letGo applies the limits and lets the helper start the command.
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
			// A guest's kernel may have ended a process that it no longer needs.
			if err := e.group.add(pid); err != nil && (i == 0 || !errors.Is(err, unix.ESRCH)) {
				return err
			}
		}
	}
	return e.child.send(pidone.MsgGo, doors)
}

// end ends the run and reports whether cause is the recorded reason, which is the first one.
func (e *execution) end(cause sandbox.Outcome) bool {
	first := e.cause.CompareAndSwap(nil, &cause)
	// The run may have ended by itself. A process just started by a Builder's program may not yet be bound to
	// its end, but is still in its session's first process group.
	if err := e.child.proc.Kill(); err == nil && e.command != nil {
		_ = unix.Kill(-e.child.proc.Pid, unix.SIGKILL)
	}
	if p := e.inside.Load(); p != nil {
		p.kill()
	}
	return first
}

// result returns the result of the run after all its processes have ended.
func (e *execution) result(ctx context.Context, state *os.ProcessState) (*sandbox.Result, error) {
	res := &sandbox.Result{Limits: e.runner.Enforced(e.limits)}
	cause := e.cause.Load()
	switch {
	case e.report.cwd != "":
		return nil, e.cwdError()
	case e.report.step != "":
		return nil, e.setupError()
	case cause != nil:
		// The server ended the run, whatever the command did after that.
		res.Outcome = *cause
	case e.group != nil && e.group.killed():
		res.Outcome = sandbox.MemoryLimit
	case e.report.status != nil:
		e.ended(res, *e.report.status)
	case e.report.began:
		// The first process was killed from outside, and with it all others.
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
		// The helper created the overlay, in a user namespace.
		upper = e.report.files[1]
	}
	if upper != nil && e.cmd.Workspace.Mode == sandbox.WorkspaceStaged {
		fileUID, fileGID := FileOwner(e.cmd.Workspace)
		layer := &staged.Layer{
			Upper: upper, Trusted: trusted, UID: e.uid, GID: e.gid, FileUID: fileUID, FileGID: fileGID,
			Began: e.began, Workspace: e.cmd.Workspace, Outcome: res.Outcome,
			MaxBytes: e.limits.Scratch, Timeout: max(e.limits.Timeout, leastApply),
		}
		res.Writes = staged.Apply(ctx, layer)
		res.Kept = layer.Kept
	}
	return res, nil
}

// ended sets the outcome of a command that ended by itself.
func (e *execution) ended(res *sandbox.Result, ws syscall.WaitStatus) {
	res.Outcome, res.ExitCode = sandbox.Exited, ws.ExitStatus()
	if ws.Signaled() {
		res.Outcome, res.ExitCode = sandbox.Signaled, 128+int(ws.Signal())
		res.Signal = unix.SignalName(ws.Signal())
	}
	// Any process can send that signal, so the time is checked. The kernel measures it in coarse ticks.
	if res.Signal == "SIGXCPU" && e.report.cpu >= e.limits.CPU/2 {
		res.Outcome, res.Signal = sandbox.TimedOut, ""
	}
	// If a process was refused but the command succeeded, the run keeps its own outcome.
	if ws != 0 && (e.crowded.Load() || e.group != nil && e.group.refused()) {
		res.Outcome = sandbox.PIDsLimit
	}
}
