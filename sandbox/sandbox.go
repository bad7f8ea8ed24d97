// Package sandbox describes one run of a command against a read-only tree, isolated, and what came of it.
//
// A [Cmd] is what is run, a [Runner] isolates it, a [Result] is what it did. Packages native, bwrap and
// runsc are runners that isolate, package host is one that does not, and package detect finds out which
// of them works on a machine.
package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills/pattern"
)

// A Runner is one isolation backend. Run is safe for concurrent use.
//
// A non-zero exit, a timeout, a reached limit and capped output are Results. An error means that the
// command did not run isolated: *[UnavailableError] if no sandbox could be built, *[CwdError] if the
// working directory was refused inside the sandbox.
type Runner interface {
	Name() string
	Run(ctx context.Context, cmd *Cmd) (*Result, error)
}

// RunAfter runs cmd, which starts only after begin has returned nil; its error is RunAfter's. A runner with
// a method RunAfter of its own makes the sandbox meanwhile: it may call begin twice, and does not if the
// command cannot be run.
func RunAfter(ctx context.Context, r Runner, cmd *Cmd, begin func() error) (*Result, error) {
	if prepares, ok := r.(interface {
		RunAfter(ctx context.Context, cmd *Cmd, begin func() error) (*Result, error)
	}); ok {
		return prepares.RunAfter(ctx, cmd, begin)
	}
	if err := begin(); err != nil {
		return nil, err
	}
	return r.Run(ctx, cmd)
}

// Enforced returns limits as r enforces them: those that it does not count, such as files that memory alone
// bounds, are 0. All limits are the same if r does not say, or is nil.
func Enforced(r Runner, l Limits) Limits {
	if says, ok := r.(interface{ Enforced(Limits) Limits }); ok {
		return says.Enforced(l)
	}
	return l
}

// Cmd is one command to run. The caller keeps ownership of Tree, Cache.Dir, Workspace.Dir and the
// directories of Packages and Root, which must stay open until Run returns.
type Cmd struct {
	Argv        []string     // Argv[0] is the interpreter's absolute real path
	Interpreter *Interpreter // what Argv[0] needs mounted; nil if everything is below /usr
	Tree        *os.File     // open directory handle of the verified tree, mounted read-only at /skill
	Name        string       // of the skill whose tree it is, see [Cmd.TreeDir]; may be empty
	Packages    []Mount      // directories of an environment, mounted read-only
	Root        *Root        // in the place of the host's /usr and all else of the host; nil is the host's
	Cache       Cache
	Workspace   Workspace
	Env         []string // the whole environment, "K=V"
	Stdin       []byte   // nil is /dev/null
	Limits      Limits
	Network     Network
	// gets a copy of both streams as they come; must be safe for concurrent use; may be nil
	Live io.Writer

	// Cwd is inside the sandbox. It is relative to /workspace if that is mounted, else to /tmp; "" is that
	// directory.
	Cwd string
}

// Check refuses a command that a runner could not start, or not as it is meant.
//
// Errors: *[UnavailableError]; *[CwdError].
func (c *Cmd) Check() error {
	if len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]) {
		return &UnavailableError{Reason: "the interpreter's path is not absolute"}
	}
	for _, s := range slices.Concat(c.Argv, c.Env) {
		if strings.IndexByte(s, 0) >= 0 {
			return &UnavailableError{Reason: "an argument or variable contains a NUL byte"}
		}
	}
	if strings.IndexByte(c.Cwd, 0) >= 0 {
		return &CwdError{Cwd: c.Cwd, Reason: "contains a NUL byte"}
	}
	if o := c.Workspace.Owner; o != (Owner{}) && (o.UID == 0 || o.UID == 1<<32-1 || o.GID == 1<<32-1) {
		return &UnavailableError{Reason: "commands cannot have root's rights in a workspace"}
	}
	if c.Root != nil {
		return c.Root.check()
	}
	return nil
}

// ownDirs are the names at the top that no root file system has in a sandbox.
var ownDirs = []string{"dev", "env", "mnt", "node_modules", "out", "proc", "skill", "sys", "tmp", "workspace",
	".layers"}

// check refuses a root file system that would cover a part of the sandbox, or lie elsewhere.
func (r *Root) check() error {
	names := slices.Collect(maps.Keys(r.Links))
	for _, m := range r.Dirs {
		name, top := strings.CutPrefix(m.At, "/")
		if !top {
			name = ""
		}
		names = append(names, name)
	}
	for _, name := range names {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") ||
			slices.Contains(ownDirs, name) {
			return &UnavailableError{Reason: fmt.Sprintf("a root file system has no place at /%.100s", name)}
		}
	}
	return nil
}

// Cache is what an interpreter made of the tree in an earlier run. The zero value mounts none.
type Cache struct {
	Dir *os.File // open directory handle, mounted read-only
	At  string   // where the interpreter looks for it, inside the sandbox: absolute, clean, below /tmp
}

// Mount is a directory that a command sees. It does not change while it is mounted.
type Mount struct {
	Dir *os.File // open directory handle
	At  string   // [EnvDir] or [NodeModulesDir], or a directory of a [Root]
}

// Root is a root file system. It has every file that commands expect of one, such as /etc/passwd.
type Root struct {
	Dirs  []Mount           // of its top, mounted read-only: At is / and a name
	Links map[string]string // of its top: targets, by names
}

// safeName is what a skill's name must be to be part of a path in the sandbox.
var safeName = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// TreeDir is where the tree lies as deep as public skills expect: [TreesDir]/NAME. The tree is mounted there
// besides [SkillDir], since programs such as find, cp and Node.js treat a link between the two differently
// from a directory. It returns SkillDir if the name is empty or could mean another path.
func (c *Cmd) TreeDir() string {
	if !safeName().MatchString(c.Name) {
		return SkillDir
	}
	return TreesDir + "/" + c.Name
}

// Paths inside the sandbox.
const (
	SkillDir     = "/skill"
	TreesDir     = "/mnt/skills/user" // has the skill's tree once more, under its name
	WorkspaceDir = "/workspace"
	TmpDir       = "/tmp"
	OutDir       = "/out"

	EnvDir         = "/env"          // an environment of packages
	NodeModulesDir = "/node_modules" // where scripts of every directory find its packages of npm
)

// WorkspaceMode is how a workspace is mounted.
type WorkspaceMode string

// The workspace modes.
const (
	WorkspaceNone   WorkspaceMode = "none"
	WorkspaceRO     WorkspaceMode = "ro"     // read-only
	WorkspaceStaged WorkspaceMode = "staged" // writes are applied after the run, under rules
	WorkspaceRW     WorkspaceMode = "rw"     // writes go straight to the host
)

// Owner is a user of the host and a group. A group 0 is nobody's: the rights of root are not given to
// commands.
type Owner struct{ UID, GID uint32 }

// Workspace is the directory an operator granted to scripts. The zero value mounts none.
type Workspace struct {
	Mode WorkspaceMode // "" is none
	Dir  *os.File      // open directory handle on the host

	// Owner is whose rights a command of a root server has in Dir, and who owns there what it makes. The zero
	// value is nobody. It has no effect on the commands of other servers.
	Owner Owner

	// Protected are slash-separated paths below Dir to which staged changes are never applied, besides
	// the names that are always protected. They have no effect in mode rw.
	Protected []string

	// Withhold reports whether bytes hold what must not be written to Dir, such as a secret that the command
	// was given. Staged changes whose content or path it finds are refused; nil finds nothing.
	Withhold func([]byte) bool

	// ReadOnly are slash-separated paths of directories below Dir that stay as they are although Mode lets
	// a command write: it changes nothing in them, and puts nothing in the place of a directory on the way
	// to them. A command is refused if one is not there or is reached through a link.
	ReadOnly []string
}

// Limits bound one run. A field that is zero or negative means its value in [DefaultLimits].
type Limits struct {
	Timeout time.Duration // wall clock
	CPU     time.Duration // processor time of one process; by default 2 s more than Timeout
	Memory  int64         // bytes, of all processes together: private, shared, and in temporary files
	PIDs    int           // processes and threads; a backend may let a command have a few more
	Files   int           // open descriptors of one process
	File    int64         // bytes, of one file written
	Scratch int64         // bytes of /tmp, and of the changes to a staged workspace
	Inodes  int           // files and directories in /tmp, and in the changes to a staged workspace
	Output  int64         // bytes kept of each stream; a run ends at 64 times as many
}

// cpuGrace is what a process may use beyond the wall clock's limit, so that the latter ends it first.
const cpuGrace = 2 * time.Second

// DefaultLimits are 60 s, 512 MiB, 64 processes and threads with 256 descriptors each, files of
// 64 MiB, 64 MiB and 16384 files of scratch space, and 1 MiB of output.
func DefaultLimits() Limits {
	return Limits{
		Timeout: time.Minute, CPU: time.Minute + cpuGrace, Memory: 512 << 20, PIDs: 64, Files: 256,
		File: 64 << 20, Scratch: 64 << 20, Inodes: 16 << 10, Output: 1 << 20,
	}
}

// Lower returns the lower of each limit of l and m, with defaults.
func (l Limits) Lower(m Limits) Limits {
	l, m = l.WithDefaults(), m.WithDefaults()
	return Limits{Timeout: min(l.Timeout, m.Timeout), CPU: min(l.CPU, m.CPU), Memory: min(l.Memory, m.Memory),
		PIDs: min(l.PIDs, m.PIDs), Files: min(l.Files, m.Files), File: min(l.File, m.File),
		Scratch: min(l.Scratch, m.Scratch), Inodes: min(l.Inodes, m.Inodes), Output: min(l.Output, m.Output)}
}

// WithDefaults returns l with every field that is not positive taken from [DefaultLimits], except CPU,
// which is then 2 s more than Timeout.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	l.Timeout = positive(l.Timeout, d.Timeout)
	l.CPU = positive(l.CPU, l.Timeout+cpuGrace)
	l.Memory = positive(l.Memory, d.Memory)
	l.PIDs = positive(l.PIDs, d.PIDs)
	l.Files = positive(l.Files, d.Files)
	l.File = positive(l.File, d.File)
	l.Scratch = positive(l.Scratch, d.Scratch)
	l.Inodes = positive(l.Inodes, d.Inodes)
	l.Output = positive(l.Output, d.Output)
	return l
}

type limit interface{ ~int | ~int64 }

func positive[T limit](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// Outcome is how a run ended.
type Outcome string

// The outcomes.
const (
	Exited      Outcome = "exited"
	Signaled    Outcome = "signaled"
	TimedOut    Outcome = "timeout"
	MemoryLimit Outcome = "memory_limit"
	PIDsLimit   Outcome = "pids_limit"
	OutputLimit Outcome = "output_limit"
	Canceled    Outcome = "canceled"
)

// Result is what a run did.
type Result struct {
	Outcome  Outcome
	ExitCode int    // if Outcome is Exited; if it is Signaled, 128 and the number of the signal
	Signal   string // e.g. "SIGSEGV", if Outcome is Signaled
	Stdout   Stream
	Stderr   Stream
	Out      []OutFile // regular files the script left in /out, sorted by name
	// entries of /out left behind: unreadable, not regular, not printable, or over a bound
	OutSkips  int
	Skipped   []string // names of the first of those, below /out; hostile, of any bytes
	Writes    []Write  // staged workspace only, in the order they were applied
	Duration  time.Duration
	Backend   string
	Limits    Limits // as enforced: 0 for what the backend does not count, see Enforced
	Mediation []byte // CfcSandboxResult of a runtime that labels its output, or nil
}

// Stream is one captured output stream, kept as a head and a tail. The bytes are the script's own: they
// may not be UTF-8, but a cut never lies inside a character.
type Stream struct {
	Head, Tail []byte // Tail is empty unless Truncated
	Total      int64  // bytes written by the script
	Truncated  bool
	SHA256     string // "sha256:<hex>" of the whole stream
}

// OutFile is a file left in /out.
type OutFile struct {
	Name string // slash-separated, below /out
	Data []byte
}

// Write is one change to a staged workspace.
type Write struct {
	Path    string // slash-separated, below /workspace
	Op      string // "write", "mkdir", "delete" or, of a directory that keeps its mode, "chmod"
	Size    int64
	Digest  string // of what was written; empty if it was refused, or if the script could not read it
	Refused string // why it was not applied; empty if it was
}

// An Interpreter is an interpreter of the host.
type Interpreter struct {
	Name    string   // as scripts ask for it, like "python3"
	Path    string   // absolute, links resolved but in a virtual environment
	Mounts  []string // host directories outside /usr to mount read-only at the same path
	Version string
	Digest  string // "sha256:<hex>" of the file at Path

	// Links are host directories to mount read-only at the paths of the links that lead to them, by these
	// paths.
	Links map[string]string
	Venv  *Venv // nil if it is not of a virtual environment
}

// With returns in with what other needs mounted, so that commands of in can start it.
func (in *Interpreter) With(other *Interpreter) *Interpreter {
	both := *in
	both.Mounts, both.Links = slices.Clone(in.Mounts), map[string]string{}
	for _, dir := range other.Mounts {
		if !slices.Contains(both.Mounts, dir) {
			both.Mounts = append(both.Mounts, dir)
		}
	}
	maps.Copy(both.Links, in.Links)
	maps.Copy(both.Links, other.Links)
	return &both
}

// A Venv is a virtual environment of Python (PEP 405), whose packages scripts find.
type Venv struct {
	Dir       string // absolute, links resolved
	Base      string // path of the Python that it was made from
	Packages  int
	Elsewhere []string // directories outside of it that it names, and scripts do not see
}

// UnavailableError is why a command could not be isolated.
type UnavailableError struct {
	Backend string
	Reason  string // public: without paths of the host
	Remedy  string // what would mend it; may be empty
	Err     error  // private cause
}

func (e *UnavailableError) Error() string { return e.Backend + ": " + e.Reason }
func (e *UnavailableError) Unwrap() error { return e.Err }

// CwdError is a working directory that cannot be entered, or lies outside /workspace, /skill, /out and /tmp.
type CwdError struct {
	Cwd, Reason string
	Operator    string // what the operator can do, if the caller cannot mend it; else empty
}

// Remedy says what would mend it.
func (e *CwdError) Remedy() string {
	return cmp.Or(e.Operator, "use an existing directory below /workspace, /skill, /out or /tmp, or "+
		"leave cwd out")
}

func (e *CwdError) Error() string { return "cwd " + e.Cwd + ": " + e.Reason }

// Printable reports whether a file name can be shown and written as JSON: it is UTF-8 and has no
// control or invisible characters.
func Printable(name string) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return utf8.ValidString(name) && !strings.ContainsFunc(name, hidden)
}
