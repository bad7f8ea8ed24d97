package native

import (
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

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
			// If the helper ended without reading its messages, this error precedes the helper's last
			// messages.
			for rerr = unix.ECONNRESET; rerr == unix.ECONNRESET; {
				n, oobn, _, _, rerr = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
			}
			return rerr != unix.EAGAIN && rerr != unix.EINTR
		}
		err := conn.Read(receive)
		// Messages that were sent earlier are still in the queue.
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = conn.Control(func(fd uintptr) {
				for !receive(fd) && rerr == unix.EINTR {
				}
			})
		}
		if err != nil || rerr != nil || n <= 0 {
			return
		}
		e.report.take(buf[:n], oob[:oobn])
		if buf[0] == pidone.MsgFiles {
			e.egress.serve(&e.report)
			e.arrived(oob[:oobn])
		}
	}
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

// cwdError returns the error for a refused working directory. If the caller named none, only the operator can
// fix it.
func (e *execution) cwdError() error {
	err := &sandbox.CwdError{Cwd: cmp.Or(e.cmd.Cwd, e.cwd()), Reason: e.report.cwd}
	switch {
	// The caller may choose another directory.
	case filepath.Clean(e.cwd()) != sandbox.WorkspaceDir:
	case e.root:
		err.Operator = "the user can name the owner of the project directory, --workspace-owner USER; " +
			"`skillsd doctor` shows who that is"
	default:
		err.Operator = "the user can let the server's user enter the project directory"
	}
	return err
}

// setupError returns the error for a failed step of the helper.
func (e *execution) setupError() error {
	cause := error(e.report.errno)
	reason := "cannot " + e.report.step
	switch {
	case e.report.step == pidone.EnterStep:
		return unavailable("limits could not be applied", cgroupRemedy, cause)
	case e.report.step == "start the interpreter":
		return unavailable(reason,
			"check that the interpreter and its libraries lie below /usr or in its own directory", cause)
	case strings.HasPrefix(e.report.step, "filter "):
		return unavailable(reason, "use a kernel with seccomp filters on amd64 or arm64", cause)
	case e.report.step == "mount /proc":
		return unavailable(reason, "in a container, start it with "+
			"--security-opt systempaths=unconfined (Docker) or unmask=ALL (Podman)", cause)
	case e.report.errno == unix.EPERM || e.report.errno == unix.EACCES:
		return unavailable(reason, namespaceRemedy(sysctls), cause)
	case e.report.errno == unix.ENOSYS || e.report.errno == unix.EINVAL:
		return unavailable(reason, "use a kernel of version 5.12 or later", cause)
	}
	return unavailable(reason, "", cause)
}

// neverBegan returns the error for a helper that ended without a message.
func (e *execution) neverBegan(state *os.ProcessState) error {
	if e.command == nil {
		return unavailable("the helper ended before it could report why: "+state.String(), "", nil)
	}
	private := strings.TrimSpace(string(e.stderr.Stream().Head))
	if e.command.Cause != nil {
		private = strings.Trim(private+"; "+strings.TrimSpace(e.command.Cause()), "; ")
	}
	var cause error
	if private != "" {
		cause = errors.New(private)
	}
	return unavailable("no sandbox could be made: "+state.String(), namespaceRemedy(sysctls), cause)
}

// cgroupRemedy is the advice if a process cannot be moved into its cgroup.
const cgroupRemedy = "check the server's right to use control groups"

// sysctls is the directory of the kernel's settings.
const sysctls = "/proc/sys"

// namespaceRemedy returns the advice if the system refuses user namespaces, by the setting that refuses them.
// A profile of AppArmor for one program is better than a setting for the whole machine.
func namespaceRemedy(sysctls string) string {
	is := func(name, value string) bool {
		text, err := os.ReadFile(filepath.Join(sysctls, name))
		return err == nil && strings.TrimSpace(string(text)) == value
	}
	switch {
	case is("kernel/apparmor_restrict_unprivileged_userns", "1"):
		return "AppArmor gives user namespaces only to programs with a profile: install skillsd from its " +
			".deb, which loads one for /usr/bin/skillsd; or load cmd/skillsd/deploy/apparmor of the " +
			"source, which begins with the commands"
	case is("kernel/unprivileged_userns_clone", "0"):
		return "allow user namespaces: sudo sysctl kernel.unprivileged_userns_clone=1"
	case is("user/max_user_namespaces", "0"):
		return "allow user namespaces: sudo sysctl user.max_user_namespaces=15000"
	}
	return "in a container, start it with --security-opt seccomp=unconfined --security-opt " +
		"apparmor=unconfined --security-opt systempaths=unconfined (Podman: unmask=ALL); elsewhere allow " +
		"unprivileged user namespaces"
}

// startError returns the error for a helper that could not be started.
func startError(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return unavailable("the system does not allow user namespaces", namespaceRemedy(sysctls), err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return unavailable("the limit on namespaces is reached",
			"raise user.max_user_namespaces and the other sysctls of that family", err)
	case errors.Is(err, unix.EACCES):
		return unavailable("the server's binary cannot be executed by the sandbox user",
			"give the binary mode 0755", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return unavailable("the kernel has no user namespaces",
			"use a kernel of version 5.12 or later with user namespaces", err)
	}
	return unavailable("the helper could not be started", "", err)
}
