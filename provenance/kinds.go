package provenance

import (
	"cmp"
	"strings"
)

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
	{kind: KindSkillActivated, word: "loaded", form: FormActivation},
	{kind: KindResourceRead, word: "read", form: FormRead, needsRow: true},
	{kind: KindScriptRequested, word: "requested", form: FormRequest, durable: true},
	{kind: KindScriptExecuted, word: "finished", form: FormRun, needsRow: true, durable: true},
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
	switch form, _ := k.Form(); form {
	case FormActivation:
		return ActivationsFile
	case FormRead:
		return ResourceReadsFile
	case FormRun:
		return ScriptExecutionsFile
	}
	return ""
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
