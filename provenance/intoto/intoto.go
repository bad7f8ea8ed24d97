// Package intoto describes a recorded run of a script as an in-toto statement.
package intoto

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// The types of a [Statement] and of its predicate.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	ExecutionType = "https://github.com/skillsd/skillsd/provenance/script-execution/v1"
)

// Statement is an in-toto Statement (version 1) about one run of a script: its outputs are the subject, and
// the facts of its run are the predicate. It is unsigned.
type Statement struct {
	Type          string          `json:"_type"`
	Subject       []Subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     ScriptPredicate `json:"predicate"`
}

// Subject is an output of the run: its complete standard output or standard error, named "<outputId>:stdout"
// and "<outputId>:stderr", or a file "<outputId>:out/<file>".
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"` // "sha256" to lower-case hex
}

// ScriptPredicate is the predicate of type ExecutionType. Arguments are as recorded, with declared secrets
// redacted.
type ScriptPredicate struct {
	Skill  PredicateSkill          `json:"skill"`
	Script PredicateScript         `json:"script"`
	Argv   provenance.List[string] `json:"argv"`
	Args   provenance.List[string] `json:"args"`
	CWD    string                  `json:"cwd,omitempty"`
	// Stdin is also nil if the record does not have it.
	Stdin *cfharness.TextSummary `json:"stdin,omitempty"`
	// Environment is the environment of packages for the script; nil if it had none.
	Environment *PredicateEnvironment `json:"environment,omitempty"`
	StartedAt   provenance.Timestamp  `json:"startedAt"`
	Result      PredicateResult       `json:"result"`
	Sandbox     PredicateSandbox      `json:"sandbox"`
	// Policy is the [cfharness.PolicyDecision] with its evidence, or null.
	Policy   json.RawMessage                  `json:"policy"`
	Approval *Approval                        `json:"approval,omitempty"`
	Record   PredicateRecord                  `json:"record"`
	Files    provenance.List[provenance.File] `json:"files"` // of the session, as stored
}

// Approval is the answer of a user that allowed the script to run.
type Approval struct {
	Seq        uint64 `json:"seq"`        // of the approval.answered event
	Remembered bool   `json:"remembered"` // valid for all later calls of the session
}

// PredicateSkill identifies the skill by content.
type PredicateSkill struct {
	Path string            `json:"path"`
	Tree map[string]string `json:"treeDigest"`
	// Origin is the source of these files; nil if the record does not have it.
	Origin *cfharness.SkillOrigin `json:"origin,omitempty"`
}

// PredicateEnvironment identifies a tree of packages by content.
type PredicateEnvironment struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
	// Root is the root file system that replaced the host's; nil if none did.
	Root map[string]string `json:"root,omitempty"`
}

// PredicateScript identifies the script by content.
type PredicateScript struct {
	Path    string            `json:"path"`
	Digest  map[string]string `json:"digest"`
	Runtime string            `json:"runtime,omitempty"`
}

// PredicateResult is how the run ended.
type PredicateResult struct {
	Outcome    cfharness.Outcome `json:"outcome"`
	ExitCode   *int              `json:"exitCode,omitempty"`
	Signal     string            `json:"signal,omitempty"`
	DurationMS int64             `json:"durationMs"`
}

// PredicateSandbox is the isolation and the limits of the run.
type PredicateSandbox struct {
	Target    string              `json:"target"` // sandbox or host
	Backend   string              `json:"backend"`
	Limits    cfharness.RunLimits `json:"limits"`
	Network   string              `json:"network"`
	Workspace string              `json:"workspace"`
}

// PredicateRecord is the position of the run in the record of its session. The hash covers the event and,
// through its chain, every earlier event.
type PredicateRecord struct {
	Session   string `json:"session"`
	Seq       uint64 `json:"seq"`
	Hash      string `json:"hash"`
	Principal string `json:"principal"`
	Client    string `json:"client,omitempty"`
	Parent    string `json:"parent,omitempty"`
	OutputID  string `json:"outputId"`
}

// NewStatement returns the statement of a skill.script_executed event, or nil for other kinds and for scripts
// that did not start.
//
// Errors: ErrInvalid if the row is malformed.
func NewStatement(e *provenance.Event) (*Statement, error) {
	if e.Kind != provenance.KindScriptExecuted {
		return nil, nil
	}
	var row cfharness.ScriptExecution
	if err := json.Unmarshal(e.Row, &row); err != nil {
		return nil, fmt.Errorf("%w: row of event %s: %v", provenance.ErrInvalid, e.ID(), err)
	}
	x := row.Skillsd
	// Without the digest of the script the statement would not identify what ran.
	if row.Status != cfharness.StatusExecuted || x == nil || row.ObservedDigest == "" {
		return nil, nil
	}
	p := ScriptPredicate{
		Skill:  PredicateSkill{Path: e.Skill, Tree: digestSet(x.TreeDigest), Origin: x.Origin},
		Script: PredicateScript{Path: row.Path, Digest: digestSet(row.ObservedDigest), Runtime: row.Runtime},
		Argv:   row.Argv, Args: row.Args, CWD: row.CWD, StartedAt: row.ExecutedAt,
		Result: PredicateResult{Outcome: x.Outcome, ExitCode: row.ExitCode, Signal: x.Signal,
			DurationMS: x.DurationMS},
		Sandbox: PredicateSandbox{Target: row.ExecutionTarget, Backend: x.Backend, Limits: x.Limits,
			Network: x.Network, Workspace: x.Workspace},
		Policy: e.Decision, Files: e.Files,
		Record: PredicateRecord{Session: e.Session, Seq: e.Seq, Hash: e.Hash, Principal: e.Principal,
			Client: e.Client, Parent: e.Parent, OutputID: row.OutputID},
	}
	if env := x.Environment; env != nil {
		p.Environment = &PredicateEnvironment{Name: env.Name, Digest: digestSet(env.Digest)}
		if env.Root != "" {
			p.Environment.Root = digestSet(env.Root)
		}
	}
	var given cfharness.InvocationContext
	if len(e.Invocation) > 0 && json.Unmarshal(e.Invocation, &given) == nil {
		p.Stdin = given.Inputs.Stdin
	}
	if len(p.Policy) == 0 {
		p.Policy = json.RawMessage("null")
	}
	return &Statement{StatementType, subjects(&row), ExecutionType, p}, nil
}

// Approvals records which answers allowed scripts to run. Its size grows only with the answers. The zero
// Approvals is ready to use; it is not safe for concurrent use.
type Approvals struct {
	calls      map[string]Approval  // by output id
	remembered map[[3]string]uint64 // by skill, script and tree
}

// Add adds the next event of the session. All events must be added in order.
func (a *Approvals) Add(e *provenance.Event) {
	if e.Kind != provenance.KindApprovalAnswered || e.Detail != cfharness.ApprovalAccepted &&
		e.Detail != cfharness.ApprovalRemembered && !strings.HasPrefix(e.Detail, cfharness.ApprovalBy) {
		return
	}
	if a.calls == nil {
		a.calls, a.remembered = make(map[string]Approval), make(map[[3]string]uint64)
	}
	if e.Detail == cfharness.ApprovalRemembered {
		a.remembered[[3]string{e.Skill, e.Path, e.Want}] = e.Seq
	}
	var row cfharness.ScriptRequest
	if json.Unmarshal(e.Row, &row) == nil && row.OutputID != "" {
		a.calls[row.OutputID] = Approval{Seq: e.Seq, Remembered: e.Detail == cfharness.ApprovalRemembered}
	}
}

// Of returns the answer that allowed the script of a skill.script_executed event to run. It is nil if the
// evidence of its decision is not an approval, or if the record lacks the answer.
func (a *Approvals) Of(e *provenance.Event) *Approval {
	var row cfharness.ScriptExecution
	var decision cfharness.PolicyDecision
	if json.Unmarshal(e.Decision, &decision) != nil || json.Unmarshal(e.Row, &row) != nil ||
		decision.Skillsd == nil || decision.Skillsd.Evidence != "approval" || row.Skillsd == nil {
		return nil
	}
	if given, ok := a.calls[row.OutputID]; ok {
		return &given
	}
	if seq, ok := a.remembered[[3]string{e.Skill, e.Path, row.Skillsd.TreeDigest.String()}]; ok {
		return &Approval{Seq: seq, Remembered: true}
	}
	return nil
}

func subjects(row *cfharness.ScriptExecution) []Subject {
	list := []Subject{} // never null
	add := func(name string, d digest.Digest) {
		if set := digestSet(d); len(set) > 0 {
			list = append(list, Subject{row.OutputID + ":" + name, set})
		}
	}
	add("stdout", row.Skillsd.Stdout.Digest)
	add("stderr", row.Skillsd.Stderr.Digest)
	for _, f := range row.Skillsd.Out {
		add("out/"+f.Name, f.Digest)
	}
	return list
}

// digestSet returns a digest in the form of in-toto, or an empty set if it is not sha256.
func digestSet(d digest.Digest) map[string]string {
	hex, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok {
		return map[string]string{}
	}
	return map[string]string{"sha256": hex}
}

// Write writes the statements of a session, one per line, and returns their number.
//
// Errors: the errors of reading the session, or of writing.
func Write(ctx context.Context, w io.Writer, records provenance.Reader, session string) (int, error) {
	var approvals Approvals
	written := 0
	for e, err := range records.Events(ctx, provenance.Query{Session: session}) {
		if err != nil {
			return written, err
		}
		approvals.Add(e)
		st, err := NewStatement(e)
		if err != nil {
			return written, err
		}
		if st == nil {
			continue
		}
		st.Predicate.Approval = approvals.Of(e)
		raw, err := provenance.Encode(st)
		if err != nil {
			return written, err
		}
		if _, err := fmt.Fprintf(w, "%s\n", raw); err != nil {
			return written, err
		}
		written++
	}
	return written, nil
}
