package report

import (
	"strings"

	"github.com/skillsd/skillsd/skills/policy"
)

// Reasons describes a verdict that is not clean, as what the content does: "adds the script scripts/new.sh,
// names the host example.com". why has the reasons of [policy.Arrival.Assess], joined by semicolons.
func Reasons(verdict policy.Verdict, why string) string {
	words := map[policy.ConcernKind]string{policy.ConcernScript: "adds the script ",
		policy.ConcernTool: "asks for the tool ", policy.ConcernHost: "names the host ",
		policy.ConcernMore:       "has further reasons: ",
		policy.ConcernUnsearched: "has more text than is searched"}
	var texts []string
	for _, c := range policy.Concerns(why) {
		text := words[c.Kind] + c.Name
		if c.At != "" {
			code, more, isMore := strings.Cut(c.Name, ", in ")
			text = "has " + code + " in " + c.At
			if isMore {
				text += ", " + more
			}
		}
		texts = append(texts, text)
	}
	text := strings.Join(texts, ", ")
	if verdict == policy.Refuse {
		return text + ", and cannot be accepted"
	}
	return text
}

// ReasonNames returns what the reasons of a verdict are about, for a question about several skills: codes of
// signals, and the kinds of what is new.
func ReasonNames(why string) (names []string) {
	kinds := map[policy.ConcernKind]string{policy.ConcernScript: "new scripts",
		policy.ConcernTool: "new allowed-tools", policy.ConcernHost: "new hosts",
		policy.ConcernUnsearched: string(policy.ConcernUnsearched)}
	for _, c := range policy.Concerns(why) {
		switch c.Kind {
		case policy.ConcernMore:
		case policy.ConcernSignal:
			names = append(names, c.Name)
		default:
			names = append(names, kinds[c.Kind])
		}
	}
	return names
}
