package frontmatter

import (
	"strings"
	"unicode/utf8"
)

// maxPlainLines is the maximum number of lines that parsePlain reads.
const maxPlainLines = 200

// parsePlain parses the frontmatter of most skills: keys with values on their line, and below a key without a
// value a list or one more level of keys. The result is the same as of parseYAML, in a tenth of the time: a
// scan of thousands of skills spends most of its time here. It rejects all ambiguous input: escapes,
// comments, blank lines, block scalars, indicators, duplicate keys.
func parsePlain(block string) (*value, bool) {
	p := plainParser{rest: block}
	if !p.next() || p.indent != 0 {
		return nil, false
	}
	whole := value{kind: mapping}
	if !p.mapping(&whole, true) || !p.done {
		return nil, false
	}
	return &whole, true
}

// plainParser is the state of parsePlain at a line of the block.
type plainParser struct {
	rest   string // after the line
	line   string // without indentation and spaces at its end
	indent int
	column int // of the keys in the first nested mapping
	lines  int
	done   bool // no line is left
	failed bool // the line is not plain
}

// next advances to the next line. It returns false at the end, and at a line that is not plain.
func (p *plainParser) next() bool {
	if p.rest == "" {
		p.done = true
		return false
	}
	p.line, p.rest, _ = strings.Cut(p.rest, "\n")
	trimmed := strings.TrimLeft(p.line, " ")
	p.indent = len(p.line) - len(trimmed)
	p.line = strings.TrimRight(trimmed, " ")
	p.lines++
	p.failed = p.line == "" || p.lines > maxPlainLines || !printable(p.line)
	return !p.failed
}

// mapping parses the keys at the indentation of the current line, and stops at the line after them.
func (p *plainParser) mapping(v *value, nests bool) bool {
	indent := p.indent
	for {
		key, rest, ok := cutKey(p.line)
		if !ok || v.member(key) != nil {
			return false
		}
		var item value
		if !p.value(&item, rest, nests) {
			return false
		}
		v.keys, v.items = append(v.keys, key), append(v.items, item)
		// A deeper line here would belong to a scalar over several lines, which is left to parseYAML.
		if p.failed || !p.done && p.indent > indent {
			return false
		}
		if p.done || p.indent < indent {
			return true
		}
	}
}

// value parses the value of the key in the current line, with the text after its colon, and stops at the line
// after it.
func (p *plainParser) value(v *value, rest string, nests bool) (ok bool) {
	if rest != "" {
		*v, ok = plainScalar(rest)
		p.next()
		return ok
	}
	indent := p.indent
	// A list may be as deep as its key, other nested values must be deeper.
	if !p.next() || p.indent < indent || p.indent == indent && !isItem(p.line) {
		return true
	}
	return nests && p.nested(v)
}

// nested parses a list or a mapping below its key.
func (p *plainParser) nested(v *value) bool {
	if !isItem(p.line) {
		// The reference rejects nested mappings with different indentation.
		if p.column == 0 {
			p.column = p.indent
		}
		v.kind = mapping
		return p.column == p.indent && p.mapping(v, false)
	}
	v.kind = list
	indent := p.indent
	for {
		item, ok := plainScalar(strings.TrimLeft(p.line[1:], " "))
		if !ok {
			return false
		}
		v.items = append(v.items, item)
		if !p.next() {
			return !p.failed
		}
		if p.indent != indent || !isItem(p.line) {
			// A line at the depth of the list that is not an item is the next key only where the list is as
			// deep as its key.
			return p.indent < indent || p.indent == indent && indent == 0
		}
	}
}

func isItem(line string) bool { return strings.HasPrefix(line, "- ") }

// cutKey splits a line into a key, which must be a word, and the text after its colon.
func cutKey(line string) (key, rest string, ok bool) {
	key, rest, ok = strings.Cut(line, ":")
	if !ok || key == "" || len(key) > MaxName || rest != "" && rest[0] != ' ' {
		return "", "", false
	}
	for i := range len(key) {
		c := key[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c != '-' && c != '_' && (c < '0' || c > '9')) {
			return "", "", false
		}
	}
	// Words such as null and True are keys of another type.
	return key, strings.TrimLeft(rest, " "), resolve(key).kind == text
}

// plainScalar parses a scalar that ends with its line.
func plainScalar(s string) (value, bool) {
	if s == "" {
		return value{}, false
	}
	first, last := s[0], s[len(s)-1]
	if first == '"' || first == '\'' {
		return quotedScalar(s)
	}
	isLetter := 'a' <= first|0x20 && first|0x20 <= 'z'
	if !isLetter && first < utf8.RuneSelf && strings.IndexByte("0123456789(/_.", first) < 0 {
		return value{}, false
	}
	// These begin a mapping or a comment in YAML, so the careful parser decides.
	if last == ':' || strings.Contains(s, ": ") || strings.Contains(s, " #") {
		return value{}, false
	}
	// A Unicode space at an end is part of the text to some parsers and not to others.
	if (first >= utf8.RuneSelf || last >= utf8.RuneSelf) && strings.TrimSpace(s) != s {
		return value{}, false
	}
	return resolve(s), true
}

// quotedScalar parses a text in quotes, without an escape and a quote of its own kind.
func quotedScalar(s string) (value, bool) {
	quote, inner := s[0], s[1:]
	end := strings.IndexByte(inner, quote)
	if end < 0 || end != len(inner)-1 || quote == '"' && strings.IndexByte(inner, '\\') >= 0 {
		return value{}, false
	}
	return value{kind: text, source: inner[:end]}, true
}

// printable reports whether a text has only characters that YAML allows, and no tabs or line breaks of any
// kind.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return printableRunes(s[i:])
		}
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func printableRunes(s string) bool {
	for _, r := range s {
		switch {
		case r < ' ', r >= 0x7f && r < 0xa0, r == '\u2028', r == '\u2029', r == '\ufeff',
			r >= '\ufffd' && r <= '\uffff':
			return false
		}
	}
	return true
}
