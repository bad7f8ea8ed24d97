package provenance

import "strings"

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
)

// kindFacts are the properties of all events of a kind. A table in cfharness defines the Row of each kind and
// its summary in a timeline.
type kindFacts struct {
	kind Kind
	// durable events are on stable storage before Append returns: events before and after a side effect or a
	// refusal, and the end of a session.
	durable bool
	// view is the file with the Row as one of its rows, if any.
	view string
	// apart events are not caused by a call of the client, so they do not show that a session is in use.
	apart bool
}

// kinds is the table of kinds.
var kinds = [...]kindFacts{
	{kind: KindSessionStarted},
	{kind: KindSessionResumed, apart: true},
	{kind: KindSessionEnded, durable: true, apart: true},
	{kind: KindRegistrySnapshot, apart: true},
	{kind: KindSkillDiscovered},
	{kind: KindSkillActivated, view: ActivationsFile},
	{kind: KindResourceRead, view: ResourceReadsFile},
	{kind: KindScriptRequested, durable: true},
	{kind: KindScriptExecuted, durable: true, view: ScriptExecutionsFile},
	{kind: KindPolicyWarned},
	{kind: KindPolicyDenied, durable: true},
	{kind: KindApprovalAsked, durable: true},
	{kind: KindApprovalAnswered, durable: true},
	{kind: KindDriftDetected},
	{kind: KindOutputsRemoved, durable: true, apart: true},
}

// facts returns the row of the table for k, and whether there is one.
func (k Kind) facts() (row kindFacts, known bool) {
	for _, row := range kinds {
		if row.kind == k {
			return row, true
		}
	}
	return kindFacts{}, false
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

// View returns the name of the view with the Row of an event of kind k as one of its rows, or "". Decision
// and Invocation are in policy-trace.json for every kind.
func (k Kind) View() string {
	row, _ := k.facts()
	return row.view
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
