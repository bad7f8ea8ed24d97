package policy

import (
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/skills"
)

// Verdict is what becomes of a content that an installation brings.
type Verdict string

// The verdicts.
const (
	Clean  Verdict = "clean"  // it is served
	Look   Verdict = "look"   // it is served when somebody has accepted exactly this content
	Refuse Verdict = "refuse" // it is never served
)

// Arrival is what is known of the content of a skill that an installation brings.
type Arrival struct {
	First bool // there was no version of the skill before
	// Signals are the diagnostics of the content that the version before did not have.
	Signals []skills.Diagnostic
	// Scripts, Hosts and Tools are those that the version before did not have: paths, hosts that its texts
	// name, and declared allowed-tools.
	Scripts, Hosts, Tools []string
	// Unsearched says that the content has more text than is searched for signals and hosts.
	Unsearched bool
}

// alarming are the codes of signals for which somebody must look at a content.
var alarming = []skills.Code{skills.CodeInvisibleText, skills.CodePipeToShell, skills.CodeInjectionPhrase,
	skills.CodeAgentConfig, skills.CodeRunsUnasked}

// Assess decides about a content, and says why it is not clean, a phrase for each reason:
//
//	refuse  a file has text that nobody sees and words that are to take over a model
//	look    a signal of severity warning about text that nobody sees, commands that run what they
//	        download, words that are to take over a model, the configuration of agents, or what
//	        other programs run by themselves
//	look    more text than is searched
//	look    scripts, hosts or allowed-tools that the version before did not have; of a first
//	        version they are no reason, since no script runs before it is allowed
//	clean   all else
//
// The tier does not count: a collection that is trusted is what a thief of its account would use.
func (a *Arrival) Assess() (verdict Verdict, why []string) {
	verdict = Clean
	because := func(v Verdict, format string, args ...any) {
		why = append(why, fmt.Sprintf(format, args...))
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
