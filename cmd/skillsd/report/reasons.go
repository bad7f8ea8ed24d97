package report

import (
	"strings"

	"github.com/skillsd/skillsd/skills/policy"
)

// Reasons describes a verdict that is not clean, as what the content does: "adds the script scripts/new.sh,
// names the host example.com". why has the reasons of [policy.Arrival.Assess], joined by semicolons.
func Reasons(verdict policy.Verdict, why string) string {
	words := []struct{ begin, text string }{
		{"new script ", "adds the script "}, {"new allowed-tools ", "asks for the tool "},
		{"new host ", "names the host "}, {"and ", "has further reasons: "},
		{"more text than is searched", "has more text than is searched"},
	}
	var texts []string
reasons:
	for reason := range strings.SplitSeq(why, "; ") {
		for _, w := range words {
			if rest, ok := strings.CutPrefix(reason, w.begin); ok {
				texts = append(texts, w.text+rest)
				continue reasons
			}
		}
		if location, code, ok := strings.Cut(reason, ": "); ok {
			code, more, _ := strings.Cut(code, ", in ")
			reason = "has " + code + " in " + location
			if more != "" {
				reason += ", " + more
			}
		}
		texts = append(texts, reason)
	}
	text := strings.Join(texts, ", ")
	if verdict == policy.Refuse {
		return text + ", and cannot be accepted"
	}
	return text
}
