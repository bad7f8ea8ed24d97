// Package story reads a record as people do: each event is a typed step, and steps belong to calls.
package story

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Action is the kind of a step.
type Action string

// The kinds of steps. The fields of a Step named in the comments are set for these steps. Package evals
// writes the strings of Loaded, Read, Ran and Refused into its files.
const (
	Opened    Action = "opened" // the session started or was resumed: Session
	Ended     Action = "ended"
	Snapshot  Action = "snapshot"  // Detail is the file that describes the server from now on
	Loaded    Action = "loaded"    // a skill was activated, or failed to be: Activation
	Read      Action = "read"      // Resource
	Requested Action = "requested" // a run: Request
	Asked     Action = "asked"     // the user, about a run: Request
	Answered  Action = "answered"  // Request
	Ran       Action = "ran"       // the end of a run, including a script that did not start: Run
	Refused   Action = "denied"    // Policy
	Warned    Action = "warned"    // Policy
	Undid     Action = "undone"    // the user undid the changes of a run: Undone
	Changed   Action = "changed"   // Got is the digest of a file, which was Want when it was loaded
	Other     Action = "other"
)

// Step is an event with its row decoded. At most one of the rows is not nil: rows are nil for events without
// one, and for malformed rows.
type Step struct {
	*provenance.Event
	Action Action

	Session    *provenance.SessionInfo
	Activation *cfharness.Activation
	Resource   *cfharness.ResourceRead
	Request    *cfharness.ScriptRequest
	Run        *cfharness.ScriptExecution
	Policy     *cfharness.PolicyEvent
	Undone     *cfharness.Undone

	// Malformed is the error of decoding the row, or nil.
	Malformed error

	// First is the sequence number of the first event of the call that the step belongs to: the start and the
	// end of a run have the same. It is set by Calls.Add, like the next fields.
	First uint64
	// Joins is the First of another call, if the step shows that its steps belong to this call; else 0.
	Joins uint64
	// Questions are the first events of the questions that an answer may be about, if there are several.
	Questions []uint64
}

// StepOf returns the step of an event. The step aliases the event.
func StepOf(e *provenance.Event) *Step {
	s := &Step{Event: e}
	switch e.Kind.Facts().Form {
	case provenance.FormSession:
		s.Action, s.Session = Opened, row[provenance.SessionInfo](s)
	case provenance.FormActivation:
		s.Action, s.Activation = Loaded, row[cfharness.Activation](s)
	case provenance.FormRead:
		s.Action, s.Resource = Read, row[cfharness.ResourceRead](s)
	case provenance.FormRequest:
		s.Action, s.Request = Requested, row[cfharness.ScriptRequest](s)
	case provenance.FormQuestion:
		s.Action, s.Request = Asked, row[cfharness.ScriptRequest](s)
	case provenance.FormRun:
		s.Action, s.Run = Ran, row[cfharness.ScriptExecution](s)
	case provenance.FormPolicy:
		s.Action, s.Policy = Warned, row[cfharness.PolicyEvent](s)
	case provenance.FormUndo:
		s.Action, s.Undone = Undid, row[cfharness.Undone](s)
	default:
		s.Action = Other
	}
	// These kinds differ from others with rows of their form.
	switch e.Kind {
	case provenance.KindSessionEnded:
		s.Action = Ended
	case provenance.KindRegistrySnapshot:
		s.Action = Snapshot
	case provenance.KindApprovalAnswered:
		s.Action = Answered
	case provenance.KindPolicyDenied:
		s.Action = Refused
	case provenance.KindDriftDetected:
		s.Action = Changed
	}
	return s
}

// row decodes the row of a step.
func row[T any](s *Step) *T {
	if len(s.Row) == 0 {
		return nil
	}
	row := new(T)
	if err := json.Unmarshal(s.Row, row); err != nil {
		s.Malformed = fmt.Errorf("row of event %d: %w", s.Seq, err)
		return nil
	}
	return row
}

// Ruling returns the decision of the event, or the zero value if it has none that is well-formed.
func (s *Step) Ruling() (d cfharness.PolicyDecision) {
	if len(s.Decision) == 0 || json.Unmarshal(s.Decision, &d) != nil {
		return cfharness.PolicyDecision{}
	}
	return d
}

// Code returns the code of a refusal, or of an attempt to load, read or run that failed; else "".
func (s *Step) Code() string {
	switch {
	case s.Action == Loaded:
		return s.ErrorCode()
	case s.Action == Refused && s.Policy != nil && s.Policy.ObservationDenied != nil:
		return s.Policy.ObservationDenied.Code
	case s.Resource != nil && s.Resource.Error != nil:
		return s.Resource.Error.Code
	case s.Run != nil && s.Run.Error != nil:
		return s.Run.Error.Code
	}
	return ""
}

// Failed reports whether a skill was not loaded, a file not read, a script not started, or a call refused.
func (s *Step) Failed() bool {
	return s.Code() != "" || s.Action == Refused ||
		s.Resource != nil && s.Resource.Status == cfharness.StatusError ||
		s.Run != nil && s.Run.Status == cfharness.StatusError
}

// Facts returns the facts of a run that started. They are empty for other steps.
func (s *Step) Facts() *cfharness.RunExtension {
	if s.Run == nil || s.Run.Skillsd == nil {
		return &cfharness.RunExtension{}
	}
	return s.Run.Skillsd
}

// Calls links the steps of a session to calls. Its size grows with the number of calls. The zero Calls is
// ready to use; it is not safe for concurrent use.
type Calls struct {
	byID  map[string]*call
	asked []*call // questions without an answer
}

// call is the part of a call that later steps are compared with.
type call struct {
	first             uint64
	skill, path, tree string
}

// Add links s, which must be the next step of the session.
func (c *Calls) Add(s *Step) {
	id := s.Call
	// Records of earlier servers have no calls.
	if id == "" {
		id = cfharness.OutputID(s.Event)
	}
	of := c.byID[id]
	known := of != nil
	if !known {
		of = &call{first: s.Seq, skill: s.Skill, path: s.Path}
		c.name(id, of)
	}
	switch s.Action {
	case Asked:
		of.tree = s.Want
		c.asked = append(c.asked, of)
	case Answered:
		if open := c.questions(s, of); len(open) == 1 {
			// The client called again with the answer: for a reader, both calls are one.
			if known {
				s.Joins = of.first
			}
			of = open[0]
			c.name(id, of)
		} else {
			for _, question := range open {
				s.Questions = append(s.Questions, question.first)
			}
		}
		c.asked = slices.DeleteFunc(c.asked, func(question *call) bool { return question == of })
	}
	s.First = of.first
}

// name makes later events with an id part of a call. An event without an id is a call of its own.
func (c *Calls) name(id string, of *call) {
	if id == "" {
		return
	}
	if c.byID == nil {
		c.byID = map[string]*call{}
	}
	c.byID[id] = of
}

// questions returns the questions of other calls that an answer in the call of may be about. The events of a
// question and of its answer have the same call, so these are only in records without calls.
func (c *Calls) questions(s *Step, of *call) (open []*call) {
	if s.Call != "" {
		return nil
	}
	for _, q := range c.asked {
		if q != of && q.skill == s.Skill && q.path == s.Path && q.tree == s.Want {
			open = append(open, q)
		}
	}
	return open
}
