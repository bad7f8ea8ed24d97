// Package intoto describes a recorded run of a script as an in-toto statement.
package intoto

import (
	"encoding/json"
	"fmt"
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

// Statement is an in-toto Statement (version 1) about one run of a script: what it left behind is
// the subject, how it came about the predicate. It is unsigned.
type Statement struct {
	Type          string          `json:"_type"`
	Subject       []Subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     ScriptPredicate `json:"predicate"`
}

// Subject is an output of the run: its whole standard output or standard error, named
// "<outputId>:stdout" and "<outputId>:stderr", or "<outputId>:out/<file>".
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"` // "sha256" to lower-case hex
}

// ScriptPredicate is the predicate of type ExecutionType. Arguments are as they were recorded, with
// declared secrets redacted.
type ScriptPredicate struct {
	Skill     PredicateSkill                   `json:"skill"`
	Script    PredicateScript                  `json:"script"`
	Argv      provenance.List[string]          `json:"argv"`
	Args      provenance.List[string]          `json:"args"`
	CWD       string                           `json:"cwd,omitempty"`
	Stdin     *cfharness.TextSummary           `json:"stdin,omitempty"` // nil also when the record does not say
	StartedAt provenance.Timestamp             `json:"startedAt"`
	Result    PredicateResult                  `json:"result"`
	Sandbox   PredicateSandbox                 `json:"sandbox"`
	Policy    json.RawMessage                  `json:"policy"` // the [cfharness.PolicyDecision] with its evidence, or null
	Approval  *Approval                        `json:"approval,omitempty"`
	Record    PredicateRecord                  `json:"record"`
	Files     provenance.List[provenance.File] `json:"files"` // of the session directory, as they were kept
}

// Approval is the answer of a user that let the script run.
type Approval struct {
	Seq        uint64 `json:"seq"`        // of the approval.answered event
	Remembered bool   `json:"remembered"` // it was given for the rest of the session
}

// PredicateSkill names the skill by content.
type PredicateSkill struct {
	Path string            `json:"path"`
	Tree map[string]string `json:"treeDigest"`
}

// PredicateScript names the script by content.
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

// PredicateSandbox is what the run was held to.
type PredicateSandbox struct {
	Target    string              `json:"target"` // sandbox or host
	Backend   string              `json:"backend"`
	Limits    cfharness.RunLimits `json:"limits"`
	Network   string              `json:"network"`
	Workspace string              `json:"workspace"`
}

// PredicateRecord is where the run stands in the record of its session. The hash covers the event
// and through its chain every one before it.
type PredicateRecord struct {
	Session   string `json:"session"`
	Seq       uint64 `json:"seq"`
	Hash      string `json:"hash"`
	Principal string `json:"principal"`
	Client    string `json:"client,omitempty"`
	Parent    string `json:"parent,omitempty"`
	OutputID  string `json:"outputId"`
}

// NewStatement returns the statement of a skill.script_executed event, or nil for an event that is
// none or tells of a script that did not start.
//
// Errors: ErrInvalid for a row that is none.
func NewStatement(e *provenance.Event) (*Statement, error) {
	if e.Kind != provenance.KindScriptExecuted {
		return nil, nil
	}
	var row cfharness.ScriptExecution
	if err := json.Unmarshal(e.Row, &row); err != nil {
		return nil, fmt.Errorf("%w: row of event %s: %v", provenance.ErrInvalid, e.ID(), err)
	}
	x := row.Skillsd
	if row.Status != cfharness.StatusExecuted || x == nil || row.ObservedDigest == "" {
		return nil, nil
	}
	st := &Statement{Type: StatementType, PredicateType: ExecutionType, Subject: subjects(&row)}
	st.Predicate = ScriptPredicate{
		Skill:  PredicateSkill{Path: e.Skill, Tree: digestSet(x.TreeDigest)},
		Script: PredicateScript{Path: row.Path, Digest: digestSet(row.ObservedDigest), Runtime: row.Runtime},
		Argv:   row.Argv, Args: row.Args, CWD: row.CWD, StartedAt: row.ExecutedAt,
		Result:  PredicateResult{Outcome: x.Outcome, ExitCode: row.ExitCode, Signal: x.Signal, DurationMS: x.DurationMS},
		Sandbox: PredicateSandbox{Target: row.ExecutionTarget, Backend: x.Backend, Limits: x.Limits, Network: x.Network, Workspace: x.Workspace},
		Policy:  e.Decision, Files: e.Files,
		Record: PredicateRecord{Session: e.Session, Seq: e.Seq, Hash: e.Hash, Principal: e.Principal, Client: e.Client, Parent: e.Parent, OutputID: row.OutputID},
	}
	var given cfharness.InvocationContext
	if len(e.Invocation) > 0 && json.Unmarshal(e.Invocation, &given) == nil {
		st.Predicate.Stdin = given.Inputs.Stdin
	}
	if len(st.Predicate.Policy) == 0 {
		st.Predicate.Policy = json.RawMessage("null")
	}
	return st, nil
}

// Approvals follows which answers let scripts run. Its size grows with the answers only. The zero
// Approvals is ready; it is not safe for concurrent use.
type Approvals struct {
	calls      map[string]Approval  // by output id
	remembered map[[3]string]uint64 // by skill, script and tree
}

// Add follows an event of the session, all of which come in order.
func (a *Approvals) Add(e *provenance.Event) {
	if e.Kind != provenance.KindApprovalAnswered || e.Detail != cfharness.ApprovalAccepted && e.Detail != cfharness.ApprovalRemembered {
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

// Of returns the answer that let the script of a skill.script_executed event run, or nil for none:
// when the evidence of its decision is not an approval, or the record does not have the answer.
func (a *Approvals) Of(e *provenance.Event) *Approval {
	var row cfharness.ScriptExecution
	var decision cfharness.PolicyDecision
	if json.Unmarshal(e.Decision, &decision) != nil || decision.Skillsd == nil || decision.Skillsd.Evidence != "approval" {
		return nil
	}
	if json.Unmarshal(e.Row, &row) != nil || row.Skillsd == nil {
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
	x := row.Skillsd
	list := []Subject{
		{row.OutputID + ":stdout", digestSet(x.Stdout.Digest)},
		{row.OutputID + ":stderr", digestSet(x.Stderr.Digest)},
	}
	for _, f := range x.Out {
		list = append(list, Subject{row.OutputID + ":out/" + f.Name, digestSet(f.Digest)})
	}
	kept := list[:0]
	for _, s := range list {
		if len(s.Digest) > 0 {
			kept = append(kept, s)
		}
	}
	return kept
}

// digestSet is a digest as in-toto writes it; one that is not sha256 is left out.
func digestSet(d digest.Digest) map[string]string {
	hex, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok {
		return map[string]string{}
	}
	return map[string]string{"sha256": hex}
}
