package policy

import (
	"fmt"
	"slices"

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
		because(Look, "more text than is searched")
	}
	// Everything in a first version is new, so the comparison would only repeat its content.
	if a.First {
		return verdict, why
	}
	for _, script := range a.Scripts {
		because(Look, "new script %s", script)
	}
	for _, tool := range a.Tools {
		because(Look, "new allowed-tools %s", tool)
	}
	for _, host := range a.Hosts {
		because(Look, "new host %s", host)
	}
	return verdict, why
}
