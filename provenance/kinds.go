package provenance

import "strings"

// Kind names what an event records. Besides the constants, names of the form install.<word> are
// valid.
type Kind string

// The kinds of events of a session. The server writes no skill.discovered, because skill-registry.json,
// which a registry.snapshot event names, says what a scan found. A reader accepts it.
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

// kindFacts is what is true of every event of a kind. What the Row of such an event is, and how a timeline
// sums it up, is in the table of cfharness.
type kindFacts struct {
	kind Kind
	// durable events are on stable storage before Append returns: those before and after a side effect
	// or a refusal, and the end of a session.
	durable bool
	// view is the file that the Row is a row of, if any.
	view string
	// apart events come without a call of the client: they do not show that a session is in use.
	apart bool
}

// kinds is the table of events.
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

// facts returns the row of the table for k; known reports whether there is one.
func (k Kind) facts() (row kindFacts, known bool) {
	for _, row := range kinds {
		if row.kind == k {
			return row, true
		}
	}
	return kindFacts{}, false
}

// Durable reports whether an event of kind k must be on stable storage before Append returns. Other
// events follow within 100 ms.
func (k Kind) Durable() bool {
	row, _ := k.facts()
	return row.durable
}

// OfCall reports whether an event of kind k shows that the client of a session called.
func (k Kind) OfCall() bool {
	row, known := k.facts()
	return known && !row.apart
}

// View returns the name of the view that the Row of an event of kind k is a row of, or "" if it is in no
// view. Decision and Invocation are in policy-trace.json for every kind.
func (k Kind) View() string {
	row, _ := k.facts()
	return row.view
}

// Valid reports whether k is one of the constants or install.<word>, the word consisting of lower-case
// letters and underscores.
func (k Kind) Valid() bool {
	if _, known := k.facts(); known {
		return true
	}
	word, ok := strings.CutPrefix(string(k), "install.")
	return ok && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz_") == ""
}
