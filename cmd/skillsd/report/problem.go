package report

import (
	"strings"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Problem is a rule that a skill breaks.
type Problem struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity,omitempty"` // with --lenient; the strict rules know errors only
	File     string `json:"file,omitempty"`     // if it is not the skill's SKILL.md
	Line     int    `json:"line,omitempty"`
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
}

// JoinPath puts a slash between two parts that are not empty. What the user gave stays as given.
func JoinPath(dir, name string) string {
	if dir == "" || name == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// StrictProblems returns violations as problems.
func StrictProblems(violations []frontmatter.Violation) []Problem {
	problems := make([]Problem, len(violations))
	for i, v := range violations {
		problems[i] = Problem{Rule: v.Rule, Line: v.Line, Message: v.Message, Fix: v.Fix}
	}
	return problems
}
