package story

import (
	"strings"

	"github.com/skillsd/skillsd/provenance/cfharness"
)

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
