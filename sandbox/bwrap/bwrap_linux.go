package bwrap

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

type builder struct{ path string }

func newBuilder(path string) native.Builder { return &builder{path: path} }

func (b *builder) Setting() pidone.Setting { return pidone.Built }

func (b *builder) Enters() bool { return true }

func (b *builder) Check(cmd *sandbox.Cmd) error {
	switch {
	case b.path == "":
		return unavailable("there is no bubblewrap",
			"install it: apt-get install bubblewrap, dnf install bubblewrap or apk add bubblewrap", nil)
	case cmd.Workspace.Mode == sandbox.WorkspaceStaged && os.Geteuid() != 0:
		return unavailable("a staged workspace needs a server that is root",
			"use --sandbox native, or mount the workspace ro or rw", nil)
	}
	return native.CheckRoot(cmd)
}

// Build returns bubblewrap's command line for the sandbox. Paths chosen by the operator or the machine cannot
// be mistaken for options, because each is the operand of one.
func (b *builder) Build(p *native.Plan) (*native.Command, error) {
	self, err := p.PassProgram(native.Self)
	if err != nil {
		return nil, unavailable("the server's own binary cannot be opened", "restart the server", err)
	}
	args, err := arguments(p)
	if err != nil {
		return nil, unavailable("bubblewrap's instructions could not be written", "", err)
	}
	binds, moved, err := directories(p)
	if err != nil {
		return nil, err
	}
	args = append(args, binds...)
	args = append(args, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--clearenv")
	for _, variable := range pidone.Environ(pidone.Inside) {
		name, value, _ := strings.Cut(variable, "=")
		args = append(args, "--setenv", name, value)
	}
	// After "--", bubblewrap treats no argument as an option.
	args = append(args, "--", native.ProgramPath(self))
	program, err := p.PassProgram(b.path)
	if err != nil {
		return nil, unavailable("bubblewrap cannot be opened", "install it again", err)
	}
	if !p.Root {
		attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		return &native.Command{Path: b.path, Argv: args, Attr: attr}, nil
	}
	entry := &pidone.Entry{Mounts: moved, Path: native.ProgramPath(program), Argv: args}
	return p.Enter(entry, native.Mapped)
}

// arguments returns the options that depend only on the limits of the run.
func arguments(p *native.Plan) ([]string, error) {
	args := []string{
		Name, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
		"--as-pid-1", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--cap-drop", "ALL",
	}
	root, err := rootArguments(p)
	if err != nil {
		return nil, err
	}
	args = append(append(args, root...), "--proc", "/proc")
	for _, name := range pidone.Masked {
		f := "/proc/" + name
		if fsys.Exists(f) {
			args = append(args, "--ro-bind", "/dev/null", f)
		}
	}
	// Bubblewrap's --dev would create a terminal and more devices than a command needs.
	args = append(args, "--remount-ro", "/proc", "--perms", "0755", "--size", "1048576", "--tmpfs", "/dev")
	for _, d := range pidone.Devices {
		args = append(args, "--dev-bind", "/dev/"+d, "/dev/"+d)
	}
	links := map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}
	for name, file := range links {
		args = append(args, "--symlink", "/proc/self/fd"+file, "/dev/"+name)
	}
	// A tmpfs with the size 0 would have no limit.
	scratch := strconv.FormatInt(max(p.Limits.Scratch, 1), 10)
	args = append(args,
		"--perms", "1777", "--size", "16777216", "--tmpfs", "/dev/shm",
		"--perms", "1777", "--size", scratch, "--tmpfs", sandbox.TmpDir,
		"--perms", "0755", "--size", "16777216", "--tmpfs", sandbox.OutDir)
	return args, nil
}

// rootArguments returns the options for the content of the root that is not a mount of the plan.
func rootArguments(p *native.Plan) (args []string, err error) {
	for _, f := range p.RootFiles() {
		at := "/" + f.Path
		switch {
		case f.Link != "":
			args = append(args, "--symlink", f.Link, at)
		case f.Optional:
			args = append(args, "--ro-bind-try", at, at)
		default:
			args = append(args, "--ro-bind", at, at)
		}
	}
	if p.Cmd.Root != nil {
		return args, nil
	}
	for _, f := range pidone.Synthetic {
		fd, err := p.PassText("etc", f.Text)
		if err != nil {
			return nil, err
		}
		args = append(args, "--perms", "0644", "--file", strconv.Itoa(fd), "/"+f.Path)
	}
	return args, nil
}

// directories returns the options for the tree, the interpreter and the workspace, and the mounts that must
// first be attached where bubblewrap can find them.
func directories(p *native.Plan) (args []string, moved []pidone.Mount, err error) {
	for i := range p.Spec.Mounts {
		m := &p.Spec.Mounts[i]
		option, source := "--bind", m.Path
		if m.ReadOnly {
			option = "--ro-bind"
		}
		switch m.Kind {
		case pidone.Detached:
			source = pidone.EntryPath(len(moved))
			moved = append(moved, *m)
		case pidone.Lower:
			return nil, nil, unavailable("the workspace cannot be staged",
				"use --sandbox native, or mount the workspace ro or rw", unix.ENOTSUP)
		}
		args = append(args, option, source, m.Target)
	}
	return args, moved, nil
}

func unavailable(reason, remedy string, err error) *sandbox.UnavailableError {
	return &sandbox.UnavailableError{Reason: reason, Remedy: remedy, Err: err}
}
