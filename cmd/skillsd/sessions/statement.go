package sessions

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/story"
)

// statementType is the type of a statement.
const statementType = "https://in-toto.io/Statement/v1"

// ExecutionType is the type of the predicate of a statement.
const ExecutionType = "https://github.com/skillsd/skillsd/provenance/script-execution/v1"

// statement is an in-toto Statement (version 1) about one run of a script: its outputs are the subject, and
// the facts of its run are the predicate. It is unsigned.
type statement struct {
	Type          string          `json:"_type"`
	Subject       []subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     scriptPredicate `json:"predicate"`
}

// subject is an output of the run: its complete standard output or standard error, named "<outputId>:stdout"
// and "<outputId>:stderr", or a file "<outputId>:out/<file>".
type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"` // "sha256" to lower-case hex
}

// scriptPredicate is the predicate of type ExecutionType. Arguments are as recorded, with declared secrets
// redacted.
type scriptPredicate struct {
	Skill  predicateSkill          `json:"skill"`
	Script predicateScript         `json:"script"`
	Argv   provenance.List[string] `json:"argv"`
	Args   provenance.List[string] `json:"args"`
	CWD    string                  `json:"cwd,omitempty"`
	// Stdin is also nil if the record does not have it.
	Stdin *cfharness.TextSummary `json:"stdin,omitempty"`
	// Environment is the environment of packages for the script; nil if it had none.
	Environment *predicateEnvironment `json:"environment,omitempty"`
	StartedAt   provenance.Timestamp  `json:"startedAt"`
	Result      predicateResult       `json:"result"`
	Sandbox     predicateSandbox      `json:"sandbox"`
	// Policy is the [cfharness.PolicyDecision] with its evidence, or null.
	Policy   json.RawMessage                  `json:"policy"`
	Approval *approval                        `json:"approval,omitempty"`
	Record   predicateRecord                  `json:"record"`
	Files    provenance.List[provenance.File] `json:"files"` // of the session, as stored
}

// approval is the answer of a user that allowed the script to run.
type approval struct {
	Seq        uint64 `json:"seq"`        // of the approval.answered event
	Remembered bool   `json:"remembered"` // valid for all later calls of the session
}

// predicateSkill identifies the skill by content.
type predicateSkill struct {
	Path string            `json:"path"`
	Tree map[string]string `json:"treeDigest"`
	// Origin is the source of these files; nil if the record does not have it.
	Origin *cfharness.SkillOrigin `json:"origin,omitempty"`
}

// predicateEnvironment identifies a tree of packages by content.
type predicateEnvironment struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
	// Root is the root file system that replaced the host's; nil if none did.
	Root map[string]string `json:"root,omitempty"`
}

// predicateScript identifies the script by content.
type predicateScript struct {
	Path    string            `json:"path"`
	Digest  map[string]string `json:"digest"`
	Runtime string            `json:"runtime,omitempty"`
}

// predicateResult is how the run ended.
type predicateResult struct {
	Outcome    cfharness.Outcome `json:"outcome"`
	ExitCode   *int              `json:"exitCode,omitempty"`
	Signal     string            `json:"signal,omitempty"`
	DurationMS int64             `json:"durationMs"`
}

// predicateSandbox is the isolation and the limits of the run.
type predicateSandbox struct {
	Target    string              `json:"target"` // sandbox or host
	Backend   string              `json:"backend"`
	Limits    cfharness.RunLimits `json:"limits"`
	Network   string              `json:"network"`
	Workspace string              `json:"workspace"`
}

// predicateRecord is the position of the run in the record of its session. The hash covers the event and,
// through its chain, every earlier event.
type predicateRecord struct {
	Session   string `json:"session"`
	Seq       uint64 `json:"seq"`
	Hash      string `json:"hash"`
	Principal string `json:"principal"`
	Client    string `json:"client,omitempty"`
	Parent    string `json:"parent,omitempty"`
	OutputID  string `json:"outputId"`
}

// newStatement returns the statement of the end of a run, or nil for other steps and for scripts that did not
// start.
//
// Errors: ErrInvalid if the row is malformed.
func newStatement(e *story.Step) (*statement, error) {
	if e.Action != story.Ran {
		return nil, nil
	}
	if e.Malformed != nil {
		return nil, fmt.Errorf("%w: session %s: %v", provenance.ErrInvalid, e.Event.Session, e.Malformed)
	}
	row, x := e.Run, e.Facts()
	// Without the digest of the script the statement would not identify what ran.
	if row == nil || row.Skillsd == nil || row.Status != cfharness.StatusExecuted ||
		row.ObservedDigest == "" {
		return nil, nil
	}
	p := scriptPredicate{
		Skill:  predicateSkill{Path: e.Skill, Tree: digestSet(x.TreeDigest), Origin: x.Origin},
		Script: predicateScript{Path: row.Path, Digest: digestSet(row.ObservedDigest), Runtime: row.Runtime},
		Argv:   row.Argv, Args: row.Args, CWD: row.CWD, StartedAt: row.ExecutedAt,
		Result: predicateResult{Outcome: x.Outcome, ExitCode: row.ExitCode, Signal: x.Signal,
			DurationMS: x.DurationMS},
		Sandbox: predicateSandbox{Target: row.ExecutionTarget, Backend: x.Backend, Limits: x.Limits,
			Network: x.Network, Workspace: x.Workspace},
		Policy: e.Decision, Files: e.Files,
		Record: predicateRecord{Session: e.Event.Session, Seq: e.Seq, Hash: e.Hash, Principal: e.Principal,
			Client: e.Client, Parent: e.Parent, OutputID: row.OutputID},
	}
	if env := x.Environment; env != nil {
		p.Environment = &predicateEnvironment{Name: env.Name, Digest: digestSet(env.Digest)}
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
	return &statement{statementType, subjects(row), ExecutionType, p}, nil
}

// approvals records which answers allowed scripts to run. Its size grows only with the answers. The zero
// approvals is ready to use.
type approvals struct {
	calls      map[string]approval  // by output id
	remembered map[[3]string]uint64 // by skill, script and tree
}

// add adds the next step of the session. All steps must be added in order.
func (a *approvals) add(e *story.Step) {
	remembered := e.Detail == cfharness.ApprovalRemembered
	allowed := remembered || e.Detail == cfharness.ApprovalAccepted ||
		strings.HasPrefix(e.Detail, cfharness.ApprovalBy)
	if e.Action != story.Answered || !allowed {
		return
	}
	if a.calls == nil {
		a.calls, a.remembered = make(map[string]approval), make(map[[3]string]uint64)
	}
	if remembered {
		a.remembered[[3]string{e.Skill, e.Path, e.Want}] = e.Seq
	}
	if e.Request != nil && e.Request.OutputID != "" {
		a.calls[e.Request.OutputID] = approval{Seq: e.Seq, Remembered: remembered}
	}
}

// of returns the answer that allowed the script of a run to start. It is nil if the evidence of its decision
// is not an approval, or if the record lacks the answer.
func (a *approvals) of(e *story.Step) *approval {
	decided := e.Ruling().Skillsd
	if decided == nil || decided.Evidence != "approval" || e.Run == nil || e.Run.Skillsd == nil {
		return nil
	}
	// An answer to this very call is more precise than a remembered one for the same script.
	if given, ok := a.calls[e.Run.OutputID]; ok {
		return &given
	}
	if seq, ok := a.remembered[[3]string{e.Skill, e.Path, e.Facts().TreeDigest.String()}]; ok {
		return &approval{Seq: seq, Remembered: true}
	}
	return nil
}

func subjects(row *cfharness.ScriptExecution) []subject {
	list := []subject{} // never null
	add := func(name string, d digest.Digest) {
		if set := digestSet(d); len(set) > 0 {
			list = append(list, subject{row.OutputID + ":" + name, set})
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

// WriteStatements writes an in-toto statement for each run of a session, one per line, and returns their
// number.
//
// Errors: the errors of reading the session, or of writing.
func WriteStatements(
	ctx context.Context, w io.Writer, records provenance.Reader, session string,
) (int, error) {
	var given approvals
	written := 0
	for e, err := range records.Events(ctx, provenance.Query{Session: session}) {
		if err != nil {
			return written, err
		}
		step := story.StepOf(e)
		given.add(step)
		st, err := newStatement(step)
		if err != nil {
			return written, err
		}
		if st == nil {
			continue
		}
		st.Predicate.Approval = given.of(step)
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
