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
	// aheadAfter is how long after a run the next helper is started: what the caller still does for its
	// answer comes first.
	aheadAfter = 10 * time.Millisecond

	// aheadWithin is how long a helper may take until it is ready.
	aheadWithin = 10 * time.Second

	// aheadFor is how long a helper waits: a server that runs nothing keeps none.
	aheadFor = 5 * time.Minute
)

// ahead has the helper that waits for the next run, if there is one.
type ahead struct {
	mu      sync.Mutex
	spare   *spare
	running int // runs that have begun and not ended
	closed  bool
	served  atomic.Int64 // runs with a result that had got one
}

// A spare is a helper that waits for its Spec. Nothing of any run is in it.
type spare struct {
	child   *child
	spec    *os.File // where its Spec is written
	uid     int      // of a root server's command, leased
	release func()   // ends the lease; whoever takes the helper calls it
	owner   owner
	owners  *os.File // the user namespace for workspaces of owner; nil if that is the zero owner
	host    string   // see hostView
	mounts  *os.File // shows whether the host's mounts have changed
	expiry  *time.Timer
}

// An owner is the user and group of a workspace's files; zero if there are no mounts that change owners.
type owner struct{ uid, gid int }

// onStarter calls do on the thread that starts helpers ahead. The kernel kills a helper when the thread that
// started it ends, so this one never does.
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

// take counts a run, which calls ended, and returns the helper that waits, if the run may have one and it is
// as a new one would be.
func (r *Runner) take(may bool) *spare {
	a := &r.ahead
	a.mu.Lock()
	a.running++
	s := a.spare
	if s == nil || !may {
		a.mu.Unlock()
		return nil
	}
	a.spare = nil
	a.mu.Unlock()
	s.expiry.Stop()
	if view, err := hostView(); err != nil || view != s.host || s.stale() {
		s.drop()
		return nil
	}
	return s
}

// ended counts a run that take counted. If a helper would have served it, the next one is started soon.
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

// provide starts a helper unless one waits. While there are runs it leaves the processors to them.
func (r *Runner) provide(files owner) {
	a := &r.ahead
	a.mu.Lock()
	needed := a.spare == nil && a.running == 0 && !a.closed
	a.mu.Unlock()
	if !needed {
		return
	}
	s, err := r.newSpare(files)
	if err != nil {
		return // the next run makes its own, and knows why it cannot if so
	}
	r.keep(s)
}

// keep has a helper wait, for a while.
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

// Prepare has a helper wait for the next run, if [Options.Ahead] is set and none waits: the first run then
// gets one too. It does nothing while there are runs, and if a helper cannot be started.
func (r *Runner) Prepare() {
	if r.opts.Ahead && r.preparable() {
		onStarter(func() { r.provide(owner{}) })
	}
}

// preparable reports whether a part of a sandbox can be made before its command is known.
func (r *Runner) preparable() bool {
	return r.builder == nil || os.Geteuid() == 0 && r.builder.Enters()
}

// Close ends the helper that waits, and no other is started. Runs work as before.
func (r *Runner) Close() {
	if r.opts.Ahead {
		r.clear(true)
	}
}

// clear ends the helper that waits, also one that is just being started, and if closed is set all others to
// come.
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

// lease leases a user for a run, if need be the one of a helper that waits.
func (r *Runner) lease() (uid int, release func(), err error) {
	uid, release, err = r.opts.UIDs.Lease()
	if err != nil && r.opts.Ahead {
		r.clear(false)
		uid, release, err = r.opts.UIDs.Lease()
	}
	return uid, release, err
}

// newSpare starts a helper and waits until it is ready.
func (r *Runner) newSpare(files owner) (_ *spare, err error) {
	// The command may have input, or none.
	l := &launch{runner: r, cmd: &sandbox.Cmd{Stdin: []byte{}}, root: os.Geteuid() == 0, ahead: true}
	s := &spare{release: func() {}, child: &child{}}
	defer func() {
		closeAll(l.opened)
		if err != nil {
			closeAll(l.ours)
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
	// A change of the host from here on makes the helper unfit.
	s.mounts, err = openBlocking("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	s.host, err = hostView()
	if err != nil {
		return nil, err
	}
	l.files, l.ours = make([]*os.File, pidone.FirstFD), make([]*os.File, 4)
	if err := l.streams(); err != nil {
		return nil, err
	}
	s.spec, err = memoryFile("spec", nil)
	if err != nil {
		return nil, err
	}
	births := []pidone.Birth{{Mark: pidone.Ahead, Files: true, Attr: l.attributes()}}
	if r.builder != nil {
		births[0].Mark, births[0].Attr = pidone.EntryAhead, l.entryAttributes(Mapped)
	}
	if files != (owner{}) {
		attr, err := ownersAttributes(s.uid, files.uid, files.gid)
		if err != nil {
			return nil, err
		}
		births = append(births, pidone.Birth{Mark: pidone.Inside, Attr: attr})
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
	closeAll(l.opened) // so that the socket ends with the helper
	l.opened = nil
	s.child.stdin, s.child.stdout, s.child.stderr, s.child.control = l.ours[0], l.ours[1], l.ours[2],
		l.ours[3]
	born, err := s.child.born(len(births))
	s.child.proc = born[0]
	if born[1] != nil {
		s.owners, _ = ownersOf(born[1]) // without it the run makes its own
		s.owner = files
	}
	return s, err
}

// startOthers has a starter start processes, with files as its descriptors.
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

// born returns the processes that the starter started, at most two, which are this process's children, once
// the first of them is ready. Also after an error, those that are known have to be waited for.
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

// stale reports whether something was mounted or unmounted on the host since the helper was started, which
// has a copy of the mounts that there were then.
func (s *spare) stale() bool {
	p := []unix.PollFd{{Fd: int32(s.mounts.Fd()), Events: unix.POLLPRI}}
	n, err := unix.Poll(p, 0)
	return err != nil || n > 0
}

// end ends the helper and its lease is as it was.
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

// fits reports whether a helper that was started ahead can take the command, whose mounts are known.
func (l *launch) fits() bool {
	native := l.runner.builder == nil
	if !l.runner.preparable() || len(l.files)-pidone.FirstFD > pidone.MaxSent {
		return false
	}
	if l.root && l.cmd.Workspace.Mode != "" && l.cmd.Workspace.Mode != sandbox.WorkspaceNone &&
		l.owners == nil {
		return false // the command is the FileOwner, see workspace
	}
	// The helper's root lies over /usr, and root's helper has no right to make overlays.
	return !native || !slices.ContainsFunc(l.spec.Mounts, func(m pidone.Mount) bool {
		return m.Kind != pidone.Detached && strings.HasPrefix(m.Path+"/", "/usr/") ||
			m.Kind == pidone.Lower && l.root
	})
}

// adopt makes the helper that waited this run's, and returns it, or nil if the run needs one of its own.
func (l *launch) adopt() *child {
	s := l.spare
	if s == nil {
		return nil
	}
	l.spare = nil
	if !l.fits() || s.instruct(l.encodeSpec(), l.files[pidone.FirstFD:]) != nil {
		s.end()
		return nil
	}
	s.closeFiles()
	if l.cmd.Stdin == nil {
		_ = s.child.stdin.Close()
		s.child.stdin = nil
	}
	return s.child
}

// instruct gives the helper its Spec and the descriptors that it names.
func (s *spare) instruct(spec []byte, files []*os.File) error {
	if _, err := s.spec.Write(spec); err != nil {
		return err
	}
	return s.child.send(pidone.MsgSpec, files)
}

// send sends a message that has descriptors with it, and their number.
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
	runtime.KeepAlive(files)
	return errors.Join(err, serr)
}

// hostView identifies the files of the host that every sandbox shows. A program that installs others in
// their place leaves the old ones in a sandbox that was made before.
func hostView() (string, error) {
	var view []byte
	for _, path := range pidone.HostPaths() {
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

// openBlocking opens a file that the runtime does not wait for: that would take its changes from others.
func openBlocking(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// memoryFile returns a file without a name.
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
