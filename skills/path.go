package skills

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills/script"
)

// maxPath is the maximum length of a path in a skill, in bytes.
const maxPath = 4096

// PathError reports a path or URI that cannot name a file of a skill.
type PathError struct {
	Path   string
	Reason string // a phrase that follows "path"
}

func (e *PathError) Error() string { return "path " + e.Reason }

// InDir reports whether a clean path is the directory dir or below it; "." has all.
func InDir(dir, at string) bool { return dir == "." || dir == at || strings.HasPrefix(at, dir+"/") }

// CleanPath returns the canonical form of a path in a skill: relative, separated by "/", without empty and
// "." segments. It refuses, rather than resolves, paths that could name another file on another system, or a
// file outside: with "..", backslashes, control characters, line separators, a scheme or a drive, and
// absolute paths.
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
		if segment == ".." {
			return refuse("must stay within the skill directory")
		}
		if segment != "" && segment != "." {
			kept = append(kept, segment)
		}
	}
	if len(kept) == 0 {
		return refuse("must name a file")
	}
	// Dropping segments may have moved a scheme to the front, as in "./c:/x".
	clean := strings.Join(kept, "/")
	if hasScheme(clean) {
		return refuse("must not have a scheme or a drive")
	}
	return clean, nil
}

// CleanScriptPath returns the canonical form of the path of a script, which need not be below scripts/. It is
// stricter than [CleanPath], because allowlists contain such paths.
//
// Errors: *script.PathError.
func CleanScriptPath(p string) (string, error) { return script.CleanFile(p) }

// breaksLine reports whether a character ends a line or controls a terminal.
func breaksLine(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

// isCanonical reports whether no segment is empty, "." or "..".
func isCanonical(p string) bool {
	for segment := range strings.SplitSeq(p, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// hasScheme reports whether a path begins with "letters:/", which other programs parse as a URI or a drive,
// or with a URI scheme that needs no slash.
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

const uriScheme = "skill://"

// maxURIPath is the maximum length of the path in a URI, in bytes: the path of a skill and of a file below
// it.
const maxURIPath = 2*maxPath + 1

// URI returns the URI of a file of the skill, skill://<path>/<file>, with each segment percent-encoded.
// [ParseURI] returns the same path for it.
func (s *Skill) URI(path string) string {
	var b strings.Builder
	b.Grow(len(uriScheme) + len(s.Path) + 1 + len(path))
	b.WriteString(uriScheme)
	escape(&b, s.Path)
	b.WriteByte('/')
	escape(&b, path)
	return b.String()
}

// escape writes all but the unreserved characters of RFC 3986 and "/" as %XX.
func escape(b *strings.Builder, path string) {
	for i := range len(path) {
		c := path[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if letter || '0' <= c && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(b, "%%%02X", c)
	}
}

// ParseURI returns the decoded path of a skill URI: the path of a skill, optionally followed by the path of a
// file. Other spellings of the same path give the same result, but nothing is resolved: queries, fragments,
// empty, "." and ".." segments and encoded separators are refused. One trailing "/" is dropped.
//
// Errors: *PathError.
func ParseURI(uri string) (path string, err error) {
	refuse := func(reason string) (string, error) { return "", &PathError{Path: uri, Reason: reason} }
	rest, ok := strings.CutPrefix(uri, uriScheme)
	switch {
	case !ok:
		return refuse("must be a skill:// URI")
	case len(rest) > 3*maxURIPath:
		return refuse("is too long")
	case strings.ContainsAny(rest, "?#"):
		return refuse("must not have a query or a fragment")
	// Decoded, it would become a separator that was not one in the URI.
	case strings.Contains(strings.ToLower(rest), "%2f"):
		return refuse("must not have an encoded separator")
	}
	path, err = url.PathUnescape(strings.TrimSuffix(rest, "/"))
	if err != nil {
		return refuse("has an invalid escape")
	}
	switch {
	case len(path) > maxURIPath:
		return refuse("is too long")
	case !isCanonical(path):
		return refuse("must not have empty, . or .. segments")
	case !utf8.ValidString(path):
		return refuse("must be UTF-8")
	case strings.ContainsFunc(path, breaksLine):
		return refuse("must not contain control characters")
	case strings.Contains(path, `\`):
		return refuse("must use / between names")
	}
	return path, nil
}
