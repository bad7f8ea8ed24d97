package native

import (
	"debug/elf"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// A Builder lets another program build the sandbox. The helper of this package is then started inside it as
// process 1. The helper checks that the sandbox is as required, drops the remaining privileges and starts the
// command; this package supervises both. A Builder must be safe for concurrent use.
type Builder interface {
	// Check returns an error, before anything is created, if the program could not isolate the command as
	// required.
	Check(cmd *sandbox.Cmd) error

	// Setting returns the setting that the helper finds.
	Setting() pidone.Setting

	// Enters reports whether Build ends with a call of [Plan.Enter] as [Mapped] if the server is root.
	Enters() bool

	// Build returns the command that starts the program. That command's Close removes everything else that
	// Build created.
	Build(p *Plan) (*Command, error)
}

// A Command starts the program of a [Builder].
type Command struct {
	Path string
	Argv []string
	Env  []string
	Attr *syscall.SysProcAttr // must set Setsid: the process group is killed with the program

	// Cause returns the program's own error output, which is private and at most a few kilobytes. It may be
	// nil.
	Cause func() string

	// Close removes everything that was created for this run. It is called once, after all processes of the
	// run have ended. It may be nil.
	Close func() error
}

// A Plan is one run, which a [Builder] reads and extends.
type Plan struct {
	Cmd    *sandbox.Cmd
	Limits sandbox.Limits
	Spec   *pidone.Spec // Mounts is set, with descriptor numbers of the started program
	Root   bool         // this process is root

	launch *launch
}

// RootFiles returns the content of the root besides mounts and synthetic files: what a sandbox shows of the
// host or, of the command's own root file system, the links, because its directories are mounts.
func (p *Plan) RootFiles() []pidone.RootFile {
	own := p.Cmd.Root
	if own == nil {
		return pidone.HostFiles()
	}
	var links []pidone.RootFile
	for name, target := range own.Links {
		links = append(links, pidone.RootFile{Path: name, Link: target})
	}
	return links
}

// pass passes f to the started program and returns its descriptor number there. This process's f is closed
// afterwards.
func (p *Plan) pass(f *os.File) int {
	p.launch.opened = append(p.launch.opened, f)
	p.launch.files = append(p.launch.files, f)
	return len(p.launch.files) - 1
}

// PassText passes a file with the given text to the started program, positioned at its beginning.
func (p *Plan) PassText(name, text string) (int, error) {
	f, err := memoryFile(name, []byte(text))
	if err != nil {
		return 0, err
	}
	n := p.pass(f)
	_, err = f.Seek(0, 0)
	return n, err
}

// Self is the path of this program's own executable, which is also the helper's.
const Self = "/proc/self/exe"

// PassProgram passes the executable of a program to the started program, which can then execute it even if
// its mount namespace does not show it.
func (p *Plan) PassProgram(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return p.pass(os.NewFile(uintptr(fd), path)), nil
}

// ProgramPath returns the path by which a program can open its descriptor fd.
func ProgramPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// MoveStreams makes in and out the standard streams of the started program. It passes the command's streams
// as three consecutive descriptors and returns the number of the first.
func (p *Plan) MoveStreams(in, out *os.File) int {
	l := p.launch
	first := len(l.files)
	command := slices.Clone(l.files[:3])
	if command[0] == nil {
		command[0] = in
	}
	l.files = append(l.files, command...)
	l.files[0], l.files[1], l.files[2] = in, out, out
	l.opened = append(l.opened, in, out)
	return first
}

// User returns the host user and group of a root server's command.
func (p *Plan) User() (uid, gid int) { return p.launch.uid, p.launch.gid }

// CheckRoot returns an error if the command has a root file system and this program, which is process 1 in
// the sandbox, needs shared libraries from it: whether it starts must not depend on the content of an image.
func CheckRoot(cmd *sandbox.Cmd) error {
	if cmd.Root == nil || static() {
		return nil
	}
	return unavailable("this program needs shared libraries, which a root file system need not have",
		"use --sandbox native, or a skillsd that was built with CGO_ENABLED=0, as releases are", nil)
}

// static reports whether this program is statically linked.
var static = sync.OnceValue(func() bool {
	program, err := elf.Open(Self)
	if err != nil {
		return false
	}
	defer program.Close()
	return !slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
})

// Identity is the host user of the program of [Plan.Enter].
type Identity int

// The identities. A server that is not root can only use Mapped, with its own user as the command's user.
const (
	// Mapped is the command's user and group, mapped to root in a user namespace of the program's own. If the
	// server is root, root owns that namespace, so another process of the command's user has no rights in it.
	Mapped Identity = iota
	Kept            // root, like the server
)

// entryAttributes returns the namespaces of a process that enters, and its user in them.
func (l *launch) entryAttributes(as Identity) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Setsid: true, Pdeathsig: syscall.SIGKILL}
	if as == Mapped || !l.root {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: l.uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: l.gid, Size: 1}}
		// Without privileges, the kernel accepts a map of groups only if setgroups is denied, see
		// user_namespaces(7).
		attr.GidMappingsEnableSetgroups = l.root
		// The supplementary groups of root must not be inherited.
		attr.Credential = &syscall.Credential{NoSetGroups: !l.root}
	}
	return attr
}

// Enter returns the command that runs the program of n in a mount namespace of its own, with the mounts and
// files that n names. The namespace ends with the program.
func (p *Plan) Enter(n *pidone.Entry, as Identity) (*Command, error) {
	attr := p.launch.entryAttributes(as)
	fd, err := p.PassText("entry", string(n.Encode()))
	if err != nil {
		return nil, unavailable("the entry's instructions could not be written", "", err)
	}
	return &Command{
		Path: Self, Argv: []string{"sandbox-enter"}, Attr: attr,
		Env: pidone.Environ(pidone.EntryMarker(fd)),
	}, nil
}
