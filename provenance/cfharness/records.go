package cfharness

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// Source is the cause of an activation.
type Source string

// The sources of activations.
const (
	SourcePreload   Source = "cli-preload"
	SourceModel     Source = "model-tool"
	SourceUser      Source = "user-explicit"
	SourceInherited Source = "subagent-inherit"
)

// ParseSource parses the source of an activation.
//
// Errors: provenance.ErrInvalid.
func ParseSource(s string) (Source, error) {
	all := []Source{SourcePreload, SourceModel, SourceUser, SourceInherited}
	if !slices.Contains(all, Source(s)) {
		return "", fmt.Errorf("%w: the source of an activation is one of %q", provenance.ErrInvalid, all)
	}
	return Source(s), nil
}

// RuleResumeReload is the rule of activations by a server that resumed a session. Their instructions were not
// shown.
const RuleResumeReload = "operator_resume_reload"

// Status is the result of a read or a run. A script that started has the status executed, with any outcome.
type Status string

// The statuses of reads (read, binary, error) and runs (executed, error).
const (
	StatusRead     Status = "read"
	StatusBinary   Status = "binary"
	StatusExecuted Status = "executed"
	StatusError    Status = "error"
)

// PromptRoleContext is the prompt role of all text from skills.
const PromptRoleContext = "context"

// RecordError is the reason for the status error of a read or a run.
type RecordError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Activations is the content of skill-activations.json; its rows are [Activation].
type Activations struct {
	Type        string                `json:"type"`
	Version     int                   `json:"version"`
	GeneratedAt Timestamp             `json:"generatedAt"`
	Activations List[json.RawMessage] `json:"activations"`
}

// Activation is the row of a skill.activated event: a skill whose instructions were shown.
type Activation struct {
	Name             string               `json:"name"`
	Source           Source               `json:"source"`
	RunID            string               `json:"runId"`
	SkillPath        string               `json:"skillPath"` // host path of SKILL.md
	SkillDir         string               `json:"skillDir"`  // host path
	SandboxSkillPath string               `json:"sandboxSkillPath"`
	SandboxSkillDir  string               `json:"sandboxSkillDir"`
	Digest           digest.Digest        `json:"digest"` // of the SKILL.md as shown
	ActivatedAt      Timestamp            `json:"activatedAt"`
	CFCPromptRole    string               `json:"cfcPromptRole"` // PromptRoleContext
	Skillsd          *ActivationExtension `json:"skillsd,omitempty"`
}

// SentBy reports whether the instructions were sent with e, the event of the activation. For a skill
// activated by the server itself they are sent later, when the model asks for them.
func (a *Activation) SentBy(e *provenance.Event) bool {
	byItself := a.Source == SourcePreload || a.Source == SourceInherited
	if byItself && (a.Skillsd == nil || !a.Skillsd.Sent) || e.Detail != string(a.Source) {
		return false
	}
	if a.Skillsd != nil && a.Skillsd.Repeated {
		return false
	}
	var decision PolicyDecision
	if json.Unmarshal(e.Decision, &decision) != nil {
		return true
	}
	return !slices.Contains(decision.ReasonCodes, RuleResumeReload)
}

// ActivationExtension is the skillsd key of an Activation.
type ActivationExtension struct {
	Path         string        `json:"path,omitempty"` // skill path
	TreeDigest   digest.Digest `json:"treeDigest,omitempty"`
	Origin       *SkillOrigin  `json:"origin,omitempty"`       // nil if not known
	TaskID       string        `json:"taskId,omitempty"`       // the turn, if the client names one
	HandleDigest digest.Digest `json:"handleDigest,omitempty"` // of the activation handle, never the handle
	ExpiresAt    *Timestamp    `json:"expiresAt,omitempty"`
	Repeated     bool          `json:"repeated,omitempty"` // the same tree was shown before
	Sent         bool          `json:"sent,omitempty"`     // sent to a caller that named the source
	// Suspicious lists the codes of warnings about texts of the skill: injection-phrase, invisible-text.
	Suspicious []string `json:"suspicious,omitempty"`
}

// FileFacts compares the file of a read or a run with the registry. Pointers are nil if the key is absent.
type FileFacts struct {
	SandboxResourcePath   string        `json:"sandboxResourcePath,omitempty"`
	RegistryDigest        digest.Digest `json:"registryDigest,omitempty"`
	ObservedDigest        digest.Digest `json:"observedDigest,omitempty"`
	DigestMatchesRegistry *bool         `json:"digestMatchesRegistry,omitempty"`
	RegistrySizeBytes     *int64        `json:"registrySizeBytes,omitempty"`
	ObservedSizeBytes     *int64        `json:"observedSizeBytes,omitempty"`
}

// ResourceReads is the content of skill-resource-reads.json; its rows are [ResourceRead].
type ResourceReads struct {
	Type        string                `json:"type"`
	Version     int                   `json:"version"`
	GeneratedAt Timestamp             `json:"generatedAt"`
	Reads       List[json.RawMessage] `json:"reads"`
}

// ResourceRead is the row of a skill.resource_read event. Pointers are nil if the key is absent.
type ResourceRead struct {
	Type          string    `json:"type"`
	OutputID      string    `json:"outputId"`
	RunID         string    `json:"runId"`
	SkillName     string    `json:"skillName"`
	Path          string    `json:"path"`
	Status        Status    `json:"status"`
	ReadAt        Timestamp `json:"readAt"`
	CFCPromptRole string    `json:"cfcPromptRole"`
	Kind          string    `json:"kind,omitempty"`
	ResourcePath  string    `json:"resourcePath,omitempty"` // host path, not on errors
	FileFacts
	ContentKind string                   `json:"contentKind,omitempty"` // text or binary
	MaxBytes    *int64                   `json:"maxBytes,omitempty"`    // status read only
	Truncated   *bool                    `json:"truncated,omitempty"`
	Diagnostics List[RegistryDiagnostic] `json:"diagnostics"`
	Error       *RecordError             `json:"error,omitempty"`
	Skillsd     *ReadExtension           `json:"skillsd,omitempty"`
}

// ReadExtension is the skillsd key of a ResourceRead and a ReadOutput.
type ReadExtension struct {
	Via        string        `json:"via,omitempty"` // tool or method of the call
	Path       string        `json:"path,omitempty"`
	TreeDigest digest.Digest `json:"treeDigest,omitempty"`
	TaskID     string        `json:"taskId,omitempty"`
	Offset     *int64        `json:"offset,omitempty"` // first byte shown
	Bytes      *int64        `json:"bytes,omitempty"`  // bytes shown
	Shown      digest.Digest `json:"shown,omitempty"`  // of the bytes shown, unless they are the whole file
}

// ScriptExecutions is the content of skill-script-executions.json; its rows are [ScriptExecution].
type ScriptExecutions struct {
	Type        string                `json:"type"`
	Version     int                   `json:"version"`
	GeneratedAt Timestamp             `json:"generatedAt"`
	Executions  List[json.RawMessage] `json:"executions"`
}

// ScriptExecution is the row of a skill.script_executed event. Pointers and slices are nil if the key is
// absent; an empty non-nil slice is encoded as [].
type ScriptExecution struct {
	Type            string    `json:"type"`
	OutputID        string    `json:"outputId"`
	RunID           string    `json:"runId"`
	SkillName       string    `json:"skillName"`
	Path            string    `json:"path"`
	Status          Status    `json:"status"`
	ExecutedAt      Timestamp `json:"executedAt"`                // start of the call
	ExecutionTarget string    `json:"executionTarget,omitempty"` // sandbox or host
	Runtime         string    `json:"runtime,omitempty"`
	Argv            []string  `json:"argv,omitzero"`
	Args            []string  `json:"args,omitzero"` // declared secrets redacted
	CWD             string    `json:"cwd,omitempty"`
	ResourcePath    string    `json:"resourcePath,omitempty"` // host path
	FileFacts
	ExitCode    *int                     `json:"exitCode,omitempty"` // for a signal: 128 plus its number
	Diagnostics List[RegistryDiagnostic] `json:"diagnostics"`
	Error       *RecordError             `json:"error,omitempty"`
	Skillsd     *RunExtension            `json:"skillsd,omitempty"`
}

// Outcome is how a started script ended.
type Outcome string

// The outcomes of runs.
const (
	OutcomeExited      Outcome = "exited"
	OutcomeSignaled    Outcome = "signaled"
	OutcomeTimeout     Outcome = "timeout"
	OutcomeMemoryLimit Outcome = "memory_limit"
	OutcomePidsLimit   Outcome = "pids_limit"
	OutcomeOutputLimit Outcome = "output_limit"
	OutcomeCanceled    Outcome = "canceled"

	// OutcomeFailed is the only failure that the caller of an opaque run sees. It is never recorded.
	OutcomeFailed Outcome = "failed"
)

// RunExtension is the skillsd key of a ScriptExecution and a RunOutput.
type RunExtension struct {
	Outcome    Outcome       `json:"outcome"`
	Signal     string        `json:"signal,omitempty"` // e.g. SIGKILL
	DurationMS int64         `json:"durationMs"`
	Backend    string        `json:"backend"`
	Limits     RunLimits     `json:"limits"`
	Network    string        `json:"network"`   // "none", or what the run could reach
	Workspace  string        `json:"workspace"` // none, ro, staged or rw
	TreeDigest digest.Digest `json:"treeDigest"`
	Origin     *SkillOrigin  `json:"origin,omitempty"` // in records only; nil if not known

	// Worker is the name of the worker that ran the script, and WorkerRules the digest of its rules; both are
	// empty if the server ran it.
	Worker      string        `json:"worker,omitempty"`
	WorkerRules digest.Digest `json:"workerRules,omitempty"`
	// Late is set if the outcome came after the call had ended, so that it was not shown. Supersedes is the
	// event that recorded it as unknown; it may be empty.
	Late       bool   `json:"late,omitempty"`
	Supersedes string `json:"supersedes,omitempty"`

	// Interpreter is the program that ran the script; nil if none was started.
	Interpreter *Interpreter `json:"interpreter,omitempty"`

	// Environment is the environment of packages for the script; nil if it had none.
	Environment *Environment `json:"environment,omitempty"`

	// HostCWD is the directory on this machine in which a script on the host started, where cwd has its name
	// in the reference's form; empty in the sandbox. It is not shown to callers.
	HostCWD string `json:"hostCwd,omitempty"`

	// LoadedTree is the digest of the skill's files when the session loaded them, if the entry pins the
	// script alone and other files changed before the run; else empty.
	LoadedTree digest.Digest `json:"loadedTreeDigest,omitempty"`

	// CacheDigest is the digest of the stored tree including compiled files of earlier runs that this run
	// could use; empty if there were none.
	CacheDigest digest.Digest `json:"cacheDigest,omitempty"`

	Stdout StreamSummary `json:"stdout"`
	Stderr StreamSummary `json:"stderr"`
	Out    List[OutFile] `json:"out"`
	TaskID string        `json:"taskId,omitempty"`

	ExitWithheld bool `json:"exitWithheld,omitempty"` // neither exit code nor signal is shown to the caller

	// Opaque limits the caller to whether the script ended with exit code 0. Nothing else that the script
	// could choose is shown: no other exit code, outcome, duration, length, name or number of files.
	Opaque bool `json:"opaque,omitempty"`

	// Missing is a missing dependency, if the last lines of the output name it and the caller sees them; else
	// nil.
	Missing *Missing `json:"missing,omitempty"`

	OutSkips int      `json:"outSkips,omitempty"` // entries of /out that were not collected
	Skipped  []string `json:"skipped,omitempty"`  // names of the first of these, quoted as Go strings

	Connections []Connection `json:"connections,omitempty"`         // in the order they were made
	Unlisted    int          `json:"connectionsUnlisted,omitempty"` // number of further refused connections

	Writes         []WorkspaceWrite `json:"writes,omitempty"`         // to a staged workspace, in order
	WritesUnlisted int              `json:"writesUnlisted,omitempty"` // number of further changes
	// Kept describes what is kept of the files that these changes replaced or deleted; nil if nothing is.
	Kept *Kept `json:"kept,omitempty"`
}

// Kept describes what is kept of the files that a run changed or deleted.
type Kept struct {
	Entries int           `json:"entries"`           // changed entries of the workspace
	Changes digest.Digest `json:"changes,omitempty"` // of the list of them, in records only
	Problem string        `json:"problem,omitempty"` // why the changes cannot be undone; empty if they can
}

// TypeUndone is the type of an Undone.
const TypeUndone = "skillsd.workspace-undone"

// Undone is the row of a workspace.undone event: the changes of a run that its user undid.
type Undone struct {
	Type     string        `json:"type"`
	Run      string        `json:"run"`              // id of the session that ran the script
	OutputID string        `json:"outputId"`         // of the run
	Changes  digest.Digest `json:"changes"`          // of the list of the run's changes
	Forced   bool          `json:"forced,omitempty"` // files that had changed since were replaced too
	Files    []UndoneFile  `json:"files"`
	Unlisted int           `json:"filesUnlisted,omitempty"` // number of further files
}

// Refused returns the files that were not returned.
func (u *Undone) Refused() []UndoneFile {
	return slices.DeleteFunc(slices.Clone(u.Files), func(f UndoneFile) bool { return f.Refused == "" })
}

// UndoneFile is the outcome for one changed entry of a workspace.
type UndoneFile struct {
	Path    string `json:"path"` // below the workspace
	Op      string `json:"op"`   // write, link, mkdir or delete
	Refused string `json:"refused,omitempty"`
}

// Missing is a dependency that the environment of a script lacks.
type Missing struct {
	Code string `json:"code"`          // a code of package script, such as missing_dependency
	Name string `json:"name"`          // empty if unknown
	CWD  string `json:"cwd,omitempty"` // working directory, for a missing file
}

// Interpreter is the program named first in an argv. Its path is for the operator only, and not shown to
// callers.
type Interpreter struct {
	Path    string        `json:"path,omitempty"` // on this machine
	Version string        `json:"version,omitempty"`
	Digest  digest.Digest `json:"digest,omitempty"` // of the file at Path
}

// Environment is a read-only tree of packages for a run.
type Environment struct {
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"` // of all paths and contents
	// Root is the digest of the root file system that replaced the host's; empty if none did.
	Root     digest.Digest        `json:"root,omitempty"`
	Packages int                  `json:"packages"` // number of packages in its lock
	Checked  string               `json:"checked"`  // check before the run: full or directories
	FullAt   provenance.Timestamp `json:"fullAt"`   // time of the last full check
}

// WorkspaceWrite is one change, or attempted change, of a run to a staged workspace.
type WorkspaceWrite struct {
	Path    string        `json:"path"` // relative to the workspace
	Op      string        `json:"op"`   // write, mkdir, delete or chmod
	Bytes   int64         `json:"bytes,omitempty"`
	Digest  digest.Digest `json:"digest,omitempty"`  // of the new content
	Refused string        `json:"refused,omitempty"` // why it was not applied, or empty
}

// Connection is one outgoing connection, or attempt, of a run.
type Connection struct {
	Host     string `json:"host,omitempty"` // as named by the script; may be empty
	Port     int    `json:"port,omitempty"`
	Address  string `json:"address,omitempty"` // dialed IP:PORT; empty if none
	Sent     int64  `json:"sentBytes"`         // by the script
	Received int64  `json:"receivedBytes"`
	Refused  string `json:"refused,omitempty"` // why it was refused, or empty
	Ended    string `json:"ended,omitempty"`   // why it was cut; empty if a peer closed it
}

// RunLimits are the limits of a run that its sandbox enforces. A limit of 0 or absent is not enforced
// separately: only memory bounds it.
type RunLimits struct {
	TimeoutMS   int64 `json:"timeoutMs"`
	MemoryBytes int64 `json:"memoryBytes"` // of all processes together
	PIDs        int   `json:"pids"`
	FileBytes   int64 `json:"fileBytes"`   // of each written file
	OutputBytes int64 `json:"outputBytes"` // stored of each stream

	CPUMS        int64 `json:"cpuMs,omitempty"` // of each process
	Files        int   `json:"files,omitempty"` // open in each process
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
	Inodes       int   `json:"inodes,omitempty"` // of the scratch space
}

// StreamSummary describes a whole stream. A file or an answer may have only its beginning.
type StreamSummary struct {
	Bytes     int64         `json:"bytes"`
	Digest    digest.Digest `json:"digest"`
	Truncated bool          `json:"truncated"`
	Shown     *ShownText    `json:"shown,omitempty"` // nil if the stream was empty or withheld

	// Redacted is set if the run was given secrets: Bytes and Digest then describe the stored stream, with
	// every declared secret replaced, because a digest of the raw stream would confirm a guess.
	Redacted bool `json:"redacted,omitempty"`

	URI string `json:"uri,omitempty"` // of the stored bytes

	// Withheld is the policy of a stream that was not released, or empty; the caller sees Bytes as 0 if it is
	// denied. Salt is random: the object that replaces the stream has the digest of the text of Salt followed
	// by Digest. So it commits to the stream without confirming a guess of a short one, as Digest would.
	Withheld ObservationPolicy `json:"withheld,omitempty"`
	Salt     string            `json:"salt,omitempty"`
}

// ShownText is the part of a stream that was shown to the model.
type ShownText struct {
	Digest digest.Digest `json:"digest"`
	Bytes  int64         `json:"bytes"`
	Head   *int64        `json:"head,omitempty"` // length before an omitted part; nil if nothing was omitted
}

// OutFile is a file that a script left in its output directory.
type OutFile struct {
	Name   string        `json:"name"`
	Bytes  int64         `json:"bytes"`
	Digest digest.Digest `json:"digest,omitempty"`
	URI    string        `json:"uri,omitempty"`

	// Withheld is the reason why the file was not stored, in the form of a denial. The file then has no
	// digest and no URI.
	Withheld string `json:"withheld,omitempty"`

	// Shown is the part of the file that was shown to the model: its text, or a picture that may be scaled
	// down. It is nil if only the name was shown.
	Shown *ShownText `json:"shown,omitempty"`
}

// ReadOutput is the output object of a read. Pointers are nil if the key is absent.
type ReadOutput struct {
	Type          string `json:"type"`
	OutputID      string `json:"outputId"`
	Skill         string `json:"skill"`
	Path          string `json:"path"`
	Status        Status `json:"status"`
	CFCPromptRole string `json:"cfcPromptRole"`

	Diagnostics List[RegistryDiagnostic] `json:"diagnostics"`
	Kind        string                   `json:"kind,omitempty"`
	FileFacts
	ContentKind string         `json:"contentKind,omitempty"`
	MaxBytes    *int64         `json:"maxBytes,omitempty"`
	Truncated   *bool          `json:"truncated,omitempty"`
	Content     *string        `json:"content,omitempty"`
	Error       *RecordError   `json:"error,omitempty"`
	Skillsd     *ReadExtension `json:"skillsd,omitempty"`
}

// RunOutput is the output object of a run. Stdout and Stderr are the released text, or the object that
// replaces withheld text. Pointers and slices are nil if the key is absent.
type RunOutput struct {
	Type            string `json:"type"`
	OutputID        string `json:"outputId"`
	Skill           string `json:"skill"`
	Path            string `json:"path"`
	Status          Status `json:"status"`
	ExecutionTarget string `json:"executionTarget,omitempty"`

	Diagnostics List[RegistryDiagnostic] `json:"diagnostics"`
	Runtime     string                   `json:"runtime,omitempty"`
	Argv        []string                 `json:"argv,omitzero"`
	Args        []string                 `json:"args,omitzero"`
	CWD         string                   `json:"cwd,omitempty"`
	FileFacts
	Stdout               Observation    `json:"stdout,omitzero"`
	Stderr               Observation    `json:"stderr,omitzero"`
	ExitCode             *int           `json:"exitCode,omitempty"`
	Error                *RecordError   `json:"error,omitempty"`
	CFCResult            *SandboxResult `json:"cfcResult,omitempty"` // for runs in the sandbox
	StdoutTruncated      *bool          `json:"stdoutTruncated,omitempty"`
	StdoutOriginalLength *int64         `json:"stdoutOriginalLength,omitempty"`
	StderrTruncated      *bool          `json:"stderrTruncated,omitempty"`
	StderrOriginalLength *int64         `json:"stderrOriginalLength,omitempty"`
	Skillsd              *RunExtension  `json:"skillsd,omitempty"`
}

// LoadOutput is the output object of an activation. The reference has no such tool; the keys come from its
// activation record, without host paths.
type LoadOutput struct {
	Type             string        `json:"type"`
	OutputID         string        `json:"outputId"`
	Skill            string        `json:"skill"` // skill path
	Name             string        `json:"name"`
	Status           string        `json:"status"` // StatusLoaded
	CFCPromptRole    string        `json:"cfcPromptRole"`
	SandboxSkillPath string        `json:"sandboxSkillPath"`
	SandboxSkillDir  string        `json:"sandboxSkillDir"`
	Digest           digest.Digest `json:"digest"` // of SKILL.md
	TreeDigest       digest.Digest `json:"treeDigest"`
	Activation       string        `json:"activation"` // the handle
	ExpiresAt        Timestamp     `json:"expiresAt"`

	// Set only if the call asks for its records. Content is SKILL.md, absent if it was sent in the session
	// before. Resources are the other files in the form of skill-registry.json, with sandbox paths.
	Content   *string                `json:"content,omitempty"`
	Resources List[RegistryResource] `json:"resources,omitzero"`
}

// StatusLoaded is the status of every LoadOutput.
const StatusLoaded = "loaded"

// FailedOutput is the output object of a call that failed before it had its own output object.
type FailedOutput struct {
	Status Status      `json:"status"` // StatusError
	Error  RecordError `json:"error"`
}

// CallRecords are the records of one call, for a client that stores the same files itself. Rows are as
// visible to the caller: for a remote caller, sandbox paths replace host paths.
type CallRecords struct {
	Type    string `json:"type"`
	Version int    `json:"version"`
	RunID   string `json:"runId"`
	// RequestedRunID is the session id that the caller requested, if the session has another: the requested
	// id belongs to another session, or is not valid.
	RequestedRunID string                `json:"requestedRunId,omitempty"`
	File           string                `json:"file,omitempty"`   // the view that contains Record
	Record         json.RawMessage       `json:"record,omitempty"` // row of File
	PolicyEvents   List[json.RawMessage] `json:"policyEvents"`     // each a [PolicyEvent]
	Decision       json.RawMessage       `json:"decision,omitempty"`
	Invocation     json.RawMessage       `json:"cfcInvocationContext,omitempty"`
	EventIDs       List[string]          `json:"eventIds"` // see [provenance.Event.ID]
}

// NewCallRecords returns the records of a call from its events, in order. project returns the row of a view
// as visible to the caller.
//
// Errors: the errors of project.
func NewCallRecords(
	run string, events []*provenance.Event,
	project func(view string, row json.RawMessage) (json.RawMessage, error),
) (*CallRecords, error) {
	c := &CallRecords{Type: TypeCallRecords, Version: 1, RunID: run}
	for _, e := range events {
		c.EventIDs = append(c.EventIDs, e.ID())
		if len(e.Decision) > 0 {
			decision, err := project(provenance.PolicyTraceFile, e.Decision)
			if err != nil {
				return nil, err
			}
			c.Decision = decision
		}
		if len(e.Invocation) > 0 {
			c.Invocation = e.Invocation
		}
		facts := e.Kind.Facts()
		switch {
		case len(e.Row) == 0:
		case facts.Form == provenance.FormPolicy:
			c.PolicyEvents = append(c.PolicyEvents, e.Row)
		case facts.View != "":
			row, err := project(facts.View, e.Row)
			if err != nil {
				return nil, err
			}
			c.File, c.Record = facts.View, row
		}
	}
	return c, nil
}
