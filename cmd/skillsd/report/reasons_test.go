package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Each kind of reason is a phrase about the content.
func TestReasons(t *testing.T) {
	all := policy.Arrival{Scripts: []string{"scripts/new.sh"}, Hosts: []string{"drop.evil.net"},
		Tools: []string{"Bash"}, Unsearched: true, Signals: []skills.Diagnostic{
			{Severity: skills.Warning, Code: skills.CodePipeToShell, Path: "SKILL.md", Line: 5},
			{Severity: skills.Warning, Code: skills.CodeInvisibleText, Path: "a.md"},
			{Severity: skills.Warning, Code: skills.CodeInjectionPhrase, Path: "a.md", Line: 2}}}
	verdict, why := all.Assess()
	got := Reasons(verdict, strings.Join(append(why, "and 3 more"), "; "))
	const want = "has pipe-to-shell in SKILL.md:5, has invisible-text in a.md, has injection-phrase in a.md:2, " +
		"a file with text that nobody sees, has more text than is searched, adds the script scripts/new.sh, " +
		"asks for the tool Bash, names the host drop.evil.net, has further reasons: 3 more, " +
		"and cannot be accepted"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A question about several skills names the kind of each reason, whatever the files are called.
func TestReasonNames(t *testing.T) {
	all := policy.Arrival{Scripts: []string{"scripts/a: b.sh"}, Hosts: []string{"drop.evil.net"},
		Tools: []string{"Bash"}, Unsearched: true, Signals: []skills.Diagnostic{
			{Severity: skills.Warning, Code: skills.CodePipeToShell, Path: "and: more.md", Line: 5}}}
	_, why := all.Assess()
	got := ReasonNames(strings.Join(append(why, "and 3 more"), "; "))
	want := []string{"more text than is searched", "new scripts", "new allowed-tools", "new hosts"}
	if diff := cmp.Diff(append([]string{"pipe-to-shell"}, want...), got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
