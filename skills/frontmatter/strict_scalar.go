package frontmatter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scalar adds a scalar that began at a place.
func (t *tokenizer) scalar(line, column int, text string, plain bool) {
	t.tokens = append(t.tokens, token{kind: tokenScalar, line: line, column: column, text: text, plain: plain})
}

// separator reports one of the lines that end a document.
func (t *tokenizer) separator() bool {
	rest := t.src[t.pos:]
	return (strings.HasPrefix(rest, "---") || strings.HasPrefix(rest, "...")) && t.ends(t.pos+3)
}

// plain reads a scalar without quotes. It goes on over lines that are indented deeper than the
// collection it is in.
func (t *tokenizer) plain() {
	line, column, indent := t.line, t.column(), t.indent+1
	var text strings.Builder
	gap := ""
	for {
		if t.at(0) == '#' {
			break
		}
		start := t.pos
		for !t.ends(t.pos) && (t.at(0) != ':' || !t.ends(t.pos+1)) {
			t.pos++
		}
		if t.pos == start {
			break
		}
		t.keyNext = false
		text.WriteString(gap)
		text.WriteString(t.src[start:t.pos])
		var more bool
		if gap, more = t.plainGap(); !more || t.at(0) == '#' || t.column() < indent {
			break
		}
	}
	t.scalar(line, column, text.String(), true)
}

// plainGap passes the space between two words of a plain scalar and returns what stands for it; more
// is false when there is none.
func (t *tokenizer) plainGap() (gap string, more bool) {
	start := t.pos
	for t.at(0) == ' ' {
		t.pos++
	}
	if t.breakSize(t.pos) == 0 {
		return t.src[start:t.pos], t.pos > start
	}
	first := t.lineBreak()
	t.keyNext = true
	if t.separator() {
		return "", false
	}
	var breaks strings.Builder
	for t.at(0) == ' ' || t.breakSize(t.pos) > 0 {
		if t.at(0) == ' ' {
			t.pos++
			continue
		}
		breaks.WriteString(t.lineBreak())
		if t.separator() {
			return "", false
		}
	}
	return fold(first, breaks.String()), true
}

// fold joins lines: one line feed is a space, further ones stay.
func fold(first, breaks string) string {
	switch {
	case first != "\n":
		return first + breaks
	case breaks == "":
		return " "
	}
	return breaks
}

// quoted reads a scalar in quotes.
func (t *tokenizer) quoted(quote byte) {
	line, column := t.line, t.column()
	var text strings.Builder
	t.pos++
	for t.failed == nil {
		t.quotedText(quote, &text)
		if t.at(0) == quote || t.failed != nil {
			break
		}
		start := t.pos
		for t.at(0) == ' ' || t.at(0) == '\t' {
			t.pos++
		}
		switch {
		case t.at(0) == 0:
			t.fail(line, "a quote is not closed", "close the quote; inside single quotes write ' twice")
		case t.breakSize(t.pos) > 0:
			first := t.lineBreak()
			text.WriteString(fold(first, t.quotedBreaks()))
		default:
			text.WriteString(t.src[start:t.pos])
		}
	}
	t.pos++
	t.scalar(line, column, text.String(), false)
}

// quotedBreaks passes empty lines within quotes and the indentation of the next one.
func (t *tokenizer) quotedBreaks() string {
	var breaks strings.Builder
	for {
		if t.separator() {
			t.fail(t.line, "a quote is not closed before the line ...", "close the quote")
			return ""
		}
		for t.at(0) == ' ' || t.at(0) == '\t' {
			t.pos++
		}
		if t.breakSize(t.pos) == 0 {
			return breaks.String()
		}
		breaks.WriteString(t.lineBreak())
	}
}

// quotedText reads up to the closing quote, a blank, a line break or the end.
func (t *tokenizer) quotedText(quote byte, text *strings.Builder) {
	for t.failed == nil {
		start := t.pos
		for c := t.at(0); c != '\'' && c != '"' && c != '\\' && !t.ends(t.pos); c = t.at(0) {
			t.pos++
		}
		text.WriteString(t.src[start:t.pos])
		c := t.at(0)
		switch {
		case quote == '\'' && c == '\'' && t.at(1) == '\'':
			text.WriteByte('\'')
			t.pos += 2
		case quote == '"' && c == '\'', quote == '\'' && (c == '"' || c == '\\'):
			text.WriteByte(c)
			t.pos++
		case quote == '"' && c == '\\':
			t.pos++
			t.escape(text)
		default:
			return
		}
	}
}

var escapes = map[byte]string{
	'0': "\x00", 'a': "\a", 'b': "\b", 't': "\t", '\t': "\t", 'n': "\n", 'v': "\v", 'f': "\f", 'r': "\r", 'e': "\x1b",
	' ': " ", '"': "\"", '/': "/", '\\': "\\", 'N': "\u0085", '_': "\u00a0", 'L': "\u2028", 'P': "\u2029",
}

// escape reads what stands behind a backslash. Half of a surrogate pair counts as one character.
func (t *tokenizer) escape(text *strings.Builder) {
	c := t.at(0)
	size := 0
	switch c {
	case 'x':
		size = 2
	case 'u':
		size = 4
	case 'U':
		size = 8
	}
	known, ok := escapes[c]
	switch {
	case ok:
		text.WriteString(known)
		t.pos++
	case size > 0:
		t.pos++
		digits := t.src[t.pos:min(t.pos+size, len(t.src))]
		code, err := strconv.ParseUint(digits, 16, 64)
		if len(digits) < size || err != nil || code > utf8.MaxRune {
			t.fail(t.line, fmt.Sprintf("\\%c needs %d hexadecimal digits of a character", c, size), escapeFix)
			return
		}
		text.WriteRune(rune(code))
		t.pos += size
	case t.breakSize(t.pos) > 0:
		t.lineBreak()
		text.WriteString(t.quotedBreaks())
	default:
		t.fail(t.line, "a backslash in double quotes starts no known escape", escapeFix)
	}
}

const escapeFix = "write the backslash twice or use single quotes"

// blockScalar reads the text below | or >.
func (t *tokenizer) blockScalar(folded bool) {
	line, column := t.line, t.column()
	t.pos++
	chomp, increment := t.blockHeader()
	if t.failed != nil {
		return
	}
	var indent int
	var breaks string
	if increment == 0 {
		breaks, indent = t.blockIndent()
		indent = max(indent, t.indent+1)
	} else {
		indent = max(t.indent+1, 1) + increment - 1
		breaks = t.blockBreaks(indent)
	}
	top := t.indent < 0 && increment == 0
	var text strings.Builder
	last := ""
	for t.column() == indent && t.at(0) != 0 {
		text.WriteString(breaks)
		flush := t.at(0) != ' ' && t.at(0) != '\t'
		start := t.pos
		t.comment()
		text.WriteString(t.src[start:t.pos])
		last = t.lineBreak()
		breaks = t.blockBreaks(indent)
		if top && t.column() == 0 && t.separator() || t.column() != indent || t.at(0) == 0 {
			break
		}
		switch {
		case !folded || last != "\n" || !flush || t.at(0) == ' ' || t.at(0) == '\t':
			text.WriteString(last)
		case breaks == "":
			text.WriteByte(' ')
		}
	}
	if chomp != '-' {
		text.WriteString(last)
	}
	if chomp == '+' {
		text.WriteString(breaks)
	}
	t.scalar(line, column, text.String(), false)
}

// blockHeader reads the rest of the line of a block scalar: how its end is chomped (+, - or 0), and
// how deep it is indented (0: as its first line).
func (t *tokenizer) blockHeader() (chomp byte, increment int) {
	sign := func() {
		if c := t.at(0); c == '+' || c == '-' {
			chomp = c
			t.pos++
		}
	}
	sign()
	if c := t.at(0); '0' <= c && c <= '9' {
		if increment = int(c - '0'); increment == 0 {
			t.fail(t.line, "the indentation of a block text is 1 to 9", "remove the 0")
		}
		t.pos++
		if chomp == 0 {
			sign()
		}
	}
	clean := t.at(0) == ' ' || t.at(0) == 0 || t.breakSize(t.pos) > 0
	for t.at(0) == ' ' {
		t.pos++
	}
	if t.at(0) == '#' {
		t.comment()
	}
	if !clean || t.at(0) != 0 && t.breakSize(t.pos) == 0 {
		t.fail(t.line, "text stands behind | or >", "start the text on the next line, indented")
	}
	t.lineBreak()
	return chomp, increment
}

// blockIndent passes empty lines and spaces before a block text, and returns the deepest of them.
func (t *tokenizer) blockIndent() (breaks string, deepest int) {
	var text strings.Builder
	for t.at(0) == ' ' || t.breakSize(t.pos) > 0 {
		if t.at(0) == ' ' {
			t.pos++
			deepest = max(deepest, t.column())
			continue
		}
		text.WriteString(t.lineBreak())
	}
	return text.String(), deepest
}

// blockBreaks passes empty lines within a block text and the indentation of the next one.
func (t *tokenizer) blockBreaks(indent int) string {
	var breaks strings.Builder
	for {
		for t.column() < indent && t.at(0) == ' ' {
			t.pos++
		}
		if t.breakSize(t.pos) == 0 {
			return breaks.String()
		}
		breaks.WriteString(t.lineBreak())
	}
}
