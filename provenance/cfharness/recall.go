package cfharness

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// Recollection is the state of a recorded session that a server needs to continue it.
type Recollection struct {
	Principal     string
	ClientSession string // the client's id for its session, from the last start or resumption
	Profile       string // profile of the session, from the last start or resumption
	Parent        string
	Child         bool   // the session belonged to Parent
	ParentSession string // Parent as named by the client
	// Modes are the enforcement modes of the session, from its events and decisions.
	Modes []string
	// Activations are the activations of the session, in order, with the last row for each pair of skill and
	// handle.
	Activations []Activation
	// Sent reports, by the path of each skill, whether its instructions were sent with its last activation.
	Sent map[string]bool
	// Outputs, Decisions and Invocations are upper bounds of the assigned numbers. The number of an
	// event that could not be recorded is missing from the record.
	Outputs, Decisions, Invocations uint64
	OutputIDs                       []string // output ids of the rows, in order
	// Unfinished are the events of requested scripts without an outcome, in order.
	Unfinished []*provenance.Event
}

// Recaller is a reader that can recall a session without reading all of its events.
type Recaller interface {
	// Recall returns the same result as a fold of all events.
	//
	// Errors: the errors of the function Recall.
	Recall(ctx context.Context, session string) (*Recollection, error)
}

// Recall folds the events of a session.
//
// Errors: the errors of Events, ErrCorrupt for a malformed row.
func Recall(ctx context.Context, records provenance.Reader, id string) (*Recollection, error) {
	if r, ok := records.(Recaller); ok {
		return r.Recall(ctx, id)
	}
	var f Fold
	for e, err := range records.Events(ctx, provenance.Query{Session: id}) {
		if err != nil {
			return nil, err
		}
		err = f.Add(e)
		if err != nil {
			return nil, err
		}
	}
	return f.Recollection(), nil
}

// FoldForm is the version of the stored form of a Fold. It is incremented whenever the result of a Fold
// changes.
const FoldForm = 3

// Fold makes the Recollection of a session from its events. It can be stored as JSON and continued. The zero
// Fold is ready to use.
type Fold struct {
	Head     provenance.Head              `json:"head"`     // the last event added
	Was      Recollection                 `json:"was"`      // without Unfinished and OutputIDs
	IDs      []string                     `json:"ids"`      // encoded OutputIDs; see addOutput
	Number   uint64                       `json:"number"`   // number of the last one
	Skills   []string                     `json:"skills"`   // skills of the events of Was.Activations
	Pending  Pending                      `json:"pending"`  // ids of Unfinished
	Requests map[string]*provenance.Event `json:"requests"` // by the ids in Pending

	at map[activationKey]int // index in Was.Activations; nil in a stored Fold
}

// Whole reports whether a stored Fold is consistent.
func (f *Fold) Whole() bool {
	for _, id := range f.Pending {
		if f.Requests[id] == nil {
			return false
		}
	}
	return len(f.Skills) == len(f.Was.Activations)
}

type activationKey struct{ path, handle string }

func keyOf(skill string, row *Activation) activationKey {
	k := activationKey{path: skill}
	if row.Skillsd != nil {
		k.handle = row.Skillsd.HandleDigest.String()
	}
	return k
}

// Recollection returns the state after the events added so far. Later events do not change it.
func (f *Fold) Recollection() *Recollection {
	r := f.Was
	r.Modes, r.Activations = slices.Clone(r.Modes), slices.Clone(r.Activations)
	r.Sent = maps.Clone(r.Sent)
	var number uint64
	for _, id := range f.IDs {
		step, name, _ := strings.Cut(id, "+")
		if n, err := strconv.ParseUint(step, 10, 64); err == nil {
			number += n
			id = name + strconv.FormatUint(number, 10)
		}
		r.OutputIDs = append(r.OutputIDs, strings.TrimPrefix(id, "="))
	}
	for _, id := range f.Pending {
		r.Unfinished = append(r.Unfinished, f.Requests[id])
	}
	return &r
}

// Add adds e, which must be the next event of the session. After an error the Fold must not be used.
//
// Errors: ErrCorrupt for a malformed row.
func (f *Fold) Add(e *provenance.Event) error {
	if err := f.add(e); err != nil {
		return fmt.Errorf("%w: event %s: %v", provenance.ErrCorrupt, e.ID(), err)
	}
	f.Head = provenance.Head{Seq: e.Seq, Hash: e.Hash}
	before := len(f.Pending)
	f.Pending.Add(e)
	switch {
	case len(f.Pending) > before:
		if f.Requests == nil {
			f.Requests = make(map[string]*provenance.Event)
		}
		request := *e
		f.Requests[f.Pending[before]] = &request
	case len(f.Pending) < before:
		maps.DeleteFunc(f.Requests, func(id string, _ *provenance.Event) bool {
			return !slices.Contains(f.Pending, id)
		})
	}
	if e.Kind != provenance.KindSkillActivated || len(e.Row) == 0 {
		return nil
	}
	return f.addActivation(e)
}

// addActivation adds the row of an activation, which replaces the row with its key.
func (f *Fold) addActivation(e *provenance.Event) error {
	var row Activation
	if err := json.Unmarshal(e.Row, &row); err != nil {
		return fmt.Errorf("%w: row of event %s: %v", provenance.ErrCorrupt, e.ID(), err)
	}
	r := &f.Was
	// A repeated activation sends nothing, because the instructions were sent before.
	if x := row.Skillsd; x != nil && !x.Repeated {
		if r.Sent == nil {
			r.Sent = make(map[string]bool)
		}
		r.Sent[x.Path] = row.SentBy(e)
	}
	// The index is not stored with the Fold.
	if f.at == nil {
		f.at = make(map[activationKey]int)
		for i := range r.Activations {
			f.at[keyOf(f.Skills[i], &r.Activations[i])] = i
		}
	}
	k := keyOf(e.Skill, &row)
	if i, known := f.at[k]; known {
		r.Activations[i] = row
		return nil
	}
	f.at[k] = len(r.Activations)
	r.Activations, f.Skills = append(r.Activations, row), append(f.Skills, e.Skill)
	return nil
}

// add adds the facts that every event may have: session, mode and numbers.
func (f *Fold) add(e *provenance.Event) error {
	r := &f.Was
	info, err := e.SessionInfo()
	if err != nil {
		return err
	}
	decision, err := e.Decided()
	if err != nil {
		return err
	}
	mode := decision.Mode
	if info != nil {
		r.ClientSession, r.Profile, mode = info.ClientSession, info.Profile, info.Mode
		r.Child, r.ParentSession = info.Child, info.ParentSession
	}
	r.Principal, r.Parent = e.Principal, cmp.Or(e.Parent, r.Parent)
	// A client can raise the mode in any call.
	if mode != "" && !slices.Contains(r.Modes, mode) {
		r.Modes = append(r.Modes, mode)
	}
	decided, _ := numbersOf(e.Decision)
	invoked, _ := numbersOf(e.Invocation)
	r.Decisions = max(r.Decisions, decided.Sequence)
	r.Invocations = max(r.Invocations, invoked.Sequence)
	row, ok := numbersOf(e.Row)
	if !ok {
		return nil
	}
	// Calls without a row have numbers too; there are at most as many as events.
	r.Outputs = max(r.Outputs, e.Seq)
	if row.OutputID != "" {
		f.addOutput(row.OutputID)
	}
	return nil
}

// addOutput adds the id of an output. There is one per event, and most differ only in their numbers. So an id
// is encoded as the step from the previous number, "+" and the rest; an id without a number follows "=".
func (f *Fold) addOutput(id string) {
	i := strings.LastIndexByte(id, ':') + 1
	n, err := strconv.ParseUint(id[i:], 10, 64)
	if err == nil {
		f.Was.Outputs = max(f.Was.Outputs, n)
	}
	if strconv.FormatUint(n, 10) != id[i:] {
		f.IDs = append(f.IDs, "="+id)
		return
	}
	f.IDs = append(f.IDs, strconv.FormatUint(n-f.Number, 10)+"+"+id[:i])
	f.Number = n
}

type numbers struct {
	Sequence uint64 `json:"sequence"`
	OutputID string `json:"outputId"`
}

// numbersOf returns the numbers of an object. An object without numbers is not an error.
func numbersOf(object json.RawMessage) (n numbers, ok bool) {
	if len(object) == 0 {
		return n, false
	}
	var found [2][]byte
	if provenance.MembersOf(object, []string{"sequence", "outputId"}, found[:]) {
		var err error
		if found[0] != nil {
			n.Sequence, err = strconv.ParseUint(string(found[0]), 10, 64)
		}
		id, text := provenance.PlainText(found[1])
		n.OutputID = id
		if err == nil && (text || found[1] == nil) {
			return n, true
		}
	}
	n = numbers{}
	err := json.Unmarshal(object, &n)
	// Some kinds of events allow any row.
	return n, err == nil
}
