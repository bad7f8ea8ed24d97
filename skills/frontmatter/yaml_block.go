package frontmatter

import (
	"fmt"
	"strings"
	"unicode"
)

// blockReader reads the YAML that every parser of YAML 1.2 reads alike: block and flow collections,
// plain, quoted and block scalars, comments. It refuses what libraries treat differently or authors
// cannot have meant: tabs between tokens, quoted text that is not indented, anchors, tags, merge and
// complex keys, equal keys, several documents.
type blockReader struct {
	lines []string // without line ends; an entry of a list loses its hyphen when it is read
	n     int      // the current line
	col   int      // where a scalar or flow collection is read in it
	depth int
	count int // values
	fault *blockFault
}

// blockFault says where and why a block is refused.
type blockFault struct {
	line   int // of the block, from 0
	reason string
}

// readBlock returns the mapping a block is.
func readBlock(block string) (*value, *blockFault) {
	lines := strings.Split(strings.TrimSuffix(block, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSuffix(line, "\r")
		if at, r := unprintable(lines[i]); at >= 0 {
			return nil, &blockFault{i, fmt.Sprintf("it holds a character that no text should have (U+%04X)", r)}
		}
	}
	r := &blockReader{lines: lines}
	whole := value{kind: mapping}
	if r.skip(); !r.done() {
		if whole = r.node(0); r.fault == nil && !r.done() {
			r.fail("the indentation fits nothing above")
		}
		if r.fault == nil && whole.kind != mapping {
			r.n = 0
			r.fail("the frontmatter is not a mapping of keys to values")
		}
	}
	if r.fault != nil {
		return nil, r.fault
	}
	return &whole, nil
}

func (r *blockReader) fail(reason string) value {
	if r.fault == nil {
		r.fault = &blockFault{min(r.n, len(r.lines)-1), reason}
	}
	r.n = len(r.lines)
	return value{}
}

func (r *blockReader) done() bool { return r.n >= len(r.lines) || r.fault != nil }

// indent counts the spaces a line starts with.
func indent(line string) int {
	return len(line) - len(strings.TrimLeft(line, " "))
}

func blank(line string) bool { return strings.TrimLeft(line, " ") == "" }

// skip passes empty lines and comments.
func (r *blockReader) skip() {
	for !r.done() {
		line := strings.TrimLeft(r.lines[r.n], " ")
		if !blank(line) && line[0] != '#' {
			if line[0] == '\t' {
				r.fail("a tab stands where spaces belong")
			}
			return
		}
		r.n++
	}
}

// at returns the indentation of the current line, or -1 at the end.
func (r *blockReader) at() int {
	if r.done() {
		return -1
	}
	return indent(r.lines[r.n])
}

// node reads the value that starts at the current line, which is indented by at least some spaces.
func (r *blockReader) node(least int) value {
	if r.depth++; r.depth > maxYAMLDepth {
		return r.fail("the frontmatter is nested too deep")
	}
	defer func() { r.depth-- }()
	if r.count++; r.count > maxYAMLNodes {
		return r.fail("the frontmatter has too many values")
	}
	in := r.at()
	text := r.lines[r.n][in:]
	if isEntry(text) {
		return r.list(in)
	}
	if _, _, ok := r.key(text); ok {
		return r.mapping(in)
	}
	if r.fault != nil {
		return value{}
	}
	r.col = in
	return r.scalar(least - 1)
}

func isEntry(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

// list reads the entries at an indentation.
func (r *blockReader) list(in int) value {
	v := value{kind: list}
	for r.skip(); r.at() == in && isEntry(r.lines[r.n][in:]); r.skip() {
		rest := strings.TrimLeft(r.lines[r.n][in+1:], " ")
		if empty(rest) {
			r.n++
			v.items = append(v.items, r.below(in, false))
			continue
		}
		r.lines[r.n] = strings.Repeat(" ", len(r.lines[r.n])-len(rest)) + rest
		v.items = append(v.items, r.node(in+1))
	}
	if r.at() > in {
		return r.fail("the indentation fits nothing above")
	}
	return v
}

// empty reports a rest of a line without a value.
func empty(rest string) bool { return rest == "" || rest[0] == '#' }

// below reads the value on the lines below a key or a hyphen: null, unless they are indented deeper.
// The entries of a list below a key need not be.
func (r *blockReader) below(in int, listToo bool) value {
	switch r.skip(); {
	case r.at() > in:
		return r.node(in + 1)
	case listToo && r.at() == in && isEntry(r.lines[r.n][in:]):
		return r.list(in)
	}
	r.count++
	return value{kind: null}
}

// mapping reads the keys at an indentation.
func (r *blockReader) mapping(in int) value {
	v := value{kind: mapping}
	seen := map[string]bool{}
	for r.skip(); r.at() == in; r.skip() {
		key, rest, ok := r.key(r.lines[r.n][in:])
		switch {
		case r.fault != nil:
			return value{}
		case !ok:
			return r.fail("a line is neither a key with a colon and a space behind it nor part of the value above")
		case seen[key]:
			return r.fail("the key stands above already")
		}
		seen[key] = true
		v.keys = append(v.keys, key)
		if empty(rest) {
			r.n++
			v.items = append(v.items, r.below(in, true))
			continue
		}
		r.col = len(r.lines[r.n]) - len(rest)
		v.items = append(v.items, r.scalar(in))
	}
	if r.at() > in {
		return r.fail("the indentation fits nothing above")
	}
	return v
}

// key splits a text that starts with a key.
func (r *blockReader) key(text string) (key, rest string, ok bool) {
	var end int
	if text[0] == '"' || text[0] == '\'' {
		q := blockReader{lines: []string{text}}
		key = q.quoted(0)
		if q.fault != nil {
			return "", "", false
		}
		end = q.col + indent(text[q.col:])
	} else {
		if end = colonIn(text); end < 0 || !startsPlain(text) {
			return "", "", false
		}
		plain := strings.TrimRight(text[:end], " ")
		if !cleanPlain(plain) || plain == "<<" {
			r.fail("a key is not a plain word")
			return "", "", false
		}
		k := resolve(plain)
		key = k.keyText()
		if k.kind == number && key == "null" {
			r.fail("a key is not a plain word")
		}
	}
	if end >= len(text) || text[end] != ':' || end+1 < len(text) && text[end+1] != ' ' {
		return "", "", false
	}
	if end >= maxKeyLength {
		r.fail("a key is too long")
	}
	return key, strings.TrimLeft(text[end+1:], " "), r.fault == nil
}

// colonIn returns where the colon of a key stands: before a space or at the end, outside a comment.
func colonIn(text string) int {
	for i := range len(text) {
		switch {
		case text[i] == ':' && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\t'):
			return i
		case text[i] == '#' && i > 0 && text[i-1] == ' ':
			return -1
		}
	}
	return -1
}

// startsPlain reports a text that can start a plain scalar.
func startsPlain(text string) bool {
	switch text[0] {
	case '-', '?', ':':
		return len(text) > 1 && text[1] != ' ' && text[1] != '\t'
	}
	return !strings.ContainsRune(",[]{}#&*!|>'\"%@`", rune(text[0]))
}

// cleanPlain reports a line of a plain scalar without tabs at places where they might separate, and
// without spaces of other kinds at its ends.
func cleanPlain(text string) bool {
	if text == "" || strings.TrimFunc(text, unicode.IsSpace) != text {
		return false
	}
	for i := range len(text) {
		if text[i] == '\t' && (strings.IndexByte(" \t:", text[i-1]) >= 0 || strings.IndexByte(" \t#", text[i+1]) >= 0) {
			return false
		}
	}
	return true
}

// scalar reads a value that starts at the current column, within a collection at an indentation.
func (r *blockReader) scalar(in int) value {
	r.count++
	var v value
	switch r.lines[r.n][r.col] {
	case '|', '>':
		return value{kind: text, source: r.blockText(in)}
	case '"', '\'':
		v = value{kind: text, source: r.quoted(in)}
	case '[', '{':
		v = r.flow(in)
	default:
		return r.plain(in)
	}
	if r.fault != nil {
		return value{}
	}
	rest := r.lines[r.n][r.col:]
	if trimmed := strings.TrimLeft(rest, " "); trimmed != "" && (trimmed[0] != '#' || trimmed == rest) {
		return r.fail("text stands behind the end of a value")
	}
	r.n++
	return v
}

// plain reads a plain scalar, which goes on over deeper lines.
func (r *blockReader) plain(in int) value {
	first := r.lines[r.n][r.col:]
	if !startsPlain(first) {
		return r.fail(fmt.Sprintf("a value cannot start with %q", first[0]))
	}
	var text strings.Builder
	for blanks := -1; ; {
		segment := r.lines[r.n][r.col:]
		comment := strings.Index(segment, " #")
		if comment >= 0 {
			segment = segment[:comment]
		}
		segment = strings.TrimRight(segment, " ")
		switch {
		case colonIn(segment) >= 0:
			return r.fail("a value has a colon and a space in it")
		case !cleanPlain(segment):
			return r.fail("a value has a tab or a space of another kind beside a space, or at its end")
		case blanks > 0:
			text.WriteString(strings.Repeat("\n", blanks))
		case blanks == 0:
			text.WriteByte(' ')
		}
		text.WriteString(segment)
		r.n++
		blanks = 0
		ahead := r.n
		for ahead < len(r.lines) && blank(r.lines[ahead]) {
			ahead++
			blanks++
		}
		if comment >= 0 || ahead == len(r.lines) || indent(r.lines[ahead]) <= in {
			break
		}
		next := strings.TrimLeft(r.lines[ahead], " ")
		if next[0] == '#' {
			break
		}
		r.n, r.col = ahead, indent(r.lines[ahead])
	}
	return resolve(text.String())
}
