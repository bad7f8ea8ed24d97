package skills

import (
	"strings"
	"unicode/utf8"
)

const uriScheme = "skill://"

// maxURIPath is the longest path a URI names, in bytes: a skill's and, below it, a file's.
const maxURIPath = 2*maxPath + 1

// URI returns the URI of a file of the skill, skill://<path>/<file>, each segment percent-encoded.
// It exists for every path [CleanPath] returns, and [ParseURI] undoes it.
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
	const hex = "0123456789ABCDEF"
	for i := range len(path) {
		c := path[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if letter || '0' <= c && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
}

// ParseURI returns the decoded path a skill URI names: a skill's path and, after it, one of a file.
// Other spellings of the same path are decoded alike, but nothing is resolved: queries, fragments,
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
	}
	rest = strings.TrimSuffix(rest, "/")
	var b strings.Builder
	b.Grow(len(rest))
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		if c == '%' {
			if i+2 >= len(rest) {
				return refuse("has an invalid escape")
			}
			high, low := unhex(rest[i+1]), unhex(rest[i+2])
			if high < 0 || low < 0 {
				return refuse("has an invalid escape")
			}
			i += 2
			if c = byte(high<<4 | low); c == '/' {
				return refuse("must not have an encoded separator")
			}
		}
		b.WriteByte(c)
	}
	path = b.String()
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

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
