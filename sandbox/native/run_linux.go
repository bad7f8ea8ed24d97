package native

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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
	drainFor    = 500 * time.Millisecond
)

func (r *Runner) run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	begin := time.Now()
	limits := cmd.Limits.WithDefaults()
	if ctx.Err() != nil {
		return &sandbox.Result{Outcome: sandbox.Canceled, Limits: limits}, nil
	}
	if err := check(cmd); err != nil {
		return nil, err
	}
	if b := r.builder; b != nil {
		if err := b.Check(cmd); err != nil {
			return nil, err
		}
	}
	e := &execution{
		launch: launch{runner: r, cmd: cmd, limits: limits},
		stdout: sandbox.NewCapture(limits.Output), stderr: sandbox.NewCapture(limits.Output),
		done: make(chan struct{}), ready: make(chan struct{}), began: begin,
	}
	res, err := e.run(ctx)
	if err != nil {
		return nil, err
	}
	res.Duration = time.Since(begin)
	return res, nil
}

func check(cmd *sandbox.Cmd) error {
	if len(cmd.Argv) == 0 || !filepath.IsAbs(cmd.Argv[0]) {
		return unavailable("the interpreter's path is not absolute", "", nil)
	}
	for _, s := range append(append([]string{}, cmd.Argv...), cmd.Env...) {
		if strings.IndexByte(s, 0) >= 0 {
			return unavailable("an argument or variable contains a NUL byte", "", nil)
		}
	}
	if strings.IndexByte(cmd.Cwd, 0) >= 0 {
		return &sandbox.CwdError{Cwd: cmd.Cwd, Reason: "contains a NUL byte"}
	}
	return nil
}

// An execution is one run from its start to its result.
type execution struct {
	launch
	child  *child
	inside atomic.Pointer[process] // process 1 of a sandbox that a Builder made
	ready  chan struct{}           // closed when the helper has said that it is
	began  time.Time
	group  *cgroup // nil when memory is sampled
	stdout *sandbox.Capture
	stderr *sandbox.Capture
	said   said
	egress *egress

	cause   atomic.Pointer[sandbox.Outcome] // why the run was ended from outside
	crowded atomic.Bool                     // the process limit was seen reached
	done    chan struct{}
	guest   atomic.Pointer[guest] // of a sandbox with a kernel of its own, once the command may start
}

// said is what the helper reported.
type said struct {
	files  []*os.File
	status *syscall.WaitStatus
	cpu    time.Duration // used by the command and those it waited for
	cwd    string
	step   string
	errno  syscall.Errno
	began  bool   // the sandbox was there, and the command may have started
	out    []byte // of a guest
}

func (e *execution) run(ctx context.Context) (_ *sandbox.Result, err error) {
	base := e.runner.base()
	e.spec.NoAnonFiles = base.memory == MemorySampled
	if err := e.makeGroup(base); err != nil {
		return nil, err
	}
	defer func() {
		if e.group == nil {
			return
		}
		if rerr := e.group.remove(); rerr != nil && err == nil {
			err = unavailable("the control group could not be removed", "", rerr)
		}
	}()
	defer func() {
		e.closeAll(e.said.files)
		e.closeAll([]*os.File{e.upper})
	}()
	defer func() {
		if ferr := e.forget(); ferr != nil && err == nil {
			err = unavailable("the run's own files could not be removed", "", ferr)
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
	state, err := e.supervise(ctx)
	if err != nil {
		return nil, err
	}
	return e.result(ctx, state)
}

// supervise lets the command start, drains and watches it, and returns once its processes are
// gone.
func (e *execution) supervise(ctx context.Context) (*os.ProcessState, error) {
	var readers, watchers sync.WaitGroup
	e.egress = newEgress(ctx, e.cmd.Network)
	defer e.egress.wait()
	readers.Go(func() { e.drain(e.child.stdout, e.stdout) })
	readers.Go(func() { e.drain(e.child.stderr, e.stderr) })
	readers.Go(func() { e.listen(); e.unready() })
	if e.child.stdin != nil {
		readers.Go(func() { e.child.feed(e.cmd.Stdin) })
	}
	watchers.Go(func() { sandbox.Watch(ctx, e.limits.Timeout, e.done, func(o sandbox.Outcome) { e.end(o) }) })
	watchers.Go(e.meter)
	// Killing the helper makes letting it go fail too, and then says how the run ended.
	goErr := e.letGo()
	if goErr != nil && !e.end(sandbox.Canceled) {
		goErr = nil
	}
	state, err := e.child.proc.Wait()
	e.outlast()
	close(e.done)
	e.egress.cancel()
	watchers.Wait()
	// Nobody is left who could write; what is read from here on was written before.
	deadline := time.Now().Add(drainFor)
	for _, f := range []*os.File{e.child.stdin, e.child.stdout, e.child.stderr, e.child.control} {
		if f != nil {
			_ = f.SetDeadline(deadline)
		}
	}
	if e.child.stdin != nil {
		_ = e.child.stdin.SetDeadline(time.Now())
	}
	readers.Wait()
	if err != nil {
		return nil, unavailable("the helper could not be waited for", "", err)
	}
	if goErr != nil && e.said.step == "" {
		return nil, e.notLetGo(state, goErr)
	}
	return state, nil
}

// letGo puts the limits in place and tells the helper that they are.
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
		defer e.closeAll(doors)
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
	return e.child.letGo(doors)
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

func (e *execution) drain(f *os.File, into *sandbox.Capture) {
	if into.Drain(f) {
		e.end(sandbox.OutputLimit)
	}
}

// listen reads the helper's messages until its end of the socket is closed.
func (e *execution) listen() {
	conn, err := e.child.control.SyscallConn()
	if err != nil {
		return
	}
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4)+unix.CmsgSpace(unix.SizeofUcred))
	for {
		var n, oobn int
		var rerr error
		receive := func(fd uintptr) bool {
			// A helper that ended without reading what it was sent leaves this error before its last words.
			for rerr = unix.ECONNRESET; rerr == unix.ECONNRESET; {
				n, oobn, _, _, rerr = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
			}
			return rerr != unix.EAGAIN && rerr != unix.EINTR
		}
		err := conn.Read(receive)
		if errors.Is(err, os.ErrDeadlineExceeded) { // what was sent before is still there
			err = conn.Control(func(fd uintptr) {
				for !receive(fd) && rerr == unix.EINTR {
				}
			})
		}
		if err != nil || rerr != nil || n <= 0 {
			return
		}
		e.said.take(buf[:n], oob[:oobn])
		if buf[0] == pidone.MsgFiles {
			e.egress.serve(&e.said)
			e.arrived(oob[:oobn])
		}
	}
}

func (s *said) take(msg, oob []byte) {
	body := msg[1:]
	switch msg[0] {
	case pidone.MsgFiles:
		s.began = true
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
				s.files = append(s.files, os.NewFile(uintptr(fd), "dir"))
			}
		}
	case pidone.MsgOut:
		s.out = append(s.out, body[:min(len(body), maxOut-len(s.out))]...)
	case pidone.MsgCwd:
		s.cwd = string(body)
	case pidone.MsgError:
		if len(body) >= 4 {
			s.errno, s.step = syscall.Errno(binary.LittleEndian.Uint32(body)), string(body[4:])
		}
	case pidone.MsgExit:
		if len(body) == 8 {
			ws := syscall.WaitStatus(binary.LittleEndian.Uint32(body))
			s.status = &ws
			s.cpu = time.Duration(binary.LittleEndian.Uint32(body[4:])) * time.Millisecond
		}
	}
}

func (e *execution) result(ctx context.Context, state *os.ProcessState) (*sandbox.Result, error) {
	res := &sandbox.Result{Limits: e.limits}
	cause := e.cause.Load()
	switch {
	case e.said.cwd != "":
		return nil, &sandbox.CwdError{Cwd: e.cmd.Cwd, Reason: e.said.cwd}
	case e.said.step != "":
		return nil, e.setupError()
	case cause != nil:
		res.Outcome = *cause
	case e.group != nil && e.group.killed():
		res.Outcome = sandbox.MemoryLimit
	case e.said.status != nil:
		e.ended(res, *e.said.status)
	case e.said.began:
		// The first process was killed from outside, and everything with it.
		res.Outcome, res.Signal = sandbox.Signaled, unix.SignalName(unix.SIGKILL)
	default:
		return nil, e.neverBegan(state)
	}
	res.Stdout, res.Stderr = e.stdout.Stream(), e.stderr.Stream()
	e.collect(res)
	if e.cmd.Workspace.Mode == sandbox.WorkspaceStaged {
		res.Writes = e.applied(ctx, res.Outcome)
	}
	return res, nil
}

func (e *execution) ended(res *sandbox.Result, ws syscall.WaitStatus) {
	res.Outcome, res.ExitCode = sandbox.Exited, ws.ExitStatus()
	if ws.Signaled() {
		res.Outcome, res.ExitCode = sandbox.Signaled, 0
		res.Signal = unix.SignalName(ws.Signal())
	}
	// Anybody can send that signal. The kernel counts in ticks, which are coarse.
	if res.Signal == "SIGXCPU" && e.said.cpu >= e.limits.CPU/2 {
		res.Outcome, res.Signal = sandbox.TimedOut, ""
	}
	if ws == 0 {
		return
	}
	if e.crowded.Load() || (e.group != nil && e.group.refused()) {
		res.Outcome = sandbox.PIDsLimit
	}
}
