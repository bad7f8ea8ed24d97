package cfharness

import (
	"encoding/json"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// ReadOutput is the output object of a read. Pointers are nil where the key is absent.
type ReadOutput struct {
	Type          string `json:"type"`
	OutputID      string `json:"outputId"`
	Skill         string `json:"skill"`
	Path          string `json:"path"`
	Status        Status `json:"status"`
	CFCPromptRole string `json:"cfcPromptRole"`
	Kind          string `json:"kind,omitempty"`
	FileFacts
	ContentKind string                   `json:"contentKind,omitempty"`
	MaxBytes    *int64                   `json:"maxBytes,omitempty"`
	Truncated   *bool                    `json:"truncated,omitempty"`
	Content     *string                  `json:"content,omitempty"`
	Diagnostics List[RegistryDiagnostic] `json:"diagnostics"`
	Error       *RecordError             `json:"error,omitempty"`
	Skillsd     *ReadExtension           `json:"skillsd,omitempty"`
}

// RunOutput is the output object of a run. Stdout and Stderr are the released text, nil if
// nothing is released; other pointers and slices are nil where the key is absent.
type RunOutput struct {
	Type            string   `json:"type"`
	OutputID        string   `json:"outputId"`
	Skill           string   `json:"skill"`
	Path            string   `json:"path"`
	Status          Status   `json:"status"`
	ExecutionTarget string   `json:"executionTarget,omitempty"`
	Runtime         string   `json:"runtime,omitempty"`
	Argv            []string `json:"argv,omitzero"`
	Args            []string `json:"args,omitzero"`
	CWD             string   `json:"cwd,omitempty"`
	FileFacts
	Stdout               *string                  `json:"stdout,omitempty"`
	Stderr               *string                  `json:"stderr,omitempty"`
	ExitCode             *int                     `json:"exitCode,omitempty"`
	Diagnostics          List[RegistryDiagnostic] `json:"diagnostics"`
	Error                *RecordError             `json:"error,omitempty"`
	CFC                  json.RawMessage          `json:"cfc,omitempty"`
	StdoutTruncated      *bool                    `json:"stdoutTruncated,omitempty"`
	StdoutOriginalLength *int64                   `json:"stdoutOriginalLength,omitempty"`
	StderrTruncated      *bool                    `json:"stderrTruncated,omitempty"`
	StderrOriginalLength *int64                   `json:"stderrOriginalLength,omitempty"`
	Skillsd              *RunExtension            `json:"skillsd,omitempty"`
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
	Type         string                `json:"type"`
	Version      int                   `json:"version"`
	RunID        string                `json:"runId"`
	File         string                `json:"file,omitempty"`   // the view that Record is a row of
	Record       json.RawMessage       `json:"record,omitempty"` // row of File
	PolicyEvents List[json.RawMessage] `json:"policyEvents"`     // each a [PolicyEvent]
	Decision     json.RawMessage       `json:"decision,omitempty"`
	Invocation   json.RawMessage       `json:"cfcInvocationContext,omitempty"`
	EventIDs     List[string]          `json:"eventIds"` // see [Event.ID]
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
			c.Decision = e.Decision
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
