package native

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
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
	began   time.Time
	held    time.Duration // duration of begin
	refusal error         // error of begin
	group   *cgroup       // nil if memory is sampled
	stdout  *sandbox.Capture
	stderr  *sandbox.Capture
	report  report
	proxy   sync.WaitGroup // the proxy of the run's network, if any

	// Set for a sandbox built by a Builder.
	inside atomic.Pointer[process] // process 1 in the sandbox
	guest  atomic.Pointer[guest]   // its kernel, if any, once the command may start
	ready  chan struct{}           // closed once inside is set or cannot be set
	once   sync.Once               // closes ready

	cause   atomic.Pointer[sandbox.Outcome] // why the server ended the run
	crowded atomic.Bool                     // the process limit was reached
	done    chan struct{}                   // closed when no process of the run is left
}

// run runs a command in a sandbox of its own. If ahead is set, that may be in the waiting helper.
//
// Errors: see [Runner.Run]; errLost.
func (r *Runner) run(
	ctx context.Context, cmd *sandbox.Cmd, begin func() error, ahead bool,
) (res *sandbox.Result, err error) {
	e := &execution{
		launch: launch{
			runner: r, cmd: cmd, limits: cmd.Limits.WithDefaults(),
			root: os.Geteuid() == 0, uid: os.Geteuid(), gid: os.Getegid(),
		},
		begin: begin,
		began: time.Now(),
		ready: make(chan struct{}),
		done:  make(chan struct{}),
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
		e.spec.Setting = r.builder.Setting()
	}

	release, err := e.take(ahead)
	defer r.ended(&e.launch)
	if err != nil {
		return nil, err
	}
	// The user is released last: by then, no file of the run has that owner.
	defer release()
	// A run that leaves anything behind fails.
	defer func() {
		if left := e.cleanUp(); left != nil && err == nil {
			res, err = nil, left
		}
	}()
	res, err = e.execute(ctx)
	if err != nil {
		return nil, err
	}
	if e.adopted {
		r.ahead.served.Add(1)
	}
	res.Duration = time.Since(e.began) - e.held
	return res, nil
}

// execute starts the helper, waits until no process of the run is left, and returns the result.
//
// Errors: see [Runner.Run]; errLost.
func (e *execution) execute(ctx context.Context) (*sandbox.Result, error) {
	e.stdout = sandbox.NewCapture(e.limits.Output, e.cmd.Live)
	e.stderr = sandbox.NewCapture(e.limits.Output, e.cmd.Live)
	base := e.runner.base()
	e.spec.NoAnonFiles = base.memory == MemorySampled

	// The cgroup is created before the helper is started, because concurrently the two would block each other
	// for longer than it takes. A helper that waited only creates mounts meanwhile, so it does not block.
	waited := e.spare != nil && e.runner.builder == nil
	if !waited {
		if err := e.makeGroup(base); err != nil {
			return nil, err
		}
	}

	// The kernel kills the helper when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := e.start(); err != nil {
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
	if err != nil {
		return nil, e.orLost(err)
	}
	res, err := e.result(ctx, state)
	if err != nil {
		return nil, e.orLost(err)
	}
	return res, nil
}

// orLost returns err, or errLost if the helper that waited for the run ended before the sandbox was complete.
func (e *execution) orLost(err error) error {
	if e.adopted && !e.report.began && e.report.step == "" && e.refusal == nil {
		return errLost
	}
	return err
}

// cleanUp ends a waiting helper that the run did not adopt, closes the files of the run and removes all that
// it left on the host. It returns the first error of removing.
func (e *execution) cleanUp() (err error) {
	if e.spare != nil {
		e.spare.end()
	}
	closeAll(e.report.files)
	closeAll([]*os.File{e.upper})
	if p := e.inside.Load(); p != nil {
		_ = p.fd.Close()
	}
	if e.command != nil && e.command.Close != nil {
		if cause := e.command.Close(); cause != nil {
			err = unavailable("the run's own files could not be removed", "", cause)
		}
	}
	if e.group != nil {
		if cause := e.group.remove(); cause != nil && err == nil {
			err = unavailable("the control group could not be removed", "", cause)
		}
	}
	return err
}

// makeGroup creates the cgroup, unless memory is sampled.
func (e *execution) makeGroup(base cgroupBase) (err error) {
	if base.memory == MemorySampled {
		return nil
	}
	limits := e.limits
	if e.spec.Setting == pidone.Guest {
		// The cgroup includes the threads of the guest's kernel, which must not use up the command's limit.
		limits.PIDs = max(limits.PIDs, guestTasks)
	}
	e.group, err = base.create(limits)
	if err != nil {
		return unavailable("no control group could be made", cgroupRemedy, err)
	}
	return nil
}

// supervise starts the command, reads its output and enforces its limits. It returns once all its processes
// have ended.
func (e *execution) supervise(ctx context.Context) (*os.ProcessState, error) {
	var readers, watchers sync.WaitGroup
	proxyCtx, stopProxy := context.WithCancel(ctx)
	defer e.proxy.Wait()
	defer stopProxy()
	end := func(o sandbox.Outcome) { e.end(o) }
	readers.Go(func() { e.stdout.Drain(e.child.stdout, end) })
	readers.Go(func() { e.stderr.Drain(e.child.stderr, end) })
	readers.Go(func() {
		e.listen(proxyCtx)
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
	watchers.Go(func() { sandbox.Watch(ctx, e.limits.Timeout, e.done, end) })
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
	stopProxy()
	watchers.Wait()
	e.child.expire()
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

// expire limits the reading of streams and messages after the last process has ended. No writer is left, so
// all remaining output has been written.
func (c *child) expire() {
	deadline := time.Now().Add(drainFor)
	for _, f := range []*os.File{c.stdout, c.stderr, c.control} {
		_ = f.SetDeadline(deadline)
	}
	if c.stdin != nil {
		_ = c.stdin.SetDeadline(time.Now())
	}
}

// letGo waits until the sandbox is complete, applies the limits and lets the helper start the command.
func (e *execution) letGo() error {
	if e.runner.builder != nil {
		<-e.ready
	}
	first := e.first()
	if first == 0 {
		return unix.ESRCH
	}
	// The limits apply to the first process and, for a guest, to all that its kernel has started by then.
	pids := []int{first}
	if e.spec.Setting == pidone.Guest {
		e.guest.Store(newGuest(first))
		pids = append(pids, descendants(first)...)
	}

	var doors []*os.File
	switch {
	case e.group == nil:
	case e.group.memory == MemoryCgroup1 && e.spec.Setting != pidone.Guest:
		var err error
		doors, err = e.group.doors()
		defer func() { closeAll(doors) }()
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

// first returns the ancestor of all other processes in the sandbox, or 0 if it is not known yet.
func (e *execution) first() int {
	if e.runner.builder == nil {
		return e.child.proc.Pid
	}
	if p := e.inside.Load(); p != nil {
		return p.pid
	}
	return 0
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

// maxMessage is the maximum size of a message from a helper; maxOut limits the total size of all files of a
// guest.
const (
	maxMessage = 64 << 10
	maxOut     = maxOutBytes + 1<<20
)

// A report collects the helper's messages.
type report struct {
	files  []*os.File // /out, then the upper layer if the helper made the overlay
	status *syscall.WaitStatus
	cpu    time.Duration // processor time of the command and the processes it waited for
	cwd    string        // why the working directory was refused, or empty
	step   string        // the step that failed, or empty
	errno  syscall.Errno
	began  bool   // the sandbox was complete, and the command may have started
	out    []byte // files of a guest
}

// listen reads the helper's messages until its end of the socket is closed. A proxy that it starts ends with
// proxyCtx.
func (e *execution) listen(proxyCtx context.Context) {
	conn, err := e.child.control.SyscallConn()
	if err != nil {
		return
	}
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4)+unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, oobn, err := receive(conn, buf, oob)
		if err != nil || n <= 0 {
			return
		}
		e.report.take(buf[:n], oob[:oobn])
		if buf[0] == pidone.MsgFiles {
			if e.cmd.Network.Proxy != nil {
				e.serveProxy(proxyCtx)
			}
			if e.runner.builder != nil {
				e.arrived(oob[:oobn])
			}
		}
	}
}

// receive reads one message into buf, and its descriptors into oob. After the deadline of conn, it reads a
// message that is in the queue already.
func receive(conn syscall.RawConn, buf, oob []byte) (n, oobn int, err error) {
	var rerr error
	try := func(fd uintptr) (done bool) {
		// If the helper ended without reading its messages, this error precedes the helper's last messages.
		for rerr = unix.ECONNRESET; rerr == unix.ECONNRESET; {
			n, oobn, _, _, rerr = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
		}
		return rerr != unix.EAGAIN && rerr != unix.EINTR
	}
	err = conn.Read(try)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = conn.Control(func(fd uintptr) {
			for !try(fd) && rerr == unix.EINTR {
			}
		})
	}
	return n, oobn, cmp.Or(err, rerr)
}

// take stores one message and its descriptors.
func (r *report) take(msg, oob []byte) {
	body := msg[1:]
	switch msg[0] {
	case pidone.MsgFiles:
		r.began = true
		controls, err := unix.ParseSocketControlMessage(oob)
		if err != nil {
			return
		}
		for i := range controls {
			fds, err := unix.ParseUnixRights(&controls[i])
			if err != nil {
				continue
			}
			for _, fd := range fds {
				r.files = append(r.files, os.NewFile(uintptr(fd), "dir"))
			}
		}
	case pidone.MsgOut:
		// The guest is untrusted and may send more than its helper would.
		r.out = append(r.out, body[:min(len(body), maxOut-len(r.out))]...)
	case pidone.MsgCwd:
		r.cwd = string(body)
	case pidone.MsgError:
		if len(body) >= 4 {
			r.errno, r.step = syscall.Errno(binary.LittleEndian.Uint32(body)), string(body[4:])
		}
	case pidone.MsgExit:
		if len(body) == 8 {
			ws := syscall.WaitStatus(binary.LittleEndian.Uint32(body))
			r.status = &ws
			r.cpu = time.Duration(binary.LittleEndian.Uint32(body[4:])) * time.Millisecond
		}
	}
}

// serveProxy starts the proxy on the socket that the helper sent after its directories, and removes it from
// the report's files. The command starts only after the helper listens, and its connections wait in the
// socket's queue until the proxy accepts them.
func (e *execution) serveProxy(ctx context.Context) {
	left := len(e.report.files) - 1
	if left < 0 {
		return
	}
	last := e.report.files[left]
	e.report.files = e.report.files[:left]
	// FileListener duplicates the descriptor.
	l, err := net.FileListener(last)
	_ = last.Close()
	if err != nil {
		// Connections to the proxy are not answered, and end with the run.
		return
	}
	e.proxy.Go(func() { e.cmd.Network.Proxy.Serve(ctx, l) })
}

// A process is identified by a descriptor, because its process ID may be reused.
type process struct {
	pid int
	fd  *os.File
}

func (p *process) kill() { _ = unix.PidfdSendSignal(int(p.fd.Fd()), unix.SIGKILL, nil, 0) }

// wait returns once the process has ended, and with it its namespace or guest, where it is the first process.
func (p *process) wait() {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd.Fd()), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR || n > 0 {
			return
		}
	}
}

// arrived stores the process that sent the first message of a helper in a Builder's sandbox. The kernel adds
// the process ID in this process's namespace to the message.
func (e *execution) arrived(oob []byte) {
	defer e.once.Do(func() { close(e.ready) })
	if e.inside.Load() != nil {
		return
	}
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range controls {
		cred, err := unix.ParseUnixCredentials(&controls[i])
		if err != nil || cred.Pid <= 0 {
			continue
		}
		fd, err := unix.PidfdOpen(int(cred.Pid), 0)
		if err != nil {
			continue
		}
		e.inside.Store(&process{pid: int(cred.Pid), fd: os.NewFile(uintptr(fd), "process")})
	}
	// If the run was ended before this process was known, the process is still running.
	if e.cause.Load() != nil {
		if p := e.inside.Load(); p != nil {
			p.kill()
		}
	}
}
