package policy

import (
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

func TestAssess(t *testing.T) {
	t.Parallel()
	signal := func(severity skills.Severity, code skills.Code, path string) skills.Diagnostic {
		return skills.Diagnostic{Severity: severity, Code: code, Path: path, Line: 3}
	}
	hidden := signal(skills.Warning, skills.CodeInvisibleText, "SKILL.md")
	phrase := signal(skills.Warning, skills.CodeInjectionPhrase, "SKILL.md")
	for name, c := range map[string]struct {
		arrival Arrival
		verdict Verdict
		why     string
	}{
		"nothing":         {Arrival{}, Clean, ""},
		"first":           {Arrival{First: true, Scripts: []string{"a"}, Hosts: []string{"h"}, Tools: []string{"t"}}, Clean, ""},
		"later":           {Arrival{Scripts: []string{"a"}, Hosts: []string{"h"}, Tools: []string{"t"}}, Look, "new script a; new allowed-tools t; new host h"},
		"minor":           {Arrival{Signals: []skills.Diagnostic{signal(skills.Info, skills.CodeInjectionPhrase, "x")}}, Clean, ""},
		"other warning":   {Arrival{Signals: []skills.Diagnostic{signal(skills.Warning, skills.CodeNameMismatch, "x")}}, Clean, ""},
		"alarming":        {Arrival{First: true, Signals: []skills.Diagnostic{phrase}}, Look, "SKILL.md:3: injection-phrase"},
		"a file as such":  {Arrival{Signals: []skills.Diagnostic{{Severity: skills.Warning, Code: skills.CodeRunsUnasked, Path: ".envrc"}}}, Look, ".envrc: runs-unasked"},
		"too much":        {Arrival{First: true, Unsearched: true}, Look, "more text than is searched"},
		"hidden orders":   {Arrival{First: true, Signals: []skills.Diagnostic{phrase, hidden}, Unsearched: true}, Refuse, "SKILL.md:3: injection-phrase, in a file with text that nobody sees; SKILL.md:3: invisible-text; more text than is searched"},
		"in other files":  {Arrival{Signals: []skills.Diagnostic{phrase, signal(skills.Warning, skills.CodeInvisibleText, "b.md")}}, Look, "SKILL.md:3: injection-phrase; b.md:3: invisible-text"},
		"hidden, no more": {Arrival{Signals: []skills.Diagnostic{hidden}}, Look, "SKILL.md:3: invisible-text"},
	} {
		verdict, why := c.arrival.Assess()
		if verdict != c.verdict || strings.Join(why, "; ") != c.why {
			t.Errorf("%s: %s, %q; want %s, %q", name, verdict, why, c.verdict, c.why)
		}
	}
}

// What is kept of the reasons is read as it was written.
func TestConcerns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Concern{
		"SKILL.md:3: injection-phrase": {Name: "injection-phrase", At: "SKILL.md:3"},
		"a: b.md: runs-unasked":        {Name: "runs-unasked", At: "a: b.md"},
		"a.md:1: x, in a file":         {Name: "x, in a file", At: "a.md:1"},
		// Authors choose the names of files.
		"and 3 more/a.md:1: pipe-to-shell": {Name: "pipe-to-shell", At: "and 3 more/a.md:1"},
		"new host a.md: invisible-text":    {Name: "invisible-text", At: "new host a.md"},
		"new script scripts/a: b":          {Kind: ConcernScript, Name: "scripts/a: b"},
		"new allowed-tools Bash(git:*)":    {Kind: ConcernTool, Name: "Bash(git:*)"},
		"new host x.example":               {Kind: ConcernHost, Name: "x.example"},
		"more text than is searched":       {Kind: ConcernUnsearched},
		"and 3 more":                       {Kind: ConcernMore, Name: "3 more"},
		"a reason of another version":      {Name: "a reason of another version"},
	} {
		if got := Concerns("x: y; " + text); len(got) != 2 || got[1] != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
