package native

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
	"github.com/skillsd/skillsd/sandbox/staged"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

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

const (
	maxOutFiles = 256
	maxOutBytes = 16 << 20 // of all files; a sparse file may be larger than its file system

	// Inodes are limited, but nested directories with long names can still have paths of gigabytes.
	maxPath  = 4096 // bytes
	maxDepth = 64   // directories
)

// maxSkipped is how many skipped entries are named.
const maxSkipped = 16

// skip records a skipped entry of /out, and keeps the first names.
func skip(res *sandbox.Result, path string) {
	res.OutSkips++
	// A part of a name may be a part of a secret, so a long name is left out.
	if len(res.Skipped) < maxSkipped && len(path) <= 2*maxPath {
		res.Skipped = append(res.Skipped, path)
	}
}

// collect reads the regular files below dir and records the entries that it skips.
func collect(dir *os.File, res *sandbox.Result) {
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		skip(res, ".")
		return
	}
	defer root.Close()
	left := int64(maxOutBytes)
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			// One unreadable entry must not hide the others.
			skip(res, path)
			return nil
		case d.IsDir() && (len(path) > maxPath || strings.Count(path, "/") >= maxDepth):
			skip(res, path)
			return fs.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular() || len(res.Out) == maxOutFiles || !sandbox.Printable(path):
			skip(res, path)
			return nil
		}
		data, err := readFile(root, path, left)
		if err != nil {
			skip(res, path)
			return nil
		}
		left -= int64(len(data))
		res.Out = append(res.Out, sandbox.OutFile{Name: path, Data: data})
		return nil
	})
	if err != nil {
		skip(res, ".")
	}
}

func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	f, info, err := fsys.OpenIn(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Sparse files are cheap to create and expensive to read.
	if info.Size() > limit {
		return nil, &fsys.TooLongError{Limit: limit}
	}
	return fsys.ReadAll(f, limit)
}

// unpack applies the rules of collect to the files that a guest sent.
func unpack(data []byte, res *sandbox.Result) {
	if len(data) == 0 {
		return
	}
	files, skips, err := pidone.Unpack(data)
	if err != nil {
		skip(res, ".")
		return
	}
	slices.SortFunc(files, func(a, b pidone.File) int { return strings.Compare(a.Name, b.Name) })
	size := 0
	for i, f := range files {
		size += len(f.Data)
		// A guest can send any name, such as one that leads out of the directory or one that it has sent
		// before.
		if !fs.ValidPath(f.Name) || f.Name == "." || !sandbox.Printable(f.Name) ||
			i > 0 && files[i-1].Name == f.Name || len(res.Out) == maxOutFiles || size > maxOutBytes {
			skip(res, f.Name)
			continue
		}
		res.Out = append(res.Out, sandbox.OutFile{Name: f.Name, Data: f.Data})
	}
	// The guest does not send the names.
	res.OutSkips += skips
}

// cwdError returns the error for a refused working directory. If the caller named none, only the operator can
// fix it.
func (e *execution) cwdError() error {
	err := &sandbox.CwdError{Cwd: cmp.Or(e.cmd.Cwd, e.spec.Cwd), Reason: e.report.cwd}
	switch {
	// The caller may choose another directory.
	case filepath.Clean(e.spec.Cwd) != sandbox.WorkspaceDir:
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
