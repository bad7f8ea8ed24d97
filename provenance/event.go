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
	"slices"
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

// KindFacts are the properties of all events of a kind.
type KindFacts struct {
	Kind Kind
	// Word names the event in a timeline. In the table it is empty for the kind itself.
	Word string
	// Form is the form of the Row. Every event of the kind has a Row if NeedsRow is set.
	Form     Form
	NeedsRow bool
	// View is the name of the view with the Row as one of its rows, or empty. Decision and Invocation are in
	// policy-trace.json for every kind.
	View string
	// Durable events are on stable storage before Append returns: events before and after a side effect or a
	// refusal, and the end of a session. Other events are synced within 100 ms.
	Durable bool
	// Apart events are not caused by a call of the client, so they do not show that a session is in use.
	Apart bool
	// Alerts events are marked in a timeline, because a user may want to act on them.
	Alerts bool
}

// kinds is the table of kinds.
var kinds = [...]KindFacts{
	{Kind: KindSessionStarted, Word: "started", Form: FormSession, NeedsRow: true},
	{Kind: KindSessionResumed, Word: "resumed", Form: FormSession, Apart: true},
	{Kind: KindSessionEnded, Word: "ended", Durable: true, Apart: true},
	{Kind: KindRegistrySnapshot, Apart: true},
	{Kind: KindSkillDiscovered},
	{Kind: KindSkillActivated, Word: "loaded", Form: FormActivation, View: ActivationsFile},
	{Kind: KindResourceRead, Word: "read", Form: FormRead, NeedsRow: true, View: ResourceReadsFile},
	{Kind: KindScriptRequested, Word: "requested", Form: FormRequest, Durable: true},
	{Kind: KindScriptExecuted, Word: "finished", Form: FormRun, NeedsRow: true, View: ScriptExecutionsFile,
		Durable: true},
	{Kind: KindPolicyDenied, Word: "refused", Form: FormPolicy, NeedsRow: true, Durable: true},
	{Kind: KindPolicyWarned, Word: "warned", Form: FormPolicy, NeedsRow: true, Alerts: true},
	{Kind: KindApprovalAsked, Word: "user asked", Form: FormQuestion, Durable: true},
	{Kind: KindApprovalAnswered, Word: "user answered", Form: FormQuestion, Durable: true},
	{Kind: KindDriftDetected, Word: "file changed", Alerts: true},
	{Kind: KindOutputsRemoved, Word: "outputs removed", Form: FormRemoval, Durable: true, Apart: true},
	{Kind: KindWorkspaceUndone, Word: "undone", Form: FormUndo, NeedsRow: true, Durable: true},
}

// Kinds returns the constants.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, row := range kinds {
		all[i] = row.Kind
	}
	return all
}

// Facts returns the properties of the events of kind k.
func (k Kind) Facts() KindFacts {
	for i := range kinds {
		if kinds[i].Kind == k {
			facts := kinds[i]
			facts.Word = cmp.Or(facts.Word, string(k))
			return facts
		}
	}
	return KindFacts{Kind: k, Word: string(k), Apart: true}
}

// Valid reports whether k is one of the constants or install.<word>, where the word consists of lower-case
// letters and underscores.
func (k Kind) Valid() bool {
	if slices.ContainsFunc(kinds[:], func(row KindFacts) bool { return row.Kind == k }) {
		return true
	}
	word, ok := strings.CutPrefix(string(k), "install.")
	return ok && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == ""
}
