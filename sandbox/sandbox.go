// Package sandbox describes isolated runs of commands against a read-only tree, and their results.
//
// A [Cmd] is a command, a [Runner] isolates it, and a [Result] is its result. Packages native, bwrap and
// runsc are runners that isolate; package host is one that does not. Package detect determines which of them
// work on a machine.
package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills/pattern"
)

// A Runner is an isolation backend. Run is safe for concurrent use.
//
// A non-zero exit code, a timeout, a reached limit and truncated output are Results. An error means that the
// command did not run in isolation: *[UnavailableError] if no sandbox could be built, *[CwdError] if the
// working directory was refused inside the sandbox.
type Runner interface {
	Name() string
	Run(ctx context.Context, cmd *Cmd) (*Result, error)
}

// RunAfter runs cmd, which starts only after begin has returned nil; an error of begin is returned. If the
// runner has a method RunAfter, that builds the sandbox before it calls begin. It may call begin twice, and
// does not call it if the command cannot be run.
func RunAfter(ctx context.Context, r Runner, cmd *Cmd, begin func() error) (*Result, error) {
	if builder, ok := r.(interface {
		RunAfter(ctx context.Context, cmd *Cmd, begin func() error) (*Result, error)
	}); ok {
		return builder.RunAfter(ctx, cmd, begin)
	}
	if err := begin(); err != nil {
		return nil, err
	}
	return r.Run(ctx, cmd)
}

// Enforced returns limits as r enforces them: a limit that r does not enforce is 0, such as the number of
// files if only memory bounds it. If r is nil or has no such method, it returns l unchanged.
func Enforced(r Runner, l Limits) Limits {
	if limiter, ok := r.(interface{ Enforced(Limits) Limits }); ok {
		return limiter.Enforced(l)
	}
	return l
}

// Watch ends a run from outside. It calls end with [Canceled] when ctx ends or with [TimedOut] after timeout,
// whichever is first, and returns. Once done is closed, it returns without a call.
func Watch(ctx context.Context, timeout time.Duration, done <-chan struct{}, end func(Outcome)) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-ctx.Done():
		end(Canceled)
	case <-timer.C:
		end(TimedOut)
	}
}

// Cmd is a command to be run. The caller keeps ownership of Tree, Cache.Dir, Workspace.Dir and the
// directories of Packages and Root, which must stay open until Run returns.
type Cmd struct {
	Argv        []string     // Argv[0] is the interpreter's absolute path without links
	Interpreter *Interpreter // the mounts that Argv[0] needs; nil if everything is below /usr
	Tree        *os.File     // open directory of the verified tree, mounted read-only at /skill
	Name        string       // of the tree's skill, see [Cmd.TreeDir]; may be empty
	Packages    []Mount      // directories of an environment, mounted read-only
	Root        *Root        // replaces /usr and all other files of the host; nil means the host's
	Cache       Cache
	Workspace   Workspace
	Env         []string // the whole environment, as "K=V"
	Stdin       []byte   // nil means /dev/null
	Limits      Limits
	Network     Network
	// Live gets a copy of both streams as they arrive. It must be safe for concurrent use; nil means none.
	Live io.Writer

	// Cwd is the working directory in the sandbox. It is relative to /workspace if that is mounted, otherwise
	// to /tmp; "" is that directory itself.
	Cwd string
}

// Check returns an error if no runner could start the command as described.
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
	// To setresuid(2) and chown(2), the ID -1 means no change, so the command would stay root.
	if o := c.Workspace.Owner; o != (Owner{}) && (o.UID == 0 || o.UID == 1<<32-1 || o.GID == 1<<32-1) {
		return &UnavailableError{Reason: "commands cannot have root's rights in a workspace"}
	}
	if c.Root != nil {
		return c.Root.check()
	}
	return nil
}

// IsOwnDir reports whether a sandbox has a top-level directory of its own with this name. A root file system
// cannot have it too.
func IsOwnDir(name string) bool {
	switch name {
	case "dev", "env", "mnt", "node_modules", "out", "proc", "skill", "sys", "tmp", "workspace", ".layers":
		return true
	}
	return false
}

// check returns an error if the root file system would cover a part of the sandbox or has a mount that is not
// at the top level.
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
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || IsOwnDir(name) {
			return &UnavailableError{Reason: fmt.Sprintf("a root file system cannot have /%.100s", name)}
		}
	}
	return nil
}

// Cache is an interpreter's cache of the tree from an earlier run. The zero value mounts none.
type Cache struct {
	Dir *os.File // open directory, mounted read-only
	At  string   // path in the sandbox where the interpreter expects it: absolute, clean, below /tmp
}

// Mount is a directory to be mounted. It must not change while it is mounted.
type Mount struct {
	Dir *os.File // open directory
	At  string   // [EnvDir] or [NodeModulesDir], or a directory of a [Root]
}

// Root is a root file system. It must have all files that commands expect, such as /etc/passwd.
type Root struct {
	Dirs  []Mount           // top-level directories, mounted read-only: At is / and a name
	Links map[string]string // targets of top-level links, by name
}

// safeName matches skill names that can be part of a path in the sandbox.
var safeName = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// TreeDir returns the second path at which the tree is mounted, [TreesDir]/NAME, which is as deep as public
// skills expect. It is a mount and not a link to [SkillDir], because programs such as find, cp and Node.js
// treat links differently. It returns SkillDir if the name is empty or could mean another path.
func (c *Cmd) TreeDir() string {
	if !safeName().MatchString(c.Name) {
		return SkillDir
	}
	return TreesDir + "/" + c.Name
}

// Paths inside the sandbox.
const (
	SkillDir     = "/skill"
	TreesDir     = "/mnt/skills/user" // the skill's tree is also here, under its name
	WorkspaceDir = "/workspace"
	TmpDir       = "/tmp"
	OutDir       = "/out"

	EnvDir         = "/env"          // an environment of packages
	NodeModulesDir = "/node_modules" // where scripts in every directory find its npm packages
)

// WorkspaceMode is the way a workspace is mounted.
type WorkspaceMode string

// The workspace modes.
const (
	WorkspaceNone   WorkspaceMode = "none"
	WorkspaceRO     WorkspaceMode = "ro"     // read-only
	WorkspaceStaged WorkspaceMode = "staged" // changes are applied after the run, under rules
	WorkspaceRW     WorkspaceMode = "rw"     // writes go directly to the host
)

// Owner is a user and a group on the host. Group 0 means no group: commands never get root's rights.
type Owner struct{ UID, GID uint32 }

// Workspace is the directory that an operator granted to scripts. The zero value mounts none.
type Workspace struct {
	Mode WorkspaceMode // "" means none
	Dir  *os.File      // open directory on the host

	// Owner is the user whose rights commands of a root server have in Dir, and the owner of the files that
	// they create there. The zero value means the user nobody. It has no effect under other servers.
	Owner Owner

	// Protected are slash-separated paths below Dir to which staged changes are never applied, in addition to
	// the names that are always protected. They have no effect in mode rw.
	Protected []string

	// Withhold reports whether bytes contain data that must not be written to Dir, such as a secret of the
	// command. Staged changes are refused if it reports true for their content or path; nil refuses none.
	Withhold func([]byte) bool

	// Keeper keeps what staged changes replace or delete; nil keeps nothing. If it fails, the changes are
	// applied all the same.
	Keeper Keeper

	// ReadOnly are slash-separated paths of directories below Dir that stay read-only in writable modes. A
	// command can neither change them nor replace one of their parents. A command is refused if one of them
	// does not exist or is reached through a link.
	ReadOnly []string
}

// Off reports whether the command has no workspace.
func (w Workspace) Off() bool { return w.Mode == "" || w.Mode == WorkspaceNone }

// ProxyAddr is the address of the proxy in a sandbox with a network; it is the only way out. Commands find it
// by environment variables, which the caller sets.
const ProxyAddr = "127.0.0.1:3128"

// Network is the network access of a command. The zero value means none. A backend must refuse any other
// value with *[UnavailableError] if it cannot prevent further access.
type Network struct {
	// Proxy serves the command's connections to [ProxyAddr]. Nil means no network.
	Proxy NetworkProxy
}

// Off reports whether the command has no network.
func (n Network) Off() bool { return n.Proxy == nil }

// NetworkProxy decides about each connection and makes it.
type NetworkProxy interface {
	// Serve accepts connections until ctx ends. When it returns, it has closed l and every connection that it
	// accepted or made, and all its goroutines have ended.
	Serve(ctx context.Context, l net.Listener)
}

// Limits bound one run. A field that is zero or negative means the value in [DefaultLimits].
type Limits struct {
	Timeout time.Duration // wall clock
	CPU     time.Duration // processor time of one process; by default 2 s more than Timeout
	Memory  int64         // bytes used by all processes together: private, shared, and in temporary files
	PIDs    int           // processes and threads; a backend may allow a few more
	Files   int           // open descriptors of one process
	File    int64         // bytes of one file that is written
	Scratch int64         // bytes of /tmp, and of the changes to a staged workspace
	Inodes  int           // files and directories in /tmp, and in the changes to a staged workspace
	Output  int64         // bytes kept of each stream; a run is ended at 64 times as many
}

// cpuGrace is the default difference between CPU and Timeout, so that the wall clock ends a run first.
const cpuGrace = 2 * time.Second

// DefaultLimits returns 60 s, 512 MiB, 64 processes and threads with 256 descriptors each, files of 64 MiB,
// 64 MiB and 16384 files of scratch space, and 1 MiB of output.
func DefaultLimits() Limits {
	return Limits{
		Timeout: time.Minute, CPU: time.Minute + cpuGrace, Memory: 512 << 20, PIDs: 64, Files: 256,
		File: 64 << 20, Scratch: 64 << 20, Inodes: 16 << 10, Output: 1 << 20,
	}
}

// Lower returns the lower of each limit of l and m, with defaults applied.
func (l Limits) Lower(m Limits) Limits {
	l, m = l.WithDefaults(), m.WithDefaults()
	return Limits{Timeout: min(l.Timeout, m.Timeout), CPU: min(l.CPU, m.CPU), Memory: min(l.Memory, m.Memory),
		PIDs: min(l.PIDs, m.PIDs), Files: min(l.Files, m.Files), File: min(l.File, m.File),
		Scratch: min(l.Scratch, m.Scratch), Inodes: min(l.Inodes, m.Inodes), Output: min(l.Output, m.Output)}
}

// WithDefaults returns l with every field that is not positive set to its value in [DefaultLimits], except
// CPU, which is then 2 s more than Timeout.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	l.Timeout = cmp.Or(max(l.Timeout, 0), d.Timeout)
	l.CPU = cmp.Or(max(l.CPU, 0), l.Timeout+cpuGrace)
	l.Memory = cmp.Or(max(l.Memory, 0), d.Memory)
	l.PIDs = cmp.Or(max(l.PIDs, 0), d.PIDs)
	l.Files = cmp.Or(max(l.Files, 0), d.Files)
	l.File = cmp.Or(max(l.File, 0), d.File)
	l.Scratch = cmp.Or(max(l.Scratch, 0), d.Scratch)
	l.Inodes = cmp.Or(max(l.Inodes, 0), d.Inodes)
	l.Output = cmp.Or(max(l.Output, 0), d.Output)
	return l
}

// Outcome is the way a run ended.
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

// Result is the result of a run.
type Result struct {
	Outcome  Outcome
	ExitCode int    // if Outcome is Exited; if it is Signaled, 128 plus the number of the signal
	Signal   string // e.g. "SIGSEGV", if Outcome is Signaled
	Stdout   Stream
	Stderr   Stream
	Out      []OutFile // regular files the script left in /out, sorted by name
	// OutSkips is the number of skipped entries in /out: unreadable, not regular, not printable, or beyond a
	// limit.
	OutSkips  int
	Skipped   []string // names of the first skipped entries, below /out; hostile, arbitrary bytes
	Writes    []Write  // changes to a staged workspace, in the order of application
	Kept      *Kept    // what the Keeper of the workspace has of them; nil if nothing was to be kept
	Duration  time.Duration
	Backend   string
	Limits    Limits // as enforced: 0 for a limit that the backend does not enforce, see Enforced
	Mediation []byte // CfcSandboxResult of a runtime that labels its output, or nil
}

// Stream is a captured output stream, kept as a head and a tail. The bytes are the script's own and may not
// be UTF-8, but no character is cut.
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
	Digest  string // digest of the file; empty if it was refused, or if the script could not read it
	Refused string // why it was not applied; empty if it was
}

// An Interpreter is an interpreter on the host.
type Interpreter struct {
	Name    string   // the name that scripts use, such as "python3"
	Path    string   // absolute; links are resolved except in a virtual environment
	Mounts  []string // host directories outside /usr to mount read-only at the same path
	Version string
	Digest  string // "sha256:<hex>" of the file at Path

	// Links are host directories to mount read-only at the paths of links to them; the keys are these paths.
	Links map[string]string
	Venv  *Venv // nil without a virtual environment
}

// With returns a copy of in that also has the mounts of other, so that commands can start other too.
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

// A Venv is a Python virtual environment (PEP 405), whose packages scripts can import.
type Venv struct {
	Dir       string // absolute, links resolved
	Base      string // path of the Python from which it was created
	Packages  int
	Elsewhere []string // directories outside it that its .pth files name and scripts do not see
}

// UnavailableError means that a command could not be isolated.
type UnavailableError struct {
	Backend string
	Reason  string // public: contains no host paths
	Remedy  string // advice; may be empty
	Err     error  // private cause
}

func (e *UnavailableError) Error() string { return e.Backend + ": " + e.Reason }
func (e *UnavailableError) Unwrap() error { return e.Err }

// CwdError means that a working directory cannot be entered, or is not in /workspace, /skill, /out or /tmp.
type CwdError struct {
	Cwd, Reason string
	Operator    string // advice for the operator if the caller cannot fix it; else empty
}

// Remedy returns the advice.
func (e *CwdError) Remedy() string {
	return cmp.Or(e.Operator, "use an existing directory below /workspace, /skill, /out or /tmp, or "+
		"leave cwd out")
}

func (e *CwdError) Error() string { return "cwd " + e.Cwd + ": " + e.Reason }

// Printable reports whether a file name can be displayed and written as JSON: it is UTF-8 without control or
// invisible characters.
func Printable(name string) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return utf8.ValidString(name) && !strings.ContainsFunc(name, hidden)
}

// outputFactor is how many times its limit a stream may have before its run is ended.
const outputFactor = 64

// Capture keeps the first two thirds and the last third of a stream's limit, in bytes, and computes the size
// and hash of the whole stream. It is not safe for concurrent use.
type Capture struct {
	limit   int64
	headCap int
	head    []byte
	tail    []byte // a ring buffer once it is full
	next    int    // next position in the ring
	total   int64
	sum     hash.Hash
	live    io.Writer // nil for none
}

// NewCapture returns a capture that keeps limit bytes; limit must be positive. Everything written to it is
// also written to live, which may be nil.
func NewCapture(limit int64, live io.Writer) *Capture {
	return &Capture{limit: limit, headCap: int(limit - limit/3), sum: sha256.New(), live: live}
}

// Write adds the next bytes of the stream. It never fails.
func (c *Capture) Write(p []byte) (int, error) {
	written := len(p)
	if c.live != nil && written > 0 {
		// The result is complete without the copy, so its error must not end the run.
		_, _ = c.live.Write(p)
	}
	c.total += int64(len(p))
	c.sum.Write(p)
	if n := min(c.headCap-len(c.head), len(p)); n > 0 {
		c.head = append(c.head, p[:n]...)
		p = p[n:]
	}
	size := int(c.limit) - c.headCap
	if len(p) > size {
		p = p[len(p)-size:]
	}
	if n := min(size-len(c.tail), len(p)); n > 0 {
		c.tail = append(c.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(c.tail[c.next:], p)
		c.next = (c.next + n) % size
		p = p[n:]
	}
	return written, nil
}

// Drain reads a pipe until its end. After the pipe's deadline, it reads the bytes that are still in it.
// Beyond 64 times the capture's limit it stops and calls end with [OutputLimit].
func (c *Capture) Drain(pipe *os.File, end func(Outcome)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := pipe.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = readNow(pipe, buf)
		}
		_, _ = c.Write(buf[:max(n, 0)])
		// The product could overflow.
		if (c.total-1)/outputFactor >= c.limit {
			end(OutputLimit)
			return
		}
		if err != nil {
			return
		}
	}
}

// Stream returns the captured stream for a [Result].
func (c *Capture) Stream() Stream {
	s := Stream{
		Total:     c.total,
		Truncated: c.total > c.limit,
		SHA256:    "sha256:" + hex.EncodeToString(c.sum.Sum(nil)),
	}
	tail := append(c.tail[c.next:len(c.tail):len(c.tail)], c.tail[:c.next]...)
	if !s.Truncated {
		s.Head = append(c.head, tail...)
		return s
	}
	s.Head, s.Tail = cutEnd(c.head), cutStart(tail)
	return s
}

// cutEnd removes an incomplete character from the end of b.
func cutEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// cutStart removes the rest of a character from the start of b.
func cutStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}
