// Package sandbox runs one argv against a read-only tree, isolated, or says why it cannot.
package sandbox

import (
	"context"
	"os"
	"time"
)

// A Runner is one isolation backend. Run is safe for concurrent use.
//
// A non-zero exit, a timeout, a broken limit and capped output are Results. An error means
// that the command did not run isolated: *[UnavailableError] when no sandbox could be built,
// *[CwdError] when the working directory was refused inside the sandbox.
type Runner interface {
	Name() string
	Run(ctx context.Context, cmd *Cmd) (*Result, error)
}

// Cmd is one command to run. The caller keeps ownership of Tree and Workspace.Dir, which must
// stay open until Run returns.
type Cmd struct {
	Argv        []string     // Argv[0] is the interpreter's absolute real path
	Interpreter *Interpreter // what Argv[0] needs mounted; nil when everything is below /usr
	Tree        *os.File     // open directory handle of the verified tree, mounted read-only at /skill
	Workspace   Workspace
	Cwd         string   // inside the sandbox; relative to /workspace when mounted, else to /tmp; empty is that directory
	Env         []string // the whole environment, "K=V"
	Stdin       []byte   // nil is /dev/null
	Limits      Limits
}

// Paths inside the sandbox.
const (
	SkillDir     = "/skill"
	WorkspaceDir = "/workspace"
	TmpDir       = "/tmp"
	OutDir       = "/out"
)

// WorkspaceMode says how a workspace is mounted.
type WorkspaceMode string

// The workspace modes.
const (
	WorkspaceNone   WorkspaceMode = "none"
	WorkspaceRO     WorkspaceMode = "ro"     // read-only
	WorkspaceStaged WorkspaceMode = "staged" // writes are applied after the run, under rules
	WorkspaceRW     WorkspaceMode = "rw"     // writes go straight to the host
)

// Workspace is the directory an operator granted to scripts. The zero value mounts none.
type Workspace struct {
	Mode WorkspaceMode // "" is none
	Dir  *os.File      // open directory handle on the host

	// Protected are slash-separated paths below Dir to which staged changes are never applied,
	// beside the names that are always protected. Mode rw does not look at it.
	Protected []string
}

// Limits bound one run. A field that is zero or negative means the one of [DefaultLimits].
type Limits struct {
	Timeout time.Duration // wall clock
	Memory  int64         // bytes, of all processes together
	PIDs    int           // processes and threads
	File    int64         // bytes, of one file written
	Output  int64         // bytes kept of each stream; a run is ended at 64 times as many
}

// DefaultLimits are 60 s, 512 MiB, 64 processes and threads, files of 64 MiB and 1 MiB of output.
func DefaultLimits() Limits {
	return Limits{Timeout: time.Minute, Memory: 512 << 20, PIDs: 64, File: 64 << 20, Output: 1 << 20}
}

// WithDefaults returns l with every field that is not positive taken from [DefaultLimits].
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	if l.Timeout > 0 {
		d.Timeout = l.Timeout
	}
	if l.Memory > 0 {
		d.Memory = l.Memory
	}
	if l.PIDs > 0 {
		d.PIDs = l.PIDs
	}
	if l.File > 0 {
		d.File = l.File
	}
	if l.Output > 0 {
		d.Output = l.Output
	}
	return d
}

// Outcome says how a run ended.
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
	Outcome   Outcome
	ExitCode  int    // valid when Outcome is Exited
	Signal    string // e.g. "SIGSEGV", when Outcome is Signaled
	Stdout    Stream
	Stderr    Stream
	Out       []OutFile // regular files the script left in /out, sorted by name
	OutSkips  int       // entries of /out left behind: no regular file, unreadable, or over a bound
	Writes    []Write   // staged workspace only, in the order they were applied
	Duration  time.Duration
	Backend   string
	Limits    Limits // as enforced
	Mediation []byte // CfcSandboxResult of a runtime that labels its output, or nil
}

// Stream is one captured output stream, kept as a head and a tail. The bytes are the script's
// own: they may be no UTF-8, but a cut never lies inside a character.
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
	Op      string // "write", "mkdir" or "delete"
	Size    int64
	Digest  string // of the new content, for "write"
	Refused string // why it was not applied; empty when applied
}

// An Interpreter is a resolved interpreter of the host.
type Interpreter struct {
	Name    string   // "bash", "sh", "python3", "node", "deno"
	Path    string   // absolute, links resolved
	Mounts  []string // host directories outside /usr to mount read-only at the same path
	Version string
	Digest  string // "sha256:<hex>" of the file at Path
}

// UnavailableError says why a command could not be isolated and what would mend it.
type UnavailableError struct {
	Backend string
	Reason  string // public: no host path
	Remedy  string
	Err     error // private cause
}

func (e *UnavailableError) Error() string { return e.Backend + ": " + e.Reason }
func (e *UnavailableError) Unwrap() error { return e.Err }

// CwdError is a working directory that does not exist or lies outside /workspace, /skill and /tmp.
type CwdError struct{ Cwd, Reason string }

func (e *CwdError) Error() string { return "cwd " + e.Cwd + ": " + e.Reason }
