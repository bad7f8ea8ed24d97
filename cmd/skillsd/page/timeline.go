package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Block is one call in a timeline: all of its events, from the request to the outcome.
type Block struct {
	Kind    string `json:"kind"`    // run, load, read, refusal, session or other
	Outcome string `json:"outcome"` // in words
	Class   string `json:"-"`       // of the outcome: good, bad, ask or plain

	Skill string `json:"skill,omitempty"`
	Path  string `json:"path,omitempty"`
	Steps []Step `json:"steps"` // its events, in order

	Args       []string      `json:"args,omitempty"`
	CWD        string        `json:"cwd,omitempty"`
	StdinBytes int64         `json:"stdinBytes,omitempty"`
	Target     string        `json:"target,omitempty"` // sandbox or host
	Script     digest.Digest `json:"script,omitempty"` // of its bytes
	Backend    string        `json:"backend,omitempty"`
	Network    string        `json:"network,omitempty"`
	DurationMS int64         `json:"durationMs,omitempty"`
	Evidence   string        `json:"evidence,omitempty"` // of the user's intent
	Answer     string        `json:"answer,omitempty"`   // of the user

	Denials  int      `json:"denials,omitempty"` // events that refuse it, or withhold its output
	Code     string   `json:"code,omitempty"`    // of a refusal or an error
	Detail   string   `json:"detail,omitempty"`
	Remedy   string   `json:"remedy,omitempty"`   // as sent to the model
	Operator string   `json:"operator,omitempty"` // how the operator can change it
	Note     string   `json:"note,omitempty"`
	Outputs  []Output `json:"outputs,omitempty"`

	In string `json:"-"` // the session

	approvalCode string // of a refused call that a user can approve

	want   string // the tree in a question
	joined bool   // its events were moved to another block
}

// Step is one event of a block.
type Step struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	What string    `json:"what"` // in words
	Kind string    `json:"kind"`
}

// Output is a file that a run left, or a text shown to the model.
type Output struct {
	Name     string `json:"name,omitempty"` // of the file
	Label    string `json:"label"`
	Bytes    int64  `json:"bytes"`
	Withheld bool   `json:"withheld,omitempty"` // from the model

	ID   string `json:"-"` // of the element
	Text string `json:"-"` // beginning of the text
	More int64  `json:"-"`
	Gone string `json:"-"` // why the text is missing
}

// First returns the number of the first event.
func (b Block) First() uint64 { return b.Steps[0].Seq }

// Start returns the time of the first event.
func (b Block) Start() time.Time { return b.Steps[0].Time }

// Waited returns the time from the first event to the last, in milliseconds.
func (b Block) Waited() int64 {
	return b.Steps[len(b.Steps)-1].Time.Sub(b.Steps[0].Time).Milliseconds()
}

// Bars are the parts of 100 in which a run waited, for a user or for a slot, and in which it ran; and both in
// words.
type Bars struct {
	Wait, Run int
	Words     string
}

// Bars returns the bars of a run, nil without one. The scale goes from a millisecond, near 0, to ten minutes.
func (b Block) Bars() *Bars {
	all := max(b.DurationMS, b.Waited())
	if b.Kind != "run" || b.Outcome == waits || all == 0 || b.Backend == "" && !b.asked() {
		return nil
	}
	length := 0
	for ms := all; ms > 0; ms = ms * 10 / 14 {
		length += 3
	}
	length = min(length, 100)
	run := int(int64(length) * b.DurationMS / all)
	words := "waited " + took(all-b.DurationMS)
	if b.Backend != "" {
		words += ", ran " + took(b.DurationMS)
	}
	return &Bars{length - run, run, words}
}

// asked reports whether a user was asked about the call.
func (b *Block) asked() bool {
	return slices.ContainsFunc(b.Steps, func(s Step) bool {
		return s.Kind == string(provenance.KindApprovalAsked) ||
			s.Kind == string(provenance.KindApprovalAnswered)
	})
}

// open reports whether a user may still answer its question.
func (b *Block) open(now time.Time, life time.Duration) bool {
	if b.Outcome != waits {
		return false
	}
	last := b.Steps[len(b.Steps)-1].Time
	return now.Before(last.Add(life))
}

// Outcomes of a call that waits for its user, and of a refused call.
const (
	waits   = "waits for the user"
	refused = "refused"
)

// Worst is the call of a session to look at first.
type Worst struct {
	Outcome string `json:"outcome"`
	Class   string `json:"-"`
	Seq     uint64 `json:"seq"` // of its first event
}

// worst returns the last of the worst calls: a failed run, else a refusal, else another failure, else a
// waiting or withheld call. It returns nil if nothing is wrong.
func (t *timeline) worst() *Worst {
	var found *Worst
	most := 0
	for _, b := range t.blocks {
		rank := 0
		switch {
		case b.Class == "bad" && b.Backend != "":
			rank = 4
		case b.Outcome == refused:
			rank = 3
		case b.Class == "bad":
			rank = 2
		case b.Class == "ask":
			rank = 1
		}
		if rank > 0 && rank >= most {
			found, most = &Worst{b.Outcome, b.Class, b.First()}, rank
		}
	}
	return found
}

// timeline is a record grouped by call.
type timeline struct {
	blocks    []*Block
	snapshots []Step // events that only say which files describe the moment
	info      provenance.SessionInfo
	head      provenance.Head
	fault     string // why the rest of the record is unreadable
}

// group groups events into a timeline. Of a record that cannot be read to its end, it uses the readable part.
func group(events iter.Seq2[*provenance.Event, error]) *timeline {
	t := &timeline{}
	byOutput, asked := map[string]*Block{}, []*Block{}
	for e, err := range events {
		if err != nil {
			t.fault = err.Error()
			break
		}
		t.head = provenance.Head{Seq: e.Seq, Hash: e.Hash}
		step := Step{Seq: e.Seq, Time: e.Time, What: label(e), Kind: string(e.Kind)}
		if e.Kind == provenance.KindRegistrySnapshot {
			step.What = e.Detail
			t.snapshots = append(t.snapshots, step)
			continue
		}
		if info, err := e.SessionInfo(); err == nil && info != nil && e.Seq == 1 {
			t.info = *info
		}
		// Records of earlier servers have no calls.
		output := cmp.Or(e.Call, outputOf(e))
		b := byOutput[output]
		if b == nil {
			b = &Block{Skill: e.Skill, Path: e.Path, In: e.Session}
			t.blocks = append(t.blocks, b)
			if output != "" {
				byOutput[output] = b
			}
		}
		if e.Kind == provenance.KindApprovalAnswered {
			open := slices.DeleteFunc(slices.Clone(asked), func(q *Block) bool {
				return e.Call != "" || q == b || q.Skill != e.Skill || q.Path != e.Path || q.want != e.Want
			})
			switch len(open) {
			case 0:
			case 1:
				// The client called again with the answer: for a reader, both calls are one.
				question := open[0]
				question.Steps, b.joined = append(question.Steps, b.Steps...), true
				b, byOutput[output] = question, question
			default:
				b.Note = "answers one of the questions"
				for _, q := range open {
					b.Note += fmt.Sprintf(" #%d", q.First())
				}
				b.Note += ", which are about the same script"
			}
			asked = slices.DeleteFunc(asked, func(q *Block) bool { return q == b })
		}
		b.Steps = append(b.Steps, step)
		b.add(e)
		if e.Kind == provenance.KindApprovalAsked {
			asked = append(asked, b)
		}
	}
	t.blocks = slices.DeleteFunc(t.blocks, func(b *Block) bool { return b.joined })
	return t
}

// outputOf returns the output id of an event, empty without one.
func outputOf(e *provenance.Event) string {
	var row struct {
		OutputID string `json:"outputId"`
	}
	switch e.Kind {
	case provenance.KindScriptRequested, provenance.KindScriptExecuted, provenance.KindApprovalAsked,
		provenance.KindApprovalAnswered:
		_ = json.Unmarshal(e.Row, &row) // without it the event is a block of its own
		return row.OutputID
	case provenance.KindPolicyDenied:
		if d := decisionOf(e); d.Skillsd != nil {
			return d.Skillsd.OutputID
		}
	}
	return ""
}

func decisionOf(e *provenance.Event) (d cfharness.PolicyDecision) {
	if len(e.Decision) == 0 || json.Unmarshal(e.Decision, &d) != nil {
		return cfharness.PolicyDecision{}
	}
	return d
}

// label describes the kind of an event in words.
func label(e *provenance.Event) string {
	words := map[provenance.Kind]string{
		provenance.KindSessionStarted: "started", provenance.KindSessionResumed: "resumed",
		provenance.KindSessionEnded: "ended", provenance.KindSkillActivated: "loaded",
		provenance.KindResourceRead: "read", provenance.KindScriptRequested: "requested",
		provenance.KindScriptExecuted: "finished", provenance.KindPolicyWarned: "warned",
		provenance.KindPolicyDenied: refused, provenance.KindApprovalAsked: "user asked",
		provenance.KindApprovalAnswered: "user answered", provenance.KindDriftDetected: "file changed",
		provenance.KindOutputsRemoved: "outputs removed",
	}
	if word, ok := words[e.Kind]; ok {
		return word
	}
	return string(e.Kind)
}

// add adds an event to its block.
func (b *Block) add(e *provenance.Event) {
	switch e.Kind {
	case provenance.KindScriptRequested:
		b.is("run", "no outcome yet", "ask")
	case provenance.KindApprovalAsked:
		b.is("run", waits, "ask")
		b.want = e.Want
		var row cfharness.ScriptRequest
		if json.Unmarshal(e.Row, &row) == nil {
			b.Args, b.CWD, b.Target, b.Script = row.Args, row.CWD, row.Target, row.Digest
			if row.Stdin != nil {
				b.StdinBytes = row.Stdin.Bytes
			}
		}
	case provenance.KindApprovalAnswered:
		b.is("run", "answered: "+e.Detail, "ask")
		b.Answer = e.Detail
	case provenance.KindScriptExecuted:
		b.ran(e)
	case provenance.KindPolicyDenied:
		b.refused(e)
	case provenance.KindSkillActivated:
		b.is("load", cfharness.Summary(e), "good")
		if e.ErrorCode() != "" {
			b.Class, b.Code = "bad", e.ErrorCode()
		}
	case provenance.KindResourceRead:
		b.is("read", cfharness.Summary(e), "good")
		if e.ErrorCode() != "" {
			b.Class, b.Code = "bad", e.ErrorCode()
		}
	case provenance.KindSessionStarted, provenance.KindSessionResumed, provenance.KindSessionEnded:
		b.is("session", label(e), "plain")
		if e.Detail != b.Outcome {
			b.Detail = e.Detail
		}
	case provenance.KindDriftDetected, provenance.KindPolicyWarned:
		b.is("other", label(e), "ask")
		b.Detail = cfharness.Summary(e)
	default:
		b.is("other", label(e), "plain")
		b.Detail = e.Detail
	}
}

func (b *Block) is(kind, outcome, class string) { b.Kind, b.Outcome, b.Class = kind, outcome, class }

func (b *Block) refused(e *provenance.Event) {
	if b.Kind == "" {
		b.Kind = "refusal"
	}
	b.Outcome, b.Class = refused, "bad"
	b.Denials++
	var row cfharness.PolicyEvent
	if json.Unmarshal(e.Row, &row) == nil && row.ObservationDenied != nil {
		b.Remedy, b.Code, b.Detail = row.ObservationDenied.Remedy, row.ObservationDenied.Code,
			row.ObservationDenied.Detail
		b.approvalCode = row.ObservationDenied.ApprovalCode
	}
	d := decisionOf(e)
	if b.Detail == "" {
		b.Detail = e.Detail
	}
	if d.Skillsd != nil {
		b.Operator = d.Skillsd.Operator
		if d.Skillsd.Code != "" {
			b.Code = d.Skillsd.Code
		}
	}
}

func (b *Block) ran(e *provenance.Event) {
	b.is("run", cfharness.Summary(e), "good")
	var row cfharness.ScriptExecution
	if json.Unmarshal(e.Row, &row) != nil {
		return
	}
	b.Args, b.CWD, b.Target, b.Script = row.Args, row.CWD, row.ExecutionTarget, row.ObservedDigest
	if row.ExitCode == nil || *row.ExitCode != 0 {
		b.Class = "bad"
	}
	if b.Code == "outcome_unknown" { // this late outcome replaces it
		b.Code, b.Detail = "", ""
	}
	if row.Error != nil {
		b.Code, b.Detail = row.Error.Code, row.Error.Message
	} else if b.Denials > 0 {
		b.Outcome += ", output withheld"
		if b.Class == "good" {
			b.Class = "ask"
		}
	}
	if d := decisionOf(e); d.Skillsd != nil {
		b.Evidence = d.Skillsd.Evidence
	}
	withheld, given := map[string]bool{}, map[string]string{} // original names of kept files
	if x := row.Skillsd; x != nil {
		b.Backend, b.Network, b.DurationMS = x.Backend, x.Network, x.DurationMS
		withheld["stdout"], withheld["stderr"] = x.Stdout.Withheld != "", x.Stderr.Withheld != ""
		for _, out := range x.Out {
			given[path.Base(out.URI)] = "/out/" + out.Name
		}
	}
	prefix := provenance.OutputName(row.OutputID, "")
	for _, f := range e.Files {
		name, ok := strings.CutPrefix(f.Name, provenance.OutputsDir+"/")
		if !ok {
			continue
		}
		o := Output{Name: name, Label: strings.TrimPrefix(f.Name, prefix), Bytes: f.Size}
		o.Withheld, o.Label = withheld[o.Label], cmp.Or(given[name], o.Label)
		b.Outputs = append(b.Outputs, o)
	}
}
