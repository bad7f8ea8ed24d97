// Package provenance records, per session, what was shown to a model, which scripts ran and what was refused.
//
// A session is an append-only sequence of events. Each event is one line of JSON whose hash covers the line
// and the hash of the previous event, so recomputing the chain detects a changed, removed or reordered event.
// The JSON artifacts of a session (skill-activations.json, policy-trace.json …) are views: pure functions of
// the events, which a verifier recomputes byte for byte.
//
// The chain shows that a record was changed, not by whom: an attacker who can rewrite the whole record can
// write a consistent one. A signature of the head of the chain by an external key closes that gap. This
// package redacts nothing: callers must not put file contents, outputs or secrets into an event.
//
// A [Writer] records sessions and a [Reader] reads them; other packages need not know where a [Store] keeps
// them. Package cfharness defines the rows and views.
//
//	err := store.Append(ctx, &provenance.Event{
//		Session: id, Kind: provenance.KindScriptRequested, Principal: "local",
//		Skill: "pdf", Path: "scripts/extract.py", Detail: "requested",
//	})
//	if err != nil {
//		return err // the script must not start
//	}
package provenance

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// An Event is one line in the record of a session. The store sets Seq, Time (if zero), Prev and Hash. An
// event never contains file contents, outputs or secrets. It must not be changed while it is being appended.
type Event struct {
	Seq       uint64    `json:"seq"`  // from 1, without gaps
	Time      time.Time `json:"time"` // UTC, milliseconds
	Kind      Kind      `json:"kind"`
	Session   string    `json:"session"`
	Parent    string    `json:"parent,omitempty"` // the session that this one continues or belongs to
	Principal string    `json:"principal"`
	Client    string    `json:"client,omitempty"` // name and version, as given by the client
	// Turn identifies the writer's turn, in a store with several writing processes (see Writer.Take).
	Turn string `json:"turn,omitempty"`
	// Call is equal in all events of one call, including the events of a question to the user that it led to,
	// of the answer, and of the call that came with the answer. It is unique within the session.
	Call string `json:"call,omitempty"`

	Skill    string          `json:"skill,omitempty"` // skill path
	Path     string          `json:"path,omitempty"`  // file of the skill
	Want     string          `json:"want,omitempty"`  // digest expected, on drift
	Got      string          `json:"got,omitempty"`   // digest found, on drift
	Detail   string          `json:"detail"`
	Row      json.RawMessage `json:"row,omitempty"`      // row in the view of this kind
	Decision json.RawMessage `json:"decision,omitempty"` // row in decisions of policy-trace.json
	// Invocation is a row in cfcInvocationContexts of policy-trace.json.
	Invocation json.RawMessage `json:"invocation,omitempty"`
	Files      []File          `json:"files,omitempty"` // files of the session that belong to the event
	Prev       string          `json:"prev"`            // hash of the previous event; 64 zeros for the first
	Hash       string          `json:"hash"`            // lower-case hex sha256 of the line up to ,"hash"
}

// ID returns "<session>:<seq>", the id of the event in denials.
func (e *Event) ID() string {
	return e.Session + ":" + strconv.FormatUint(e.Seq, 10)
}

// loadError is the prefix of the Detail of a skill.activated event whose skill was not loaded.
const loadError = "error "

// LoadError returns the Detail of a skill.activated event for a skill that was not loaded.
func LoadError(code string) string { return loadError + code }

// ErrorCode returns the error code of an attempt to load, read or run that failed, or "" for all other
// events.
func (e *Event) ErrorCode() string {
	switch e.Kind {
	case KindSkillActivated:
		code, _ := strings.CutPrefix(e.Detail, loadError)
		if code == e.Detail {
			return ""
		}
		return code
	case KindResourceRead, KindScriptExecuted:
		var row struct {
			Error struct {
				Code string `json:"code"`
			} `json:"error"`
		}
		if len(e.Row) > 0 && json.Unmarshal(e.Row, &row) == nil {
			return row.Error.Code
		}
	}
	return ""
}

// File identifies a file of a session by its content.
type File struct {
	Name   string        `json:"name"` // e.g. "skill-registry.json", "outputs/…"
	Size   int64         `json:"size"` // bytes
	Digest digest.Digest `json:"digest"`
}

// Kind is the kind of an event. Besides the constants, install.<word> is valid.
type Kind string

// The kinds of events of a session. This server writes no skill.discovered, since skill-registry.json lists
// the skills of a scan, but readers accept it.
const (
	KindSessionStarted   Kind = "session.started"
	KindSessionResumed   Kind = "session.resumed"
	KindSessionEnded     Kind = "session.ended"
	KindRegistrySnapshot Kind = "registry.snapshot"
	KindSkillDiscovered  Kind = "skill.discovered"
	KindSkillActivated   Kind = "skill.activated"
	KindResourceRead     Kind = "skill.resource_read"
	KindScriptRequested  Kind = "skill.script_requested"
	KindScriptExecuted   Kind = "skill.script_executed"
	KindPolicyWarned     Kind = "policy.warned"
	KindPolicyDenied     Kind = "policy.denied"
	KindApprovalAsked    Kind = "approval.requested"
	KindApprovalAnswered Kind = "approval.answered"
	KindDriftDetected    Kind = "drift.detected"
	KindOutputsRemoved   Kind = "outputs.removed"
	KindWorkspaceUndone  Kind = "workspace.undone"
)

// Form is the form of the rows of a kind. Package cfharness has the type of each form; package story reads
// the events of one form in one way.
type Form string

// The forms of rows.
const (
	FormAny        Form = "" // no row, or any object
	FormSession    Form = "session"
	FormActivation Form = "activation"
	FormRead       Form = "read"
	FormRequest    Form = "request"
	FormQuestion   Form = "question" // a request, with what the user is asked about
	FormRun        Form = "run"
	FormPolicy     Form = "policy"
	FormRemoval    Form = "removal"
	FormUndo       Form = "undo"
)

// kindFacts are the properties of all events of a kind.
type kindFacts struct {
	kind Kind
	// word names the event in a timeline; empty for the kind itself.
	word string
	// form is the form of the Row. Every event of the kind has one if needsRow is set.
	form     Form
	needsRow bool
	view     string // name of the view that has the Row
	// durable events are on stable storage before Append returns: events before and after a side effect or a
	// refusal, and the end of a session.
	durable bool
	// apart events are not caused by a call of the client, so they do not show that a session is in use.
	apart bool
	// alerts events are marked in a timeline, because a user may want to act on them.
	alerts bool
}

// kinds is the table of kinds.
var kinds = [...]kindFacts{
	{kind: KindSessionStarted, word: "started", form: FormSession, needsRow: true},
	{kind: KindSessionResumed, word: "resumed", form: FormSession, apart: true},
	{kind: KindSessionEnded, word: "ended", durable: true, apart: true},
	{kind: KindRegistrySnapshot, apart: true},
	{kind: KindSkillDiscovered},
	{kind: KindSkillActivated, word: "loaded", form: FormActivation, view: ActivationsFile},
	{kind: KindResourceRead, word: "read", form: FormRead, needsRow: true, view: ResourceReadsFile},
	{kind: KindScriptRequested, word: "requested", form: FormRequest, durable: true},
	{kind: KindScriptExecuted, word: "finished", form: FormRun, needsRow: true, view: ScriptExecutionsFile,
		durable: true},
	{kind: KindPolicyDenied, word: "refused", form: FormPolicy, needsRow: true, durable: true},
	{kind: KindPolicyWarned, word: "warned", form: FormPolicy, needsRow: true, alerts: true},
	{kind: KindApprovalAsked, word: "user asked", form: FormQuestion, durable: true},
	{kind: KindApprovalAnswered, word: "user answered", form: FormQuestion, durable: true},
	{kind: KindDriftDetected, word: "file changed", alerts: true},
	{kind: KindOutputsRemoved, word: "outputs removed", form: FormRemoval, durable: true, apart: true},
	{kind: KindWorkspaceUndone, word: "undone", form: FormUndo, needsRow: true, durable: true},
}

// Kinds returns the constants.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, row := range kinds {
		all[i] = row.kind
	}
	return all
}

// facts returns the row of the table for k, or an empty one, and whether there is one.
func (k Kind) facts() (row *kindFacts, known bool) {
	for i := range kinds {
		if kinds[i].kind == k {
			return &kinds[i], true
		}
	}
	return &kindFacts{}, false
}

// Durable reports whether an event of kind k must be on stable storage before Append returns. Other events
// are synced within 100 ms.
func (k Kind) Durable() bool {
	row, _ := k.facts()
	return row.durable
}

// OfCall reports whether an event of kind k is caused by a call of the client.
func (k Kind) OfCall() bool {
	row, known := k.facts()
	return known && !row.apart
}

// Form returns the form of the Row of an event of kind k, and whether every such event has a Row.
func (k Kind) Form() (form Form, required bool) {
	row, _ := k.facts()
	return row.form, row.needsRow
}

// View returns the name of the view with the Row of an event of kind k as one of its rows, or "". Decision
// and Invocation are in policy-trace.json for every kind.
func (k Kind) View() string {
	row, _ := k.facts()
	return row.view
}

// Word returns the name of an event of kind k in a timeline.
func (k Kind) Word() string {
	row, _ := k.facts()
	return cmp.Or(row.word, string(k))
}

// Alerts reports whether an event of kind k is marked in a timeline.
func (k Kind) Alerts() bool {
	row, _ := k.facts()
	return row.alerts
}

// Valid reports whether k is one of the constants or install.<word>, where the word consists of lower-case
// letters and underscores.
func (k Kind) Valid() bool {
	if _, known := k.facts(); known {
		return true
	}
	word, ok := strings.CutPrefix(string(k), "install.")
	return ok && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == ""
}
