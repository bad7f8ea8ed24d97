package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
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
	// aheadAfter is the delay between a run and the start of the next helper, so that the caller can answer
	// first.
	aheadAfter = 10 * time.Millisecond

	// aheadWithin limits the time until a helper is ready.
	aheadWithin = 10 * time.Second

	// aheadFor is how long a helper waits for a run; an idle server keeps none.
	aheadFor = 5 * time.Minute
)

// ahead is the state of the helper that waits for the next run.
type ahead struct {
	mu      sync.Mutex
	spare   *spare
	running int // runs that have begun but not ended
	closed  bool
	served  atomic.Int64 // runs with a result that used a waiting helper
}

// A spare is a helper that waits for its Spec. It contains no state of a run.
type spare struct {
	child   *child
	spec    *os.File // for writing its Spec
	uid     int      // of a root server's command, leased
	release func()   // ends the lease; the run that takes the helper calls it
	owner   owner
	owners  *os.File // the user namespace for workspaces of owner; nil for the zero owner
	host    string   // result of hostView
	mounts  *os.File // reports changes of the host's mounts
	expiry  *time.Timer
}

// An owner is the owner of a workspace's files; zero if their owners cannot be mapped.
type owner struct{ uid, gid int }

// onStarter calls do on the thread that starts helpers ahead. That thread never ends, because the kernel
// kills a helper when the thread that started it ends.
func onStarter(do func()) {
	done := make(chan struct{})
	starterThread() <- func() { do(); close(done) }
	<-done
}

var starterThread = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})

// take registers a run, until ended is called. If may is set, the run gets the waiting helper, unless that is
// out of date. Under a root server the run also gets a user, until release is called.
func (l *launch) take(may bool) (release func(), err error) {
	r, a := l.runner, &l.runner.ahead
	a.mu.Lock()
	a.running++
	var s *spare
	if may {
		s, a.spare = a.spare, nil
	}
	a.mu.Unlock()

	if s != nil {
		s.expiry.Stop()
		view, err := hostView()
		if err == nil && view == s.host && !s.stale() {
			l.spare = s
			if l.root {
				l.uid, l.gid = s.uid, s.uid
			}
			return s.release, nil
		}
		s.drop()
	}

	if !l.root {
		return func() {}, nil
	}
	l.uid, release, err = r.opts.UIDs.Lease()
	if err != nil && r.opts.Ahead {
		// A waiting helper has one of the users.
		r.clear(false)
		l.uid, release, err = r.opts.UIDs.Lease()
	}
	l.gid = l.uid
	return release, err
}

// ended ends the registration of a run. If a waiting helper could have served it, the next one is started
// soon.
func (r *Runner) ended(l *launch) {
	a := &r.ahead
	a.mu.Lock()
	a.running--
	a.mu.Unlock()
	if !r.opts.Ahead || !l.fits() {
		return
	}
	var files owner
	if l.owners != nil {
		files.uid, files.gid = FileOwner(l.cmd.Workspace)
	}
	time.AfterFunc(aheadAfter, func() { onStarter(func() { r.provide(files) }) })
}

// provide starts a helper unless one is waiting or a run is in progress, which needs the processors.
func (r *Runner) provide(files owner) {
	// With other Builders, nothing can be built before the command is known.
	if r.builder != nil && (os.Geteuid() != 0 || !r.builder.Enters()) {
		return
	}
	a := &r.ahead
	a.mu.Lock()
	needed := a.spare == nil && a.running == 0 && !a.closed
	a.mu.Unlock()
	if !needed {
		return
	}
	s, err := r.newSpare(files)
	if err != nil {
		// The next run starts its own helper, and reports why it cannot.
		return
	}
	r.keep(s)
}

// keep makes s the waiting helper, for at most aheadFor.
func (r *Runner) keep(s *spare) {
	a := &r.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spare = s
	s.expiry = time.AfterFunc(aheadFor, func() {
		a.mu.Lock()
		mine := a.spare == s
		if mine {
			a.spare = nil
		}
		a.mu.Unlock()
		if mine {
			s.drop()
		}
	})
}

// Prepare starts a helper for the first run, if [Options.Ahead] is set and none is waiting. It does nothing
// while there are runs, and ignores errors.
func (r *Runner) Prepare() {
	if r.opts.Ahead {
		onStarter(func() { r.provide(owner{}) })
	}
}

// Close ends the waiting helper and prevents the start of others. Runs still work.
func (r *Runner) Close() {
	if r.opts.Ahead {
		r.clear(true)
	}
}

// clear ends the waiting helper, including one that is being started. If closed is set, no other helper is
// started later.
func (r *Runner) clear(closed bool) {
	onStarter(func() {
		a := &r.ahead
		a.mu.Lock()
		s := a.spare
		a.spare, a.closed = nil, a.closed || closed
		a.mu.Unlock()
		if s != nil {
			s.expiry.Stop()
			s.drop()
		}
	})
}

// newSpare starts a helper and waits until it is ready.
func (r *Runner) newSpare(files owner) (_ *spare, err error) {
	s := &spare{release: func() {}, child: &child{}}
	l := &launch{
		// The command may have input, or none.
		runner: r, cmd: &sandbox.Cmd{Stdin: []byte{}}, ahead: true,
		root: os.Geteuid() == 0, uid: os.Geteuid(), gid: os.Getegid(),
		files: make([]*os.File, pidone.FirstFD), child: s.child,
	}
	defer func() {
		closeAll(l.opened)
		if err != nil {
			s.drop()
		}
	}()
	if l.root {
		uid, release, err := r.opts.UIDs.Lease()
		if err != nil {
			return nil, err
		}
		s.uid, s.release, l.uid, l.gid = uid, release, uid, uid
	}
	// From here on, a change of the host makes the helper unfit.
	s.mounts, err = openBlocking("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	s.host, err = hostView()
	if err != nil {
		return nil, err
	}
	if err := l.streams(); err != nil {
		return nil, err
	}
	s.spec, err = memoryFile("spec", nil)
	if err != nil {
		return nil, err
	}
	births, err := l.births(files)
	if err != nil {
		return nil, err
	}
	instructions, err := memoryFile("births", pidone.EncodeBirths(births))
	if err != nil {
		return nil, err
	}
	l.opened = append(l.opened, instructions)
	l.files[pidone.SpecFD] = s.spec
	if err := startOthers(append(l.files, instructions)); err != nil {
		return nil, err
	}
	// The socket must end with the helper.
	closeAll(l.opened)
	l.opened = nil
	born, err := s.child.born(len(births))
	s.child.proc = born[0]
	if born[1] != nil {
		// Without it, the run creates its own.
		s.owners, _ = ownersOf(born[1])
		s.owner = files
	}
	return s, err
}

// births returns the processes that a starter starts: the helper and, if files of an owner are to be mapped,
// a process in the user namespace for that.
func (l *launch) births(files owner) ([]pidone.Birth, error) {
	births := []pidone.Birth{{Mark: pidone.Ahead, Files: true, Attr: l.attributes()}}
	if l.runner.builder != nil {
		births[0].Mark, births[0].Attr = pidone.EntryAhead, l.entryAttributes(Mapped)
	}
	if files == (owner{}) {
		return births, nil
	}
	attr, err := ownersAttributes(l.uid, files.uid, files.gid)
	if err != nil {
		return nil, err
	}
	return append(births, pidone.Birth{Mark: pidone.Inside, Attr: attr}), nil
}

// startOthers starts a starter, with files as its descriptors, and waits until it has started its processes.
func startOthers(files []*os.File) error {
	starter, err := os.StartProcess(Self, []string{"sandbox-starter"}, &os.ProcAttr{
		Env: pidone.Environ(pidone.Starter), Files: files,
		Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return err
	}
	state, err := starter.Wait()
	if err != nil {
		return err
	}
	if !state.Success() {
		err = errors.New("nothing was started: " + state.String())
	}
	return err
}

// born returns the processes that the starter started, at most two, which are children of this process, once
// the first of them is ready. After an error too, the caller must wait for the processes returned.
func (c *child) born(n int) (born [2]*os.Process, err error) {
	if err := c.control.SetReadDeadline(time.Now().Add(aheadWithin)); err != nil {
		return born, err
	}
	msg := make([]byte, maxMessage)
	for ready := false; born[0] == nil || !ready; {
		m, err := c.control.Read(msg)
		switch {
		case err != nil:
			return born, err
		case msg[0] == pidone.MsgReady:
			ready = true
		// The starter's message and the helper's may arrive in either order.
		case msg[0] == pidone.MsgBorn && m == 1+4*n:
			for i := range n {
				pid := int(binary.LittleEndian.Uint32(msg[1+4*i:]))
				if pid == 0 {
					break
				}
				born[i], err = os.FindProcess(pid)
				if err != nil {
					return born, err
				}
			}
		case born[0] != nil:
			return born, fmt.Errorf("the helper was not ready: %.200q", msg[:m])
		}
	}
	return born, c.control.SetReadDeadline(time.Time{})
}

// stale reports whether something was mounted or unmounted on the host since the helper started: it has a
// copy of the mounts of that time.
func (s *spare) stale() bool {
	// The kernel reports a change of the mount table as a priority event of mountinfo, see
	// proc_pid_mountinfo(5).
	p := []unix.PollFd{{Fd: int32(s.mounts.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(p, 0)
	return err != nil || n > 0
}

// end ends the helper and keeps its lease.
func (s *spare) end() {
	if s.child.proc != nil {
		_ = s.child.proc.Kill()
		_, _ = s.child.proc.Wait()
	}
	s.child.close()
	s.closeFiles()
}

// drop ends the helper and its lease.
func (s *spare) drop() {
	s.end()
	s.release()
}

func (s *spare) closeFiles() { closeAll([]*os.File{s.spec, s.owners, s.mounts}) }

// fits reports whether a waiting helper can run the command. The command's mounts are known by then.
func (l *launch) fits() bool {
	if len(l.files)-pidone.FirstFD > pidone.MaxSent {
		return false
	}
	if l.root && !l.cmd.Workspace.Off() && l.owners == nil {
		// The command is the FileOwner, see workspace.
		return false
	}
	// The helper's root covers /usr, and a root server's helper must not create overlays.
	return l.runner.builder != nil || !slices.ContainsFunc(l.spec.Mounts, func(m pidone.Mount) bool {
		return m.Kind != pidone.Detached && strings.HasPrefix(m.Path+"/", "/usr/") ||
			m.Kind == pidone.Lower && l.root
	})
}

// adopt turns the waiting helper into this run's. It reports false if the run needs its own.
func (l *launch) adopt(spec []byte) bool {
	s := l.spare
	l.spare = nil
	if !l.fits() || s.instruct(spec, l.files[pidone.FirstFD:]) != nil {
		s.end()
		return false
	}
	s.closeFiles()
	if l.cmd.Stdin == nil {
		_ = s.child.stdin.Close()
		s.child.stdin = nil
	}
	l.child = s.child
	return true
}

// instruct sends the helper its Spec and the descriptors that the Spec names.
func (s *spare) instruct(spec []byte, files []*os.File) error {
	if _, err := s.spec.Write(spec); err != nil {
		return err
	}
	return s.child.send(pidone.MsgSpec, files)
}

// send sends a message with descriptors and their number.
func (c *child) send(kind byte, files []*os.File) error {
	conn, err := c.control.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	var serr error
	err = conn.Write(func(fd uintptr) bool {
		serr = unix.Sendmsg(int(fd), []byte{kind, byte(len(files))}, rights, nil, unix.MSG_NOSIGNAL)
		return serr != unix.EAGAIN && serr != unix.EINTR
	})
	// Otherwise a finalizer could close one of the descriptors before it is sent.
	runtime.KeepAlive(files)
	return errors.Join(err, serr)
}

// hostPaths returns the paths of the host files that every sandbox shows.
var hostPaths = sync.OnceValue(pidone.HostPaths)

// hostView identifies the host files that every sandbox shows. A sandbox that was built before a file was
// replaced still shows the old one.
func hostView() (string, error) {
	var view []byte
	for _, path := range hostPaths() {
		// A sandbox shows the target of a link, so both a replaced link and a replaced target make the helper
		// unfit.
		for _, stat := range []func(string, *unix.Stat_t) error{unix.Lstat, unix.Stat} {
			var st unix.Stat_t
			switch err := stat(path, &st); err {
			case nil, unix.ENOENT, unix.EACCES, unix.ENOTDIR, unix.ELOOP:
				view = binary.LittleEndian.AppendUint64(view, st.Dev)
				view = binary.LittleEndian.AppendUint64(view, st.Ino)
			default:
				return "", err
			}
		}
	}
	return string(view), nil
}

// openBlocking opens a file without the runtime's poller, which would consume the file's change events.
func openBlocking(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// memoryFile returns an unnamed file in memory.
func memoryFile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(data); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
