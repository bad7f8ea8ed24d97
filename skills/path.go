package skills

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills/script"
)

// maxPath is the longest path of a file within a skill, in bytes.
const maxPath = 4096

// PathError is a path or URI that can name no file of a skill.
type PathError struct {
	Path   string
	Reason string // a phrase that follows "path"
}

func (e *PathError) Error() string { return "path " + e.Reason }

// CleanPath returns the canonical form of a path within a skill: relative, separated by "/",
// without empty and "." segments. What could name another file on another system, or anything
// outside, is refused and not resolved: "..", backslashes, control characters, line separators,
// absolute paths, schemes and drives.
//
// Errors: *PathError.
func CleanPath(p string) (string, error) {
	refuse := func(reason string) (string, error) { return "", &PathError{Path: p, Reason: reason} }
	switch {
	case p == "":
		return refuse("must be non-empty")
	case len(p) > maxPath:
		return refuse("is too long")
	case !utf8.ValidString(p):
		return refuse("must be UTF-8")
	case strings.ContainsFunc(p, breaksLine):
		return refuse("must not contain control characters")
	case strings.Contains(p, `\`):
		return refuse("must use / between names")
	case p[0] == '/':
		return refuse("must be relative to the skill directory")
	case hasScheme(p):
		return refuse("must not have a scheme or a drive")
	}
	if isCanonical(p) {
		return p, nil
	}
	kept := make([]string, 0, 8)
	for segment := range strings.SplitSeq(p, "/") {
		switch segment {
		case "", ".":
		case "..":
			return refuse("must stay within the skill directory")
		default:
			kept = append(kept, segment)
		}
	}
	if len(kept) == 0 {
		return refuse("must name a file")
	}
	clean := strings.Join(kept, "/")
	if hasScheme(clean) {
		return refuse("must not have a scheme or a drive")
	}
	return clean, nil
}

// CleanScriptPath is the canonical form of a script's path, which lies below scripts/. It is
// stricter than [CleanPath] because such paths stand in allowlists.
//
// Errors: *script.PathError.
func CleanScriptPath(p string) (string, error) { return script.CleanPath(p) }

// breaksLine reports characters that end a line or control a terminal.
func breaksLine(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

// isCanonical reports that no segment is empty, "." or "..".
func isCanonical(p string) bool {
	for segment := range strings.SplitSeq(p, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// hasScheme reports a leading "letters:/", which other programs read as a URI or a drive, and the
// URI schemes that need no slash.
func hasScheme(p string) bool {
	colon := strings.IndexByte(p, ':')
	if colon < 1 {
		return false
	}
	for i := range colon {
		c := p[i] | 0x20
		letter := 'a' <= c && c <= 'z'
		other := '0' <= p[i] && p[i] <= '9' || p[i] == '+' || p[i] == '-' || p[i] == '.'
		if !letter && (i == 0 || !other) {
			return false
		}
	}
	if strings.HasPrefix(p[colon+1:], "/") {
		return true
	}
	scheme := strings.ToLower(p[:colon])
	return scheme == "data" || scheme == "file" || scheme == "javascript"
}
