package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// Verdict is the assessment of a content that an installation brings.
type Verdict string

// The verdicts.
const (
	Clean  Verdict = "clean"  // served
	Look   Verdict = "look"   // served once a user accepted exactly this content
	Refuse Verdict = "refuse" // never served
)

// Arrival holds the facts about a new content of a skill.
type Arrival struct {
	First bool // there is no earlier version of the skill
	// Signals are the diagnostics of the content that the earlier version did not have.
	Signals []skills.Diagnostic
	// Scripts, Hosts and Tools are new since the earlier version: paths, hosts in its texts, and declared
	// allowed-tools.
	Scripts, Hosts, Tools []string
	// Unsearched is set if the content has more text than is searched for signals and hosts.
	Unsearched bool
}

// alarming lists the codes of signals that need a look by a user.
var alarming = []skills.Code{skills.CodeInvisibleText, skills.CodePipeToShell, skills.CodeInjectionPhrase,
	skills.CodeAgentConfig, skills.CodeRunsUnasked, skills.CodeHTMLComment}

// Assess returns the verdict on a content, and a phrase for each reason why it is not clean:
//
//	refuse  a file has invisible text and an injection phrase
//	look    a signal of severity warning: invisible text, scripts that run what they download, commands
//	        that fetch from an open address or decode what they run, injection phrases, scripts that
//	        write the configuration of agents, send credentials, or leave what other programs start, and
//	        files that other programs run by themselves
//	look    more text than is searched
//	look    scripts, hosts or allowed-tools that the earlier version did not have; not for a first version,
//	        since no script runs before it is allowed
//	clean   all else
//
// The tier is ignored: an attacker who steals an account would use a trusted collection.
func (a *Arrival) Assess() (verdict Verdict, why []string) {
	verdict = Clean
	because := func(v Verdict, format string, args ...any) {
		why = append(why, fmt.Sprintf(format, args...))
		// A later reason to look must not soften a refusal.
		if verdict != Refuse {
			verdict = v
		}
	}
	hidden := map[string]bool{}
	for _, d := range a.Signals {
		if d.Severity == skills.Warning && d.Code == skills.CodeInvisibleText {
			hidden[d.Path] = true
		}
	}
	for _, d := range a.Signals {
		switch {
		case d.Severity != skills.Warning || !slices.Contains(alarming, d.Code):
		// Invisible text together with an injection phrase has no harmless use.
		case d.Code == skills.CodeInjectionPhrase && hidden[d.Path]:
			because(Refuse, "%s:%d: %s, in a file with text that nobody sees", d.Path, d.Line, d.Code)
		case d.Line == 0:
			because(Look, "%s: %s", d.Path, d.Code)
		default:
			because(Look, "%s:%d: %s", d.Path, d.Line, d.Code)
		}
	}
	if a.Unsearched {
		because(Look, "%s", ConcernUnsearched)
	}
	// Everything in a first version is new, so the comparison would only repeat its content.
	if a.First {
		return verdict, why
	}
	for _, script := range a.Scripts {
		because(Look, "%s%s", ConcernScript, script)
	}
	for _, tool := range a.Tools {
		because(Look, "%s%s", ConcernTool, tool)
	}
	for _, host := range a.Hosts {
		because(Look, "%s%s", ConcernHost, host)
	}
	return verdict, why
}

// Concern is a reason why a content is not clean, read from the text that is kept of it.
type Concern struct {
	Kind ConcernKind
	// Name is the script, the tool or the host; for a signal its code, and what follows it in the text.
	Name string
	At   string // the place of a signal
}

// ConcernKind is the kind of a Concern. The text of all but signals begins with it.
type ConcernKind string

// The kinds of concerns.
const (
	ConcernSignal     ConcernKind = ""
	ConcernScript     ConcernKind = "new script "
	ConcernTool       ConcernKind = "new allowed-tools "
	ConcernHost       ConcernKind = "new host "
	ConcernUnsearched ConcernKind = "more text than is searched"
	ConcernMore       ConcernKind = "and " // a number of further ones, which are not named
)

// Concerns reads reasons that [Arrival.Assess] returned, joined by semicolons.
func Concerns(why string) (all []Concern) {
	for text := range strings.SplitSeq(why, "; ") {
		all = append(all, concern(text))
	}
	return all
}

func concern(text string) Concern {
	signal := Concern{Name: text}
	if at := strings.LastIndex(text, ": "); at >= 0 {
		signal = Concern{Name: text[at+len(": "):], At: text[:at]}
	}
	// An author could name a file so that a signal in it begins like another reason, and would not be shown.
	code, _, _ := strings.Cut(signal.Name, ", in ")
	if slices.Contains(alarming, skills.Code(code)) {
		return signal
	}
	kinds := []ConcernKind{ConcernScript, ConcernTool, ConcernHost, ConcernUnsearched, ConcernMore}
	for _, kind := range kinds {
		if name, ok := strings.CutPrefix(text, string(kind)); ok {
			return Concern{Kind: kind, Name: name}
		}
	}
	return signal
}
