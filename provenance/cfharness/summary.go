package cfharness

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// Summary returns the outcome of e in a few words for a timeline, such as "exited 0",
// "error resource_not_found" or "script_not_allowlisted". It holds no newline, argument or output.
func Summary(e *provenance.Event) string {
	switch e.Kind {
	case provenance.KindSkillActivated:
		return activationSummary(e)
	case provenance.KindResourceRead:
		return readSummary(e)
	case provenance.KindScriptExecuted:
		return executionSummary(e)
	case provenance.KindPolicyWarned, provenance.KindPolicyDenied:
		return decisionSummary(e)
	case provenance.KindDriftDetected:
		if e.Want != "" || e.Got != "" {
			return oneLine(fmt.Sprintf("%s: %s -> %s", e.Detail, e.Want, e.Got))
		}
	case provenance.KindApprovalAsked:
		// What follows names the call by a digest, which tells a reader nothing.
		code, _, _ := strings.Cut(e.Detail, "; call ")
		return oneLine(code)
	case provenance.KindSessionStarted, provenance.KindSessionResumed:
		var info provenance.SessionInfo
		if json.Unmarshal(e.Row, &info) == nil && info.Mode != "" && !strings.Contains(e.Detail, info.Mode) {
			return oneLine(e.Detail + " (" + info.Mode + ")")
		}
	}
	return oneLine(e.Detail)
}

func activationSummary(e *provenance.Event) string {
	var row Activation
	if json.Unmarshal(e.Row, &row) != nil || row.Source == "" {
		return oneLine(e.Detail)
	}
	if !row.SentBy(e) {
		return oneLine("active, " + string(row.Source))
	}
	return oneLine("shown, " + string(row.Source))
}

func readSummary(e *provenance.Event) string {
	var row ResourceRead
	if json.Unmarshal(e.Row, &row) != nil || row.Status == "" {
		return oneLine(e.Detail)
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
	return oneLine(out)
}

func executionSummary(e *provenance.Event) string {
	var row ScriptExecution
	if json.Unmarshal(e.Row, &row) != nil || row.Status == "" {
		return oneLine(e.Detail)
	}
	x := row.Skillsd
	switch {
	case row.Error != nil:
		return oneLine(string(row.Status) + " " + row.Error.Code)
	case x != nil && x.Outcome == OutcomeSignaled:
		return oneLine("signaled " + x.Signal)
	case x != nil && x.Outcome != "" && x.Outcome != OutcomeExited:
		return oneLine(string(x.Outcome))
	case row.ExitCode != nil:
		return "exited " + strconv.Itoa(*row.ExitCode)
	}
	return oneLine(string(row.Status))
}

func decisionSummary(e *provenance.Event) string {
	var row PolicyDecision
	if json.Unmarshal(e.Decision, &row) != nil {
		return oneLine(e.Detail)
	}
	switch {
	case row.Skillsd != nil && row.Skillsd.Code != "":
		return oneLine(row.Skillsd.Code)
	case len(row.ReasonCodes) > 0:
		return oneLine(row.ReasonCodes[0])
	}
	return oneLine(e.Detail)
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
