package cfharness

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// Source is how a skill came to be activated.
type Source string

// The sources of activations.
const (
	SourcePreload   Source = "cli-preload"
	SourceModel     Source = "model-tool"
	SourceUser      Source = "user-explicit"
	SourceInherited Source = "subagent-inherit"
)

// ParseSource reads the source of an activation.
//
// Errors: provenance.ErrInvalid.
func ParseSource(s string) (Source, error) {
	all := []Source{SourcePreload, SourceModel, SourceUser, SourceInherited}
	if !slices.Contains(all, Source(s)) {
		return "", fmt.Errorf("%w: the source of an activation is one of %q", provenance.ErrInvalid, all)
	}
	return Source(s), nil
}

// RuleResumeReload is the rule of activations that a server made when it resumed a session. It did not show
// their instructions.
const RuleResumeReload = "operator_resume_reload"

// Status is how a read or a run went. A script that started has the status executed, whatever its outcome.
type Status string

// The statuses of reads (read, binary, error) and runs (executed, error).
const (
	StatusRead     Status = "read"
	StatusBinary   Status = "binary"
	StatusExecuted Status = "executed"
	StatusError    Status = "error"
)

// PromptRoleContext is the prompt role of everything a skill contributes.
const PromptRoleContext = "context"

// RecordError is why a read or a run has status error.
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
	Digest           digest.Digest        `json:"digest"` // of the SKILL.md that was shown
	ActivatedAt      Timestamp            `json:"activatedAt"`
	CFCPromptRole    string               `json:"cfcPromptRole"` // PromptRoleContext
	Skillsd          *ActivationExtension `json:"skillsd,omitempty"`
}

// SentBy reports whether the instructions were sent with e, the event of the activation. If the server
// activated the skill by itself, they are sent when the model asks for them.
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
	Repeated     bool          `json:"repeated,omitempty"` // the same tree had been shown before
	Sent         bool          `json:"sent,omitempty"`     // to a caller, who named the source
	// Suspicious are the codes of warnings about texts of the skill: injection-phrase, invisible-text.
	Suspicious []string `json:"suspicious,omitempty"`
}

// FileFacts is how the file of a read or a run compares with the registry. Pointers are nil where the key is
// absent.
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

// ResourceRead is the row of a skill.resource_read event. Pointers are nil where the key is absent.
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
	Via        string        `json:"via,omitempty"` // tool or method that asked
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

// ScriptExecution is the row of a skill.script_executed event. Pointers and slices are nil where
// the key is absent; an empty non-nil slice is written as [].
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
	ExitCode    *int                     `json:"exitCode,omitempty"` // of a signal: 128 and its number
	Diagnostics List[RegistryDiagnostic] `json:"diagnostics"`
	Error       *RecordError             `json:"error,omitempty"`
	Skillsd     *RunExtension            `json:"skillsd,omitempty"`
}

// Outcome is how a script that started ended.
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

	// OutcomeFailed is every end of an opaque run other than exit code 0, as its caller sees it. No record
	// has it.
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

	// Worker is the name of the worker that ran the script, and WorkerRules of what it decides by, the same
	// for workers that decide alike; empty if the server did.
	Worker      string        `json:"worker,omitempty"`
	WorkerRules digest.Digest `json:"workerRules,omitempty"`
	// Late says that nobody was shown the outcome, which came after its call had ended, and Supersedes which
	// event said that it is not known; it may be empty.
	Late       bool   `json:"late,omitempty"`
	Supersedes string `json:"supersedes,omitempty"`

	// Interpreter is the program that ran the script; nil if none was started.
	Interpreter *Interpreter `json:"interpreter,omitempty"`

	// Environment is what packages the script found; nil for none.
	Environment *Environment `json:"environment,omitempty"`

	// HostCWD is the directory of this machine in which a script on the host started, which cwd names in the
	// reference's words; empty in the sandbox. Callers are not shown it.
	HostCWD string `json:"hostCwd,omitempty"`

	// LoadedTree is the digest of the skill's files as the session loaded them, if the entry pins the script
	// alone and other files were changed before the run; else empty.
	LoadedTree digest.Digest `json:"loadedTreeDigest,omitempty"`

	// CacheDigest is the digest of the stored tree with the files that the interpreter compiled from it
	// earlier, and which the run found next to its files; empty if it found none.
	CacheDigest digest.Digest `json:"cacheDigest,omitempty"`

	Stdout StreamSummary `json:"stdout"`
	Stderr StreamSummary `json:"stderr"`
	Out    List[OutFile] `json:"out"`
	TaskID string        `json:"taskId,omitempty"`

	ExitWithheld bool `json:"exitWithheld,omitempty"` // the caller gets neither exit code nor signal

	// Opaque says that the caller gets whether the script ended with exit code 0, and nothing else that the
	// script could choose: no other exit code, outcome, duration, length, name or number of files.
	Opaque bool `json:"opaque,omitempty"`

	// Missing is what the script lacked, if its last lines say so and the caller gets them; else nil.
	Missing *Missing `json:"missing,omitempty"`

	OutSkips int      `json:"outSkips,omitempty"` // entries of /out that were left behind
	Skipped  []string `json:"skipped,omitempty"`  // names of the first of those, quoted as a Go string

	Connections []Connection `json:"connections,omitempty"`         // in the order they were made
	Unlisted    int          `json:"connectionsUnlisted,omitempty"` // refused beyond those in Connections

	Writes         []WorkspaceWrite `json:"writes,omitempty"`         // to a staged workspace, in order
	WritesUnlisted int              `json:"writesUnlisted,omitempty"` // beyond those in Writes
}

// Missing is something that a script needs and its environment does not have.
type Missing struct {
	Code string `json:"code"`          // one of package script's, such as missing_dependency
	Name string `json:"name"`          // empty if only that something lacked is known
	CWD  string `json:"cwd,omitempty"` // where the script would have found a file
}

// Interpreter is the program whose name is the first of an argv. Only the operator may know its path, which
// a caller is not shown.
type Interpreter struct {
	Path    string        `json:"path,omitempty"` // on this machine
	Version string        `json:"version,omitempty"`
	Digest  digest.Digest `json:"digest,omitempty"` // of the file at Path
}

// Environment is a tree of packages that a run was given, read-only.
type Environment struct {
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"` // of all its paths and contents
	// Root is the digest of the root file system that the run had in the place of the host's; empty for that.
	Root     digest.Digest        `json:"root,omitempty"`
	Packages int                  `json:"packages"` // that its lock names
	Checked  string               `json:"checked"`  // how before the run: full or directories
	FullAt   provenance.Timestamp `json:"fullAt"`   // when every file was last looked at
}

// WorkspaceWrite is one change that a run made, or tried to make, to a staged workspace.
type WorkspaceWrite struct {
	Path    string        `json:"path"` // below the workspace
	Op      string        `json:"op"`   // write, mkdir, delete or chmod
	Bytes   int64         `json:"bytes,omitempty"`
	Digest  digest.Digest `json:"digest,omitempty"`  // of the new content
	Refused string        `json:"refused,omitempty"` // why it was not applied; empty if it was
}

// Connection is one connection that a run tried to make to the outside.
type Connection struct {
	Host     string `json:"host,omitempty"` // as the script named it; empty if it named none
	Port     int    `json:"port,omitempty"`
	Address  string `json:"address,omitempty"` // IP:PORT that was dialled; empty if none was
	Sent     int64  `json:"sentBytes"`         // by the script
	Received int64  `json:"receivedBytes"`
	Refused  string `json:"refused,omitempty"` // why it was not made; empty if it was
	Ended    string `json:"ended,omitempty"`   // why it was cut; empty if an end closed it
}

// RunLimits are the limits of a run that its sandbox enforces. One that is 0 or absent is not counted: memory
// alone bounds it.
type RunLimits struct {
	TimeoutMS   int64 `json:"timeoutMs"`
	MemoryBytes int64 `json:"memoryBytes"` // of all processes together
	PIDs        int   `json:"pids"`
	FileBytes   int64 `json:"fileBytes"`   // of one file written
	OutputBytes int64 `json:"outputBytes"` // kept of each stream

	CPUMS        int64 `json:"cpuMs,omitempty"` // of each process
	Files        int   `json:"files,omitempty"` // open in each process
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
	Inodes       int   `json:"inodes,omitempty"` // of the scratch space
}

// StreamSummary describes a whole stream, of which a file or an answer may have the beginning only.
type StreamSummary struct {
	Bytes     int64         `json:"bytes"`
	Digest    digest.Digest `json:"digest"`
	Truncated bool          `json:"truncated"`
	Shown     *ShownText    `json:"shown,omitempty"` // nil if it was empty or withheld

	// Redacted says that the run was given secrets: Bytes and Digest are of the stream as it was kept, with
	// every declared secret replaced, because a digest of the raw stream would confirm a guess.
	Redacted bool `json:"redacted,omitempty"`

	URI string `json:"uri,omitempty"` // of the bytes that were kept

	// Withheld is the policy of a stream that the caller did not get, else empty; it sees Bytes as 0 if
	// that is denied. Salt is random: the object in place of the stream has the digest of Salt and Digest,
	// one after the other as text. It commits to the stream, and does not confirm a guess of a short one,
	// as Digest would.
	Withheld ObservationPolicy `json:"withheld,omitempty"`
	Salt     string            `json:"salt,omitempty"`
}

// ShownText is the part of a stream that the model was shown.
type ShownText struct {
	Digest digest.Digest `json:"digest"`
	Bytes  int64         `json:"bytes"`
	Head   *int64        `json:"head,omitempty"` // bytes before a part that was left out; nil if none was
}

// OutFile is a file a script left in its output directory.
type OutFile struct {
	Name   string        `json:"name"`
	Bytes  int64         `json:"bytes"`
	Digest digest.Digest `json:"digest,omitempty"`
	URI    string        `json:"uri,omitempty"`

	// Withheld is why the file was not kept, as the reason of a denial. The file then has no digest and no
	// URI.
	Withheld string `json:"withheld,omitempty"`

	// Shown is what the model was shown of the file: its text, or a picture that may be a smaller one. It is
	// nil if that was only the name.
	Shown *ShownText `json:"shown,omitempty"`
}

// ReadOutput is the output object of a read. Pointers are nil where the key is absent.
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

// RunOutput is the output object of a run. Stdout and Stderr are the released text, or the object in the
// place of one that was withheld. Pointers and slices are nil where the key is absent.
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
	CFCResult            *SandboxResult `json:"cfcResult,omitempty"` // of a run in the sandbox
	StdoutTruncated      *bool          `json:"stdoutTruncated,omitempty"`
	StdoutOriginalLength *int64         `json:"stdoutOriginalLength,omitempty"`
	StderrTruncated      *bool          `json:"stderrTruncated,omitempty"`
	StderrOriginalLength *int64         `json:"stderrOriginalLength,omitempty"`
	Skillsd              *RunExtension  `json:"skillsd,omitempty"`
}

// LoadOutput is the output object of an activation. The reference has no such tool; the keys are taken from
// its activation record, without host paths.
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

	// Only for a call that asks for its records. Content is SKILL.md, absent if the session has had it.
	// Resources are the other files as skill-registry.json has them, with sandbox paths.
	Content   *string                `json:"content,omitempty"`
	Resources List[RegistryResource] `json:"resources,omitzero"`
}

// StatusLoaded is the status of every LoadOutput.
const StatusLoaded = "loaded"

// FailedOutput is the output object of a call that failed before it had one of its own.
type FailedOutput struct {
	Status Status      `json:"status"` // StatusError
	Error  RecordError `json:"error"`
}

// CallRecords is what one call recorded, for a client that keeps the same files itself. Rows are as the
// caller may see them: for a remote one, they have sandbox paths in place of host paths.
type CallRecords struct {
	Type    string `json:"type"`
	Version int    `json:"version"`
	RunID   string `json:"runId"`
	// RequestedRunID is the id that the caller wanted for its session, if the session has another: a session
	// that the caller did not mean has it, or no session can.
	RequestedRunID string                `json:"requestedRunId,omitempty"`
	File           string                `json:"file,omitempty"`   // the view that Record is a row of
	Record         json.RawMessage       `json:"record,omitempty"` // row of File
	PolicyEvents   List[json.RawMessage] `json:"policyEvents"`     // each a [PolicyEvent]
	Decision       json.RawMessage       `json:"decision,omitempty"`
	Invocation     json.RawMessage       `json:"cfcInvocationContext,omitempty"`
	EventIDs       List[string]          `json:"eventIds"` // see [Event.ID]
}

// NewCallRecords returns the records of a call from its events, in order. project returns a row of
// the named view as the caller may see it.
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
		view := e.Kind.View()
		switch {
		case len(e.Row) == 0:
		case e.Kind == provenance.KindPolicyDenied, e.Kind == provenance.KindPolicyWarned:
			c.PolicyEvents = append(c.PolicyEvents, e.Row)
		case view != "":
			row, err := project(view, e.Row)
			if err != nil {
				return nil, err
			}
			c.File, c.Record = view, row
		}
	}
	return c, nil
}
