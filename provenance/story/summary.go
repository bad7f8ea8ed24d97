package story

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// usualMode is the mode of a server whose configuration names no other.
const usualMode = "enforce-explicit"

// Summary returns the outcome of a step in a few words, such as "exited 0", "error resource_not_found" or
// "script_not_allowlisted". It contains no argument or output. The caller must escape unprintable characters.
func (s *Step) Summary() string {
	const limit = 200
	text := cmp.Or(s.outcome(), s.Detail)
	if r := []rune(text); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return text
}

// outcome returns the outcome from the row of a step, or "" if Detail is enough.
func (s *Step) outcome() string {
	switch {
	case s.Session != nil && s.Session.Mode != "":
		return startOutcome(s.Session, s.Detail)
	case s.Action == Changed && (s.Want != "" || s.Got != ""):
		return fmt.Sprintf("%s: %s -> %s", s.Detail, s.Want, s.Got)
	case s.Action == Asked:
		// The digest that identifies the call is of no use to a reader.
		code, _, _ := strings.Cut(s.Detail, "; call ")
		return code
	case s.Activation != nil && s.Activation.Source != "":
		if s.Activation.SentBy(s.Event) {
			return "shown, " + string(s.Activation.Source)
		}
		return "active, " + string(s.Activation.Source)
	case s.Resource != nil:
		return readOutcome(s.Resource)
	case s.Run != nil:
		return runOutcome(s.Run)
	case s.Action == Refused, s.Action == Warned:
		ruling := s.Ruling()
		if ruling.Skillsd != nil && ruling.Skillsd.Code != "" {
			return ruling.Skillsd.Code
		}
		if len(ruling.ReasonCodes) > 0 {
			return ruling.ReasonCodes[0]
		}
	}
	return ""
}

// startOutcome returns the outcome of the start of a session: the version of the server in place of the usual
// mode, which is a word for authors of harnesses.
func startOutcome(info *provenance.SessionInfo, detail string) string {
	mode := "mode " + info.Mode
	rest := strings.TrimPrefix(strings.TrimPrefix(detail, mode), ", ")
	if info.Mode == usualMode {
		mode = strings.TrimSpace("skillsd " + info.Server.Version)
	}
	if rest == "" {
		return mode
	}
	return mode + ", " + rest
}

func readOutcome(row *cfharness.ResourceRead) string {
	if row.Status == "" {
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

func runOutcome(row *cfharness.ScriptExecution) string {
	text := endOf(row)
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
func endOf(row *cfharness.ScriptExecution) string {
	x := row.Skillsd
	switch {
	case row.Status == "":
		return ""
	case row.Error != nil:
		return string(row.Status) + " " + row.Error.Code
	case x != nil && x.Outcome == cfharness.OutcomeSignaled:
		return "signaled " + x.Signal
	case x != nil && x.Outcome != "" && x.Outcome != cfharness.OutcomeExited:
		return string(x.Outcome)
	case row.ExitCode != nil:
		return "exited " + strconv.Itoa(*row.ExitCode)
	}
	return string(row.Status)
}
