// Package host runs commands directly on the machine, as the server's own user. It isolates nothing.
//
//	r := host.New()
//	res, err := r.Run(ctx, &sandbox.Cmd{
//		Argv: []string{"/usr/bin/bash", "/srv/skill/scripts/x.sh"}, Cwd: "/srv",
//	})
//
// # Guarantees
//
// A command
//
//   - gets only the variables of its Cmd, no terminal and, on Linux 5.11 or later, no open files except its
//     standard streams;
//   - starts in the directory that it was granted;
//   - leaves no process of its session behind when Run returns;
//   - is limited in time and output.
//
// # Limits
//
// Nothing else is guaranteed. A command can read and write all files of the server's user, including the
// server's own records and store, use any network, and exhaust memory, processors and disk. A process that
// creates a session of its own outlives Run. Network, Tree, Interpreter, the mode of the workspace and all
// limits except Timeout and Output have no effect; the result states the limits that were enforced.
package host

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// Name is the runner's name in results and errors.
const Name = "host"

// drainFor is how long output is read after the last process of the session has ended.
const drainFor = 500 * time.Millisecond

// Runner runs commands on the host. It is safe for concurrent use.
type Runner struct{}

var _ sandbox.Runner = (*Runner)(nil)

// New returns a runner.
func New() *Runner { return &Runner{} }

// Name returns "host".
func (*Runner) Name() string { return Name }

// Run runs cmd, whose paths are host paths, and returns when all processes of its session have ended. With a
// workspace, Cwd is relative to it or an absolute path below it, and must not lead out of it through links;
// without one, Cwd is an absolute directory. If ctx ends, the run is ended with outcome [sandbox.Canceled].
//
// Errors: *[sandbox.UnavailableError] if the command could not be started or this system cannot end it
// reliably; *[sandbox.CwdError].
func (*Runner) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	begin, all := time.Now(), cmd.Limits.WithDefaults()
	limits := sandbox.Limits{Timeout: all.Timeout, Output: all.Output}
	if ctx.Err() != nil {
		return &sandbox.Result{Outcome: sandbox.Canceled, Backend: Name, Limits: limits}, nil
	}
	if !supported {
		return nil, unavailable("this system has no means to end a command and all that it started",
			"serve on Linux or another Unix", nil)
	}
	if err := cmd.Check(); err != nil {
		if u, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
			u.Backend = Name
		}
		return nil, err
	}
	dir, err := workingDir(cmd)
	if err != nil {
		return nil, err
	}
	e := &execution{
		cmd: cmd, limits: limits, done: make(chan struct{}),
		stdout: sandbox.NewCapture(limits.Output, cmd.Live),
		stderr: sandbox.NewCapture(limits.Output, cmd.Live),
	}
	// The kernel kills the command when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	result, err := e.run(ctx, dir)
	if err != nil {
		return nil, err
	}
	result.Duration = time.Since(begin)
	return result, nil
}

func unavailable(reason, remedy string, err error) error {
	return &sandbox.UnavailableError{Backend: Name, Reason: reason, Remedy: remedy, Err: err}
}

// workingDir returns the working directory of a command.
//
// Errors: *[sandbox.CwdError].
func workingDir(cmd *sandbox.Cmd) (string, error) {
	ws := cmd.Workspace
	var dir, refused string
	switch {
	case ws.Dir != nil && !ws.Off():
		dir, refused = inWorkspace(ws.Dir, cmd.Cwd)
	case filepath.IsAbs(cmd.Cwd):
		dir = cmd.Cwd
	default:
		refused = "no workspace is granted to which it could be relative"
	}
	if refused != "" {
		return "", &sandbox.CwdError{Cwd: cmd.Cwd, Reason: refused}
	}
	return dir, nil
}

// inWorkspace returns the path of a directory of the workspace without links, or why it is refused.
func inWorkspace(workspace *os.File, cwd string) (dir, refused string) {
	base, err := filepath.Abs(workspace.Name())
	if err != nil {
		return "", "the workspace cannot be found"
	}
	rel := filepath.Clean(cwd)
	if filepath.IsAbs(cwd) {
		rel, err = filepath.Rel(base, cwd)
	}
	if err != nil || !filepath.IsLocal(rel) {
		return "", "is not inside the workspace"
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return "", "the workspace cannot be opened"
	}
	defer func() { _ = root.Close() }()
	granted, err := workspace.Stat()
	if err != nil {
		return "", "the workspace cannot be opened"
	}
	// The path may lead elsewhere by now; the handle is the directory that was granted.
	if there, err := root.Stat("."); err != nil || !os.SameFile(there, granted) {
		return "", "the workspace is no longer the directory that was granted"
	}
	return withoutLinks(root, base, rel)
}

// withoutLinks returns the path of a directory of root, which is open at base, or why it is refused. A
// command is started in a path, not in the directory that was checked. If the path has no links, only a user
// who can rename its directories can redirect it.
func withoutLinks(root *os.Root, base, rel string) (dir, refused string) {
	info, err := root.Stat(rel)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", "does not exist"
	case err != nil:
		return "", "is not inside the workspace, or cannot be opened"
	case !info.IsDir():
		return "", "is not a directory"
	}
	dir, err = filepath.EvalSymlinks(filepath.Join(base, rel))
	if err != nil {
		return "", "cannot be opened"
	}
	if there, err := os.Stat(dir); err != nil || !os.SameFile(there, info) {
		return "", "changed while it was opened"
	}
	return dir, ""
}

// An execution is one run from its start to its result.
type execution struct {
	cmd            *sandbox.Cmd
	limits         sandbox.Limits
	proc           *os.Process
	stdout, stderr *sandbox.Capture

	cause atomic.Pointer[sandbox.Outcome] // why the run was ended
	done  chan struct{}                   // closed when its first process has ended

	mu   sync.Mutex
	over bool // the process was reaped, so its ID may be reused
}

// end ends the run; the first cause stays.
func (e *execution) end(cause sandbox.Outcome) {
	e.cause.CompareAndSwap(nil, &cause)
	e.kill()
}

func (e *execution) kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		killSession(e.proc.Pid)
	}
}

func (e *execution) run(ctx context.Context, dir string) (*sandbox.Result, error) {
	c := exec.Command(e.cmd.Argv[0], e.cmd.Argv[1:]...)
	// A nil Env would give the command the server's own variables.
	c.Dir, c.Env, c.SysProcAttr = dir, append([]string{}, e.cmd.Env...), attributes()
	pipes, err := connect(c, e.cmd.Stdin != nil)
	if err != nil {
		return nil, unavailable("no pipes could be made", "", err)
	}
	defer pipes.close()
	if err := c.Start(); err != nil {
		return nil, unavailable("the interpreter could not be started", "check that it can be executed", err)
	}
	e.proc = c.Process
	// As long as this process has the writing ends open, reading the streams would never end.
	pipes.closeTheirs()

	var drains, others sync.WaitGroup
	drains.Go(func() { e.stdout.Drain(pipes.stdout, e.end) })
	drains.Go(func() { e.stderr.Drain(pipes.stderr, e.end) })
	if pipes.stdin != nil {
		others.Go(func() { feed(pipes.stdin, e.cmd.Stdin) })
	}
	others.Go(func() { sandbox.Watch(ctx, e.limits.Timeout, e.done, e.end) })
	err = e.wait(c)
	// No more signals may be sent, because the process ID may be reused.
	close(e.done)
	if pipes.stdin != nil {
		// A process that left the session may keep the other end open without reading it.
		_ = pipes.stdin.SetDeadline(time.Now())
	}
	others.Wait()
	// A process that left the session may keep the pipes open.
	deadline := time.Now().Add(drainFor)
	_ = pipes.stdout.SetReadDeadline(deadline)
	_ = pipes.stderr.SetReadDeadline(deadline)
	drains.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return nil, unavailable("waiting for the command failed", "", err)
	}
	return e.result(c.ProcessState), nil
}

// wait returns when the command has ended and the other processes of its session are killed. If the system
// can wait for the end of a child without reaping it, the session is killed before the command is reaped,
// because until then neither its process ID nor its session's can be reused.
func (e *execution) wait(c *exec.Cmd) (err error) {
	seen := awaitEnd(c.Process.Pid)
	if !seen {
		err = c.Wait()
	}
	e.kill()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if seen {
		err = c.Wait()
	}
	return err
}

func (e *execution) result(state *os.ProcessState) *sandbox.Result {
	result := &sandbox.Result{
		Backend: Name, Limits: e.limits, Outcome: sandbox.Exited,
		Stdout: e.stdout.Stream(), Stderr: e.stderr.Stream(),
	}
	if cause := e.cause.Load(); cause != nil {
		result.Outcome = *cause
	} else if name, number := signalOf(state); number != 0 {
		result.Outcome, result.Signal, result.ExitCode = sandbox.Signaled, name, 128+number
	} else {
		result.ExitCode = state.ExitCode()
	}
	return result
}

// feed writes a command's input.
func feed(f *os.File, data []byte) {
	// A command need not read its input.
	_, _ = f.Write(data)
	_ = f.Close()
}

// A plumbing holds both ends of a command's standard streams.
type plumbing struct {
	stdin, stdout, stderr *os.File // this process's ends; stdin is nil without input
	theirs                []*os.File
}

// connect creates the pipes of a command.
func connect(c *exec.Cmd, input bool) (*plumbing, error) {
	p := &plumbing{}
	var failed error
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		failed = errors.Join(failed, err)
		return r, w
	}
	var out, errs *os.File
	p.stdout, out = pipe()
	p.stderr, errs = pipe()
	p.theirs = []*os.File{out, errs}
	if input {
		var in *os.File
		in, p.stdin = pipe()
		p.theirs = append(p.theirs, in)
		c.Stdin = in
	}
	if failed != nil {
		p.close()
		return nil, failed
	}
	c.Stdout, c.Stderr = out, errs
	return p, nil
}

func (p *plumbing) closeTheirs() {
	for _, f := range p.theirs {
		if f != nil {
			_ = f.Close()
		}
	}
	p.theirs = nil
}

func (p *plumbing) close() {
	p.closeTheirs()
	for _, f := range []io.Closer{p.stdin, p.stdout, p.stderr} {
		// Nil and closed files are allowed.
		_ = f.Close()
	}
}
