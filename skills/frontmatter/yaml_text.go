package frontmatter

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// quoted reads a text in quotes that starts at the current column, up to behind its closing quote.
func (r *blockReader) quoted(in int) string {
	quote := r.lines[r.n][r.col]
	r.col++
	var text []byte
	kept := 0 // spaces before it are the text's, not the line's
	for {
		line := r.lines[r.n]
		if r.col >= len(line) {
			for len(text) > kept && (text[len(text)-1] == ' ' || text[len(text)-1] == '\t') {
				text = text[:len(text)-1]
			}
			if !r.fold(in, &text, false) {
				return ""
			}
			kept = len(text)
			continue
		}
		c := line[r.col]
		r.col++
		switch {
		case c == quote && quote == '\'' && r.col < len(line) && line[r.col] == '\'':
			text = append(text, '\'')
			r.col++
		case c == quote:
			return string(text)
		case c == '\\' && quote == '"':
			if r.col == len(line) {
				if !r.fold(in, &text, true) {
					return ""
				}
			} else if !r.escape(&text) {
				r.fail("a backslash in double quotes starts no known escape")
				return ""
			}
			kept = len(text)
		default:
			text = append(text, c)
		}
	}
}

// fold goes to the next line of a quoted text: a line end is a space, unless it is escaped, and empty
// lines are line feeds.
func (r *blockReader) fold(in int, text *[]byte, escaped bool) bool {
	blanks := 0
	for r.n++; r.n < len(r.lines) && blank(r.lines[r.n]); r.n++ {
		blanks++
	}
	if r.n >= len(r.lines) {
		r.fail("a quote is not closed")
		return false
	}
	if r.col = indent(r.lines[r.n]); r.col <= in || r.lines[r.n][r.col] == '\t' {
		r.fail("the lines of a quoted text are not indented")
		return false
	}
	*text = append(*text, strings.Repeat("\n", blanks)...)
	if blanks == 0 && !escaped {
		*text = append(*text, ' ')
	}
	return true
}

// escape reads what stands behind a backslash.
func (r *blockReader) escape(text *[]byte) bool {
	c := r.lines[r.n][r.col]
	if known, ok := escapes[c]; ok {
		*text = append(*text, known...)
		r.col++
		return true
	}
	code, ok := r.hex()
	if !ok {
		return false
	}
	if utf16.IsSurrogate(code) {
		if r.col >= len(r.lines[r.n]) || r.lines[r.n][r.col] != '\\' {
			return false
		}
		r.col++
		low, ok := r.hex()
		if code = utf16.DecodeRune(code, low); !ok || code == utf8.RuneError {
			return false
		}
	}
	*text = utf8.AppendRune(*text, code)
	return true
}

// hex reads the letter and the digits of a character's number.
func (r *blockReader) hex() (rune, bool) {
	rest := r.lines[r.n][r.col:]
	size := 0
	if rest != "" {
		size = map[byte]int{'x': 2, 'u': 4, 'U': 8}[rest[0]]
	}
	if size == 0 || len(rest) <= size {
		return 0, false
	}
	code, err := strconv.ParseUint(rest[1:1+size], 16, 32)
	r.col += 1 + size
	return rune(code), err == nil && code <= utf8.MaxRune
}

// blockText reads the text below | or >.
func (r *blockReader) blockText(in int) string {
	header := r.lines[r.n][r.col:]
	folded := header[0] == '>'
	if at := strings.Index(header, " #"); at >= 0 {
		header = header[:at]
	}
	chomp, given := byte(0), 0
	for _, c := range []byte(strings.TrimRight(header[1:], " ")) {
		switch {
		case (c == '+' || c == '-') && chomp == 0:
			chomp = c
		case '1' <= c && c <= '9' && given == 0:
			given = int(c - '0')
		default:
			r.fail("text stands behind | or >")
			return ""
		}
	}
	start := r.n + 1
	width := max(in, 0) + given
	if given == 0 {
		width = r.blockWidth(start, in)
	}
	var content []string
	for r.n = start; r.n < len(r.lines); r.n++ {
		line := r.lines[r.n]
		spaces := indent(line)
		switch {
		case spaces == len(line) && spaces <= width:
			content = append(content, "")
			continue
		case spaces >= width && width > in:
			content = append(content, line[width:])
			continue
		case spaces < len(line) && line[spaces] == '\t':
			r.fail("a tab stands where spaces belong")
			return ""
		}
		break
	}
	return r.assemble(content, folded, chomp)
}

// blockWidth returns the indentation of the first line of a block text, or that of its collection
// when there is none.
func (r *blockReader) blockWidth(start, in int) int {
	deepest := 0
	for i := start; i < len(r.lines); i++ {
		spaces := indent(r.lines[i])
		if spaces == len(r.lines[i]) {
			deepest = max(deepest, spaces)
			continue
		}
		if spaces > in && deepest > spaces {
			r.n = i
			r.fail("an empty line is indented deeper than the text below it")
		}
		if spaces <= in {
			break
		}
		return spaces
	}
	return max(in+1, deepest)
}

// assemble joins the lines of a block text.
func (r *blockReader) assemble(content []string, folded bool, chomp byte) string {
	last := len(content)
	for last > 0 && content[last-1] == "" {
		last--
	}
	if last > 0 && blank(content[last-1]) {
		r.fail("the last line of a text has nothing but spaces")
	}
	trailing := len(content) - last
	content = content[:last]
	var text strings.Builder
	before, blanks := "", 0
	for i, line := range content {
		breaks := blanks
		switch {
		case folded && line == "":
			blanks++
			continue
		case !folded && i > 0, folded && i > blanks && (spaced(before) || spaced(line)):
			breaks++
		case folded && i > blanks && blanks == 0:
			text.WriteByte(' ')
		}
		text.WriteString(strings.Repeat("\n", breaks))
		text.WriteString(line)
		before, blanks = line, 0
	}
	switch {
	case chomp == '+' && last > 0:
		text.WriteString(strings.Repeat("\n", trailing+1))
	case chomp == '+':
		text.WriteString(strings.Repeat("\n", trailing))
	case chomp == 0 && last > 0:
		text.WriteByte('\n')
	}
	return text.String()
}

// spaced reports a line of a folded text that keeps its line ends.
func spaced(line string) bool { return line != "" && (line[0] == ' ' || line[0] == '\t') }
