package runsc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

type builder struct{ path string }

func newBuilder(path string) native.Builder { return &builder{path: path} }

func (b *builder) Setting() pidone.Setting { return pidone.Guest }

func (b *builder) Enters() bool { return false }

func (b *builder) Check(cmd *sandbox.Cmd) error {
	mode := cmd.Workspace.Mode
	switch {
	case b.path == "":
		return unavailable("there is no runsc",
			"install gVisor's runsc where PATH finds it; `make runsc` in the source builds it", nil)
	case !cmd.Network.Off():
		return unavailable("this backend has no network proxy",
			"use --sandbox native, or grant the script no network", nil)
	case mode == sandbox.WorkspaceStaged && os.Geteuid() != 0:
		return unavailable("a staged workspace needs a server that is root",
			"use --sandbox native, or mount the workspace ro", nil)
	case mode == sandbox.WorkspaceRW && os.Geteuid() != 0:
		return unavailable("a writable workspace needs a server that is root",
			"use --sandbox native, or mount the workspace ro", nil)
	}
	return native.CheckRoot(cmd)
}

// Paths in the mount namespace of a run, below [pidone.EntryDir].
const (
	rootName   = "root"
	stateName  = "state"
	configName = "config.json"
)

// Build describes the guest as an OCI bundle. In the guest, the helper has the descriptors of its protocol;
// gVisor itself gets another one for its errors.
func (b *builder) Build(p *native.Plan) (*native.Command, error) {
	if slices.ContainsFunc(p.Spec.Mounts, func(m pidone.Mount) bool { return m.Kind == pidone.Lower }) {
		return nil, unavailable("the workspace cannot be staged",
			"use --sandbox native, or mount the workspace ro", unix.ENOTSUP)
	}
	program, err := p.PassProgram(b.path)
	if err != nil {
		return nil, unavailable("runsc cannot be opened", "install it again", err)
	}
	self, err := p.PassProgram(native.Self)
	if err != nil {
		return nil, unavailable("the server's own binary cannot be opened", "restart the server", err)
	}
	failures, err := failureLog()
	if err != nil {
		return nil, unavailable("gVisor's log could not be made", "", err)
	}
	streams, err := moveStreams(p, failures)
	if err != nil {
		return nil, errors.Join(unavailable("gVisor's streams could not be made", "", err), failures.Close())
	}
	as := identity(p, sysctls)
	files := p.RootFiles()
	config, err := bundle(p, as, files)
	if err != nil {
		return nil, errors.Join(unavailable("gVisor's instructions could not be written", "", err),
			failures.Close())
	}
	entry := &pidone.Entry{Mounts: p.Spec.Mounts, Nodes: nodes(p, as, files, config),
		Path: native.ProgramPath(program), Argv: arguments(as, self, streams)}
	command, err := p.Enter(entry, as)
	if err != nil {
		return nil, errors.Join(err, failures.Close())
	}
	// The guest does not get the descriptors, and its kernel has other inode numbers.
	p.Spec.Mounts = nil
	command.Cause = func() string { return head(failures) }
	command.Close = failures.Close
	return command, nil
}

// failureLog creates an unnamed file. gVisor appends to it, and this process reads it at explicit offsets,
// because both share one file offset.
func failureLog() (*os.File, error) {
	fd, err := unix.MemfdCreate("failures", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "failures"), nil
}

// moveStreams gives gVisor its own streams: /dev/null for input and the log for output.
func moveStreams(p *native.Plan, failures *os.File) (int, error) {
	in, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	out, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(failures.Fd())), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, errors.Join(err, in.Close())
	}
	return p.MoveStreams(in, out), nil
}

// head returns the beginning of a file's content.
func head(f *os.File) string {
	b := make([]byte, 4<<10)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return strings.ToValidUTF8(string(b[:n]), "?")
}

// arguments returns runsc's command line. self and streams are the descriptors of this program's file and of
// the first of the command's streams.
func arguments(as native.Identity, self, streams int) []string {
	args := []string{
		Name, "--root=" + pidone.EntryDir + "/" + stateName, "--network=none", "--overlay2=none",
		"--ignore-cgroups", "--host-uds=none", "--host-fifo=none", "--net-raw=false",
		"--host-settings=ignore", "--gofer-network-namespace=new", "--file-access-mounts=shared",
		"--log-fd=2",
	}
	if as == native.Mapped {
		args = append(args, "--rootless")
	} else {
		// The file server then opens files for gVisor's kernel, which runs as nobody and has no capability.
		args = append(args, "--directfs=false")
	}
	args = append(args, "run", "--bundle="+pidone.EntryDir, "--exec-fd="+strconv.Itoa(self))
	passed := []int{
		pidone.SpecFD: pidone.SpecFD, pidone.ControlFD: pidone.ControlFD,
		pidone.FirstFD: streams, pidone.FirstFD + 1: streams + 1, pidone.FirstFD + 2: streams + 2,
	}
	for guest, host := range passed {
		if guest >= pidone.SpecFD {
			args = append(args, "--pass-fd="+strconv.Itoa(host)+":"+strconv.Itoa(guest))
		}
	}
	return append(args, "run")
}

// nodes returns the files of the bundle and of the guest's root. They include all mount points.
func nodes(p *native.Plan, as native.Identity, files []pidone.RootFile, config string) []pidone.Node {
	l := []pidone.Node{
		{Kind: pidone.NodeFile, Path: configName, Text: config},
		{Kind: pidone.NodeDir, Path: stateName},
		{Kind: pidone.NodeDir, Path: rootName},
	}
	// gVisor could not create a mount point in a read-only root.
	made := map[string]bool{}
	dir := func(path string) {
		for i, c := range path {
			if c == '/' && i > 0 && !made[path[:i]] {
				made[path[:i]] = true
				l = append(l, pidone.Node{Kind: pidone.NodeDir, Path: rootName + path[:i]})
			}
		}
	}
	for _, d := range []string{"/usr", "/etc", "/proc", "/dev", "/sys", sandbox.TmpDir, sandbox.OutDir} {
		dir(d + "/")
	}
	for _, m := range p.Spec.Mounts {
		dir(m.Target + "/")
	}
	// Programs name their loader as /lib64/ld-linux…, whether /lib64 is a link or a directory.
	for _, f := range files {
		switch {
		case f.Link != "":
			l = append(l, pidone.Node{Kind: pidone.NodeLink, Path: rootName + "/" + f.Path, Text: f.Link})
		case f.Dir:
			dir("/" + f.Path + "/")
		default:
			dir("/" + f.Path)
			l = append(l, pidone.Node{Kind: pidone.NodeFile, Path: rootName + "/" + f.Path})
		}
	}
	uid, gid := inside(p, as)
	for _, f := range pidone.Synthetic {
		text := strings.ReplaceAll(f.Text, ":1000:1000:", fmt.Sprintf(":%d:%d:", uid, gid))
		text = strings.ReplaceAll(text, ":x:1000:\n", fmt.Sprintf(":x:%d:\n", gid))
		l = append(l, pidone.Node{Kind: pidone.NodeFile, Path: rootName + "/" + f.Path, Text: text})
	}
	return l
}

// sysctls is the directory of the kernel's settings.
const sysctls = "/proc/sys"

// identity returns the least privileged user as which gVisor works. Only root can write files of other users,
// and create a user namespace on a machine that does not allow that to other users.
func identity(p *native.Plan, sysctls string) native.Identity {
	writes := p.Cmd.Workspace.Mode == sandbox.WorkspaceRW || p.Cmd.Workspace.Mode == sandbox.WorkspaceStaged
	if p.Root && (writes || forRootAlone(sysctls)) {
		return native.Kept
	}
	return native.Mapped
}

// forRootAlone reports whether the kernel's settings give users other than root no user namespaces, or
// useless ones.
func forRootAlone(sysctls string) bool {
	refusing := map[string]string{"unprivileged_userns_clone": "0",
		"apparmor_restrict_unprivileged_userns": "1"}
	for name, refuses := range refusing {
		if set, err := os.ReadFile(sysctls + "/kernel/" + name); err == nil &&
			strings.TrimSpace(string(set)) == refuses {
			return true
		}
	}
	return false
}

// inside returns the guest's user and group. If the guest may write files of the host, they are the owner and
// group of these files on the host.
func inside(p *native.Plan, as native.Identity) (uid, gid int) {
	if as == native.Kept {
		return p.User()
	}
	return 1000, 1000
}

func unavailable(reason, remedy string, err error) *sandbox.UnavailableError {
	return &sandbox.UnavailableError{Reason: reason, Remedy: remedy, Err: err}
}
