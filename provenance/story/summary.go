package story

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// UsualMode is the mode of a server whose configuration names no other. It is a word for authors of
// harnesses, so other readers are not shown it.
const UsualMode = "enforce-explicit"

// Summary returns the outcome of a step in a few words, such as "exited 0", "not read: resource not found"
// or "not allowed", with codes in the words of a user. It contains no argument or output. The caller must
// escape unprintable characters.
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
		return fmt.Sprintf("%s: %.19s -> %.19s", changes(s.Detail), s.Want, s.Got)
	case s.Action == Asked && s.Request != nil:
		return "asked the user"
	case s.Activation != nil && s.Activation.Source != "":
		return s.loadOutcome()
	case s.Resource != nil:
		return readOutcome(s.Resource)
	case s.Run != nil:
		return runOutcome(s.Run)
	case s.Action == Refused:
		return s.refusal()
	case s.Action == Warned:
		if text := s.refusal(); text != "" {
			return "would be refused: " + text
		}
	}
	return ""
}

func (s *Step) loadOutcome() string {
	loaded := "loaded " + cmp.Or(sources[s.Activation.Source], string(s.Activation.Source))
	switch {
	case !s.Activation.SentBy(s.Event):
		return loaded
	case s.Activation.Source == cfharness.SourceModel:
		return "shown to the model"
	}
	return loaded + ", shown"
}

// refusal returns why a call was refused, or would be.
func (s *Step) refusal() string {
	ruling := s.Ruling()
	code := ""
	if len(ruling.ReasonCodes) > 0 {
		code = ruling.ReasonCodes[0]
	}
	if ruling.Skillsd != nil && ruling.Skillsd.Code != "" {
		code = ruling.Skillsd.Code
	}
	switch code {
	case "":
		return ""
	case "approval_declined", "approval_required":
		// The detail has more, such as "the user declined".
		if s.Policy != nil && strings.Contains(s.Policy.Detail, " user ") {
			return strings.TrimPrefix(s.Policy.Detail, s.Policy.ToolID+": ")
		}
	}
	return Words(code)
}

// changes returns the kind of a change, such as "resume-skill-digest-drift", in the words of a user.
func changes(kind string) string {
	code, ok := strings.CutPrefix(kind, "resume-")
	if !ok {
		return kind
	}
	code, drift := strings.CutSuffix(strings.ReplaceAll(code, "-", " "), " drift")
	if drift {
		code += " changed"
	}
	return code
}

// startOutcome returns the outcome of the start of a session: the version of the server in place of the usual
// mode.
func startOutcome(info *provenance.SessionInfo, detail string) string {
	mode := "mode " + info.Mode
	rest := strings.TrimPrefix(strings.TrimPrefix(detail, mode), ", ")
	// The usual mode is a word for authors of harnesses.
	if info.Mode == UsualMode {
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
		return "not read: " + Words(row.Error.Code)
	case row.DigestMatchesRegistry != nil && !*row.DigestMatchesRegistry:
		out += ", changed since the load"
	}
	if row.Truncated != nil && *row.Truncated {
		out += ", shortened"
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
		text += ", packages " + x.Environment.Name + " " + sum[:min(len(sum), 19)]
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
		return "did not run: " + Words(row.Error.Code)
	case x != nil && x.Outcome == cfharness.OutcomeSignaled:
		return "ended by " + x.Signal
	case x != nil && x.Outcome != "" && x.Outcome != cfharness.OutcomeExited:
		return Words(string(x.Outcome))
	case row.ExitCode != nil:
		return "exited " + strconv.Itoa(*row.ExitCode)
	}
	return string(row.Status)
}

// words are codes of refusals and of ends of runs, in the words of a user. They fit into a column.
var words = map[string]string{
	"tool_not_allowed":         "running scripts is not offered",
	"direct_command_required":  "the user was not asked",
	"skill_not_activated":      "the skill is not loaded",
	"activation_unknown":       "the skill is not loaded any more",
	"script_not_allowlisted":   "not allowed",
	"allowed_tools_conflict":   "not in the skill's allowed-tools",
	"tier_denied":              "skills of this trust run no scripts",
	"approval_required":        "not approved",
	"approval_declined":        "declined",
	"profile_excludes":         "not in the profile",
	"permission_denied":        "it runs only outside of the sandbox",
	"lease_invalid":            "no browser was lent",
	"resource_outside_root":    "outside of its skill",
	"script_outside_root":      "outside of its skill",
	"script_snapshot_mismatch": "not what was allowed",
	"output_not_released":      "its output may not be shown",
	"output_opaque":            "its output is withheld",
	"timeout":                  "timed out",
}

// Words returns a code of a refusal, an error or the end of a run in the words of a user.
func Words(code string) string {
	if text := words[code]; text != "" {
		return text
	}
	return strings.ReplaceAll(code, "_", " ")
}

// sources are the sources of activations, in the words of a user.
var sources = map[cfharness.Source]string{
	cfharness.SourceModel:     "by the model",
	cfharness.SourceUser:      "by the user",
	cfharness.SourcePreload:   "at the start",
	cfharness.SourceInherited: "by the profile",
}

// permissions are the kinds of evidence for a run, in the words of a user.
var permissions = map[string]string{
	"approval":    "the user approved it",
	"entry":       "runs without a question",
	"operator":    "configured not to ask",
	"prompt-slot": "the user's own command",
}

// Permission returns why a run was permitted, in the words of a user, from the evidence in its decision.
func Permission(evidence string) string {
	if text := permissions[evidence]; text != "" {
		return text
	}
	return evidence
}
