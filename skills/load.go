package skills

import (
	"errors"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// errKept says that no more frontmatter is kept.
var errKept = errors.New("there is too much frontmatter")

// unloadable is the diagnostic of a skill that was skipped. Its path is left to the caller.
func unloadable(err error) Diagnostic {
	var invalid *frontmatter.Error
	switch {
	case errors.As(err, &invalid):
		return Diagnostic{Severity: Error, Code: codeOf(invalid.Kind), Detail: invalid.Reason, Line: invalid.Line}
	case errors.Is(err, errKept):
		return diagnose(Error, CodeScanLimit, "", "the skills of its root before it have more than %d bytes of frontmatter", maxKept)
	case errors.Is(err, ErrTooLarge):
		return diagnose(Error, CodeScanLimit, "", "the file has more than %d bytes", MaxSkillFile)
	case errors.Is(err, ErrOutsideRoot):
		return diagnose(Error, CodeOutsideRoot, "", "the file is a link that leads out of its directory; a skill's files lie below it")
	}
	return diagnose(Error, CodeUnreadableSkill, "", "the file cannot be read: %v", err)
}

// codeOf returns the code of a SKILL.md that cannot be parsed.
func codeOf(kind frontmatter.Kind) Code {
	switch kind {
	case frontmatter.Encoding:
		return CodeInvalidEncoding
	case frontmatter.NoDescription:
		return CodeMissingDescription
	}
	return CodeInvalidFrontmatter
}
