package cfharness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// EventRow describes the Row of events of one kind.
type EventRow struct {
	Kind     provenance.Kind
	Type     reflect.Type
	Required bool // present in every such event
}

// EventRows returns the table of rows. Other kinds have no row, or any object.
func EventRows() []EventRow {
	info, policy := reflect.TypeFor[provenance.SessionInfo](), reflect.TypeFor[PolicyEvent]()
	return []EventRow{
		{provenance.KindSessionStarted, info, true},
		{provenance.KindSessionResumed, info, false},
		{provenance.KindSkillActivated, reflect.TypeFor[Activation](), false},
		{provenance.KindResourceRead, reflect.TypeFor[ResourceRead](), true},
		{provenance.KindScriptRequested, reflect.TypeFor[ScriptRequest](), false},
		{provenance.KindScriptExecuted, reflect.TypeFor[ScriptExecution](), true},
		{provenance.KindPolicyDenied, policy, true},
		{provenance.KindPolicyWarned, policy, true},
		{provenance.KindOutputsRemoved, reflect.TypeFor[provenance.OutputsRemoved](), false},
	}
}

// Summary returns the outcome of e in a few words for a timeline, such as "exited 0", "error
// resource_not_found" or "script_not_allowlisted". It contains no argument or output. The caller must escape
// unprintable characters.
func Summary(e *provenance.Event) string {
	const limit = 200
	text := cmp.Or(outcome(e), e.Detail)
	if r := []rune(text); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return text
}

// outcome returns the outcome from the row of an event, or "" if Detail is enough.
func outcome(e *provenance.Event) string {
	switch e.Kind {
	case provenance.KindSessionStarted, provenance.KindSessionResumed:
		if info, _ := e.SessionInfo(); info != nil && info.Mode != "" &&
			!strings.Contains(e.Detail, info.Mode) {
			return e.Detail + " (" + info.Mode + ")"
		}
	case provenance.KindDriftDetected:
		if e.Want != "" || e.Got != "" {
			return fmt.Sprintf("%s: %s -> %s", e.Detail, e.Want, e.Got)
		}
	case provenance.KindApprovalAsked:
		// The digest that identifies the call is of no use to a reader.
		code, _, _ := strings.Cut(e.Detail, "; call ")
		return code
	case provenance.KindSkillActivated:
		var row Activation
		switch {
		case json.Unmarshal(e.Row, &row) != nil || row.Source == "":
		case row.SentBy(e):
			return "shown, " + string(row.Source)
		default:
			return "active, " + string(row.Source)
		}
	case provenance.KindResourceRead:
		return readOutcome(e)
	case provenance.KindScriptExecuted:
		return runOutcome(e)
	case provenance.KindPolicyDenied, provenance.KindPolicyWarned:
		var row PolicyDecision
		if json.Unmarshal(e.Decision, &row) != nil {
			return ""
		}
		if row.Skillsd != nil && row.Skillsd.Code != "" {
			return row.Skillsd.Code
		}
		return strings.Join(row.ReasonCodes[:min(len(row.ReasonCodes), 1)], "")
	}
	return ""
}

func readOutcome(e *provenance.Event) string {
	var row ResourceRead
	if json.Unmarshal(e.Row, &row) != nil || row.Status == "" {
		return ""
	}
	out := string(row.Status)
	switch {
	case row.Error != nil:
		out += " " + row.Error.Code
	case row.DigestMatchesRegistry != nil && !*row.DigestMatchesRegistry:
		out += " changed"
	}
	if row.Truncated != nil && *row.Truncated {
		out += " truncated"
	}
	return out
}

func runOutcome(e *provenance.Event) string {
	var row ScriptExecution
	if json.Unmarshal(e.Row, &row) != nil {
		return ""
	}
	text := endOf(&row)
	if x := row.Skillsd; x != nil && x.Late {
		text += ", after its call had ended"
	}
	if x := row.Skillsd; x != nil && x.Environment != nil {
		sum := x.Environment.Digest.String()
		text += ", environment " + x.Environment.Name + " " + sum[:min(len(sum), 19)]
	}
	return text
}

// endOf returns how a run ended, in a few words.
func endOf(row *ScriptExecution) string {
	x := row.Skillsd
	switch {
	case row.Status == "":
		return ""
	case row.Error != nil:
		return string(row.Status) + " " + row.Error.Code
	case x != nil && x.Outcome == OutcomeSignaled:
		return "signaled " + x.Signal
	case x != nil && x.Outcome != "" && x.Outcome != OutcomeExited:
		return string(x.Outcome)
	case row.ExitCode != nil:
		return "exited " + strconv.Itoa(*row.ExitCode)
	}
	return string(row.Status)
}
