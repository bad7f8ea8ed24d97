package policy

import "slices"

// Target says where a script runs.
type Target string

// The targets.
const (
	TargetSandbox Target = "sandbox"
	TargetHost    Target = "host" // on the machine itself, with its files and its network
)

// Profile narrows what a principal, a process or a session may do; it never widens anything. A nil
// list narrows nothing, an empty one leaves nothing. Names are exact: there are no patterns.
type Profile struct {
	Name    string
	Skills  []string // paths of skills
	Scripts []string // SKILL:scripts/PATH, as the allowlist has them, without pins
	Tools   []string // tools, and methods of the same class: a tool that reads stands for all of them
	Target  Target   // where its scripts run; TargetHost counts only when the operator chose the profile
}

// IncludesSkill reports whether a skill is one of the profile.
func (p *Profile) IncludesSkill(path string) bool {
	return p.Skills == nil || slices.Contains(p.Skills, path)
}
