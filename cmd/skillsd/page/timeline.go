package page

import (
	"cmp"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/story"
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
	Undo     *Undo    `json:"undo,omitempty"` // of a run that changed a workspace and whose changes are kept

	In string `json:"-"` // the session

	approvalCode string // of a refused call that a user can approve
	asked        bool   // a user was asked about the call
	why          string // of a refusal, in the words of a user
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

// Undo describes whether the changes of a run can be undone, or were.
type Undo struct {
	OutputID string     `json:"outputId"` // of the run, for `skillsd undo`
	Entries  int        `json:"entries"`  // changed files and directories
	Problem  string     `json:"problem,omitempty"`
	Undone   *time.Time `json:"undone,omitempty"`
	Session  string     `json:"session,omitempty"` // that recorded the undoing
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
	if b.Kind != "run" || b.Outcome == waits || all == 0 || b.Backend == "" && !b.asked {
		return nil
	}
	length := 0
	// The scale is logarithmic, so that a run of a second is visible next to a wait of minutes.
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
	var calls story.Calls
	byFirst, joined := map[uint64]*Block{}, map[*Block]bool{}
	for e, err := range events {
		if err != nil {
			t.fault = err.Error()
			break
		}
		t.head = provenance.Head{Seq: e.Seq, Hash: e.Hash}
		s := story.StepOf(e)
		step := Step{Seq: s.Seq, Time: s.Time, What: s.Kind.Facts().Word, Kind: string(s.Kind)}
		if s.Action == story.Snapshot {
			step.What = s.Detail
			t.snapshots = append(t.snapshots, step)
			continue
		}
		// Only the first event describes the session.
		if s.Session != nil && s.Seq == 1 {
			t.info = *s.Session
		}
		calls.Add(s)
		b := byFirst[s.First]
		if b == nil {
			b = &Block{Skill: s.Skill, Path: s.Path, In: s.Event.Session}
			t.blocks = append(t.blocks, b)
			byFirst[s.First] = b
		}
		// The client called again with the answer, and for the reader both calls are one.
		if other := byFirst[s.Joins]; other != nil {
			b.Steps, joined[other] = append(b.Steps, other.Steps...), true
		}
		b.Steps = append(b.Steps, step)
		b.add(s)
	}
	t.blocks = slices.DeleteFunc(t.blocks, func(b *Block) bool { return joined[b] })
	return t
}

// add adds a step to its block.
func (b *Block) add(s *story.Step) {
	switch s.Action {
	case story.Requested:
		b.is("run", "no outcome yet", "ask")
	case story.Asked:
		b.is("run", waits, "ask")
		b.asked = true
		if row := s.Request; row != nil {
			b.Args, b.CWD, b.Target, b.Script = row.Args, row.CWD, row.Target, row.Digest
			if row.Stdin != nil {
				b.StdinBytes = row.Stdin.Bytes
			}
		}
	case story.Answered:
		b.is("run", "answered: "+s.Detail, "ask")
		b.Answer, b.asked = s.Detail, true
		if len(s.Questions) > 0 {
			b.Note = "answers one of the questions"
			for _, seq := range s.Questions {
				b.Note += fmt.Sprintf(" #%d", seq)
			}
			b.Note += ", which are about the same script"
		}
	case story.Ran:
		b.ran(s)
	case story.Refused:
		b.refused(s)
	case story.Loaded:
		b.shown("load", s)
	case story.Read:
		b.shown("read", s)
	case story.Undid:
		b.is("undo", "undone", "good")
		b.Detail = s.Detail
		if s.Undone != nil && len(s.Undone.Refused()) > 0 {
			b.Class = "ask"
		}
	case story.Opened, story.Ended:
		b.is("session", s.Kind.Facts().Word, "plain")
		if text := s.Summary(); text != b.Outcome {
			b.Detail = text
		}
	default:
		b.is("other", s.Kind.Facts().Word, "plain")
		b.Detail = s.Detail
		if s.Kind.Facts().Alerts {
			b.Class, b.Detail = "ask", s.Summary()
		}
	}
}

func (b *Block) is(kind, outcome, class string) { b.Kind, b.Outcome, b.Class = kind, outcome, class }

// shown adds the outcome of loading a skill or reading a file.
func (b *Block) shown(kind string, s *story.Step) {
	b.is(kind, s.Summary(), "good")
	if code := s.Code(); code != "" {
		b.Class, b.Code = "bad", code
	}
}

func (b *Block) refused(s *story.Step) {
	if b.Kind == "" {
		b.Kind = "refusal"
	}
	b.Outcome, b.Class = refused, "bad"
	b.Denials++
	if s.Policy != nil && s.Policy.ObservationDenied != nil {
		denied := s.Policy.ObservationDenied
		b.Remedy, b.Code, b.Detail = denied.Remedy, denied.Code, denied.Detail
		b.approvalCode = denied.ApprovalCode
	}
	b.Detail, b.why = cmp.Or(b.Detail, s.Detail), s.Summary()
	if x := s.Ruling().Skillsd; x != nil {
		b.Operator = x.Operator
		b.Code = cmp.Or(x.Code, b.Code)
	}
}

func (b *Block) ran(s *story.Step) {
	b.is("run", s.Summary(), "good")
	row := s.Run
	if row == nil {
		return
	}
	b.Args, b.CWD, b.Target, b.Script = row.Args, row.CWD, row.ExecutionTarget, row.ObservedDigest
	if row.ExitCode == nil || *row.ExitCode != 0 {
		b.Class = "bad"
	}
	if b.Code == "outcome_unknown" { // this late outcome replaces it
		b.Code, b.Detail, b.why = "", "", ""
	}
	if row.Error != nil {
		b.why = ""
		b.Code, b.Detail = row.Error.Code, row.Error.Message
	} else if b.Denials > 0 {
		b.Outcome += ", output withheld"
		if b.Class == "good" {
			b.Class = "ask"
		}
	}
	if x := s.Ruling().Skillsd; x != nil {
		b.Evidence = x.Evidence
	}
	withheld, given := map[string]bool{}, map[string]string{} // original names of kept files
	if x := row.Skillsd; x != nil {
		b.Backend, b.Network, b.DurationMS = x.Backend, x.Network, x.DurationMS
		if x.Kept != nil {
			b.Undo = &Undo{OutputID: row.OutputID, Entries: x.Kept.Entries, Problem: x.Kept.Problem}
		}
		withheld["stdout"], withheld["stderr"] = x.Stdout.Withheld != "", x.Stderr.Withheld != ""
		for _, out := range x.Out {
			given[path.Base(out.URI)] = "/out/" + out.Name
		}
	}
	prefix := provenance.OutputName(row.OutputID, "")
	for _, f := range s.Files {
		name, ok := strings.CutPrefix(f.Name, provenance.OutputsDir+"/")
		if !ok {
			continue
		}
		o := Output{Name: name, Label: strings.TrimPrefix(f.Name, prefix), Bytes: f.Size}
		o.Withheld, o.Label = withheld[o.Label], cmp.Or(given[name], o.Label)
		b.Outputs = append(b.Outputs, o)
	}
}
