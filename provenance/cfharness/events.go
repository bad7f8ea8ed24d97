package cfharness

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// EventRow describes the Row of the events of a kind.
type EventRow struct {
	Kind     provenance.Kind
	Type     reflect.Type // nil if it can be any object, or there is none
	Required bool         // every such event has one

	summary func(*provenance.Event) string // nil for the Detail
}

// EventRows returns the table of the rows of events and of their summaries in a timeline. Kinds that
// are not in it have no row, and the Detail is their summary.
func EventRows() []EventRow {
	info, policy := reflect.TypeFor[provenance.SessionInfo](), reflect.TypeFor[PolicyEvent]()
	return []EventRow{
		{provenance.KindSessionStarted, info, true, startSummary},
		{provenance.KindSessionResumed, info, false, startSummary},
		{provenance.KindSkillActivated, reflect.TypeFor[Activation](), false, activationSummary},
		{provenance.KindResourceRead, reflect.TypeFor[ResourceRead](), true, readSummary},
		{provenance.KindScriptRequested, reflect.TypeFor[ScriptRequest](), false, nil},
		{provenance.KindScriptExecuted, reflect.TypeFor[ScriptExecution](), true, executionSummary},
		{provenance.KindPolicyDenied, policy, true, decisionSummary},
		{provenance.KindPolicyWarned, policy, true, decisionSummary},
		{provenance.KindApprovalAsked, nil, false, askedSummary},
		{provenance.KindDriftDetected, nil, false, driftSummary},
		{provenance.KindOutputsRemoved, reflect.TypeFor[provenance.OutputsRemoved](), false, nil},
	}
}

// Summary returns the outcome of e in a few words for a timeline, such as "exited 0",
// "error resource_not_found" or "script_not_allowlisted". It contains no newline, argument or output.
func Summary(e *provenance.Event) string {
	text := e.Detail
	for _, row := range EventRows() {
		if row.Kind == e.Kind && row.summary != nil {
			text = row.summary(e)
		}
	}
	return oneLine(text)
}

func startSummary(e *provenance.Event) string {
	var info provenance.SessionInfo
	if json.Unmarshal(e.Row, &info) == nil && info.Mode != "" && !strings.Contains(e.Detail, info.Mode) {
		return e.Detail + " (" + info.Mode + ")"
	}
	return e.Detail
}

func driftSummary(e *provenance.Event) string {
	if e.Want == "" && e.Got == "" {
		return e.Detail
	}
	return fmt.Sprintf("%s: %s -> %s", e.Detail, e.Want, e.Got)
}

// askedSummary leaves out the digest that identifies the call, which says nothing to a reader.
func askedSummary(e *provenance.Event) string {
	code, _, _ := strings.Cut(e.Detail, "; call ")
	return code
}

func activationSummary(e *provenance.Event) string {
	var row Activation
	if json.Unmarshal(e.Row, &row) != nil || row.Source == "" {
		return e.Detail
	}
	if !row.SentBy(e) {
		return "active, " + string(row.Source)
	}
	return "shown, " + string(row.Source)
}

func readSummary(e *provenance.Event) string {
	var row ResourceRead
	if json.Unmarshal(e.Row, &row) != nil || row.Status == "" {
		return e.Detail
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

func executionSummary(e *provenance.Event) string {
	var row ScriptExecution
	if json.Unmarshal(e.Row, &row) != nil || row.Status == "" {
		return e.Detail
	}
	x := row.Skillsd
	switch {
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

func decisionSummary(e *provenance.Event) string {
	var row PolicyDecision
	if json.Unmarshal(e.Decision, &row) != nil {
		return e.Detail
	}
	switch {
	case row.Skillsd != nil && row.Skillsd.Code != "":
		return row.Skillsd.Code
	case len(row.ReasonCodes) > 0:
		return row.ReasonCodes[0]
	}
	return e.Detail
}

// oneLine keeps hostile text from forging lines or terminal sequences of a timeline.
func oneLine(s string) string {
	const limit = 200
	out := make([]rune, 0, min(len(s), limit))
	for _, r := range s {
		if len(out) == limit {
			return string(out) + "…"
		}
		if !strconv.IsPrint(r) {
			r = ' '
		}
		out = append(out, r)
	}
	return string(out)
}
