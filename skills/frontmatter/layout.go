package frontmatter

import (
	"math"
	"sort"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// layout is the source text of a block. Its nodes lack details: the library accepts more than YAML allows,
// which other parsers reject or read differently.
type layout struct {
	lines []string // without line ends

	last   position // of the last call of start
	column int      // characters before last
}

// located is a scalar with its position.
type located struct {
	*yaml.Node
	at position
}

func newLayout(block string) *layout {
	l := &layout{lines: strings.Split(block, "\n")}
	for i, line := range l.lines {
		l.lines[i] = strings.TrimSuffix(line, "\r")
	}
	return l
}

// position is a position in a block.
type position struct{ line, offset int } // from 0; the offset in bytes

func (p position) before(q position) bool {
	return p.line < q.line || p.line == q.line && p.offset < q.offset
}

// start returns the position of a node. The library counts columns in characters.
func (l *layout) start(node *yaml.Node) position {
	at := min(node.Line, len(l.lines)) - 1
	// Nodes are queried in order: counting each column from the start of its line would take time quadratic
	// in the length of the line.
	if at != l.last.line || node.Column-1 < l.column {
		l.last, l.column = position{line: at}, 0
	}
	for line := l.lines[at]; l.column < node.Column-1 && l.last.offset < len(line); l.column++ {
		_, size := utf8.DecodeRuneInString(line[l.last.offset:])
		l.last.offset += size
	}
	return l.last
}

// first returns the first character of a node, or 0 if it is empty.
func (l *layout) first(node *yaml.Node) byte {
	if p := l.start(node); p.offset < len(l.lines[p.line]) {
		return l.lines[p.line][p.offset]
	}
	return 0
}

// end returns the position after a quoted text or a flow collection that begins at a position.
func (l *layout) end(from position) position {
	var s span
	for n, offset := from.line, from.offset; n < len(l.lines); n, offset = n+1, 0 {
		for line := l.lines[n]; offset < len(line); {
			offset += s.take(line, offset)
			if s.isClosed() {
				return position{n, offset}
			}
		}
	}
	return position{line: len(l.lines)}
}

// span is a quoted text or a flow collection, up to some character.
type span struct {
	depth int  // of collections
	quote byte // the mark of the open quoted text, or 0
	last  byte // the last character outside of quoted texts, besides blanks, or 0
}

func (s *span) isClosed() bool { return s.depth == 0 && s.quote == 0 && s.last != 0 }

// take reads on at an offset of a line, and returns how many bytes it read.
func (s *span) take(line string, offset int) int {
	c := line[offset]
	switch {
	// The next character is part of an escape, or of the doubled quote of single-quoted text.
	case s.quote == '"' && c == '\\',
		s.quote == '\'' && c == '\'' && strings.HasPrefix(line[offset+1:], "'"):
		return 2
	case s.quote != 0 && c == s.quote:
		s.quote, s.last = 0, c
	case s.quote != 0, c == ' ', c == '\t':
	// A quote in a comment opens nothing.
	case c == '#' && offset > 0 && line[offset-1] == ' ':
		return len(line) - offset
	// Within a plain word a quote is an ordinary character.
	case (c == '"' || c == '\'') && strings.IndexByte("\x00[{,:?", s.last) >= 0:
		s.quote = c
	default:
		s.last = c
		switch c {
		case '[', '{':
			s.depth++
		case ']', '}':
			s.depth--
		}
	}
	return 1
}

// unindented returns the first line of a quoted text or flow collection that is not indented deeper than the
// enclosing collection, or 0. Lines are numbered from 1.
func (l *layout) unindented(node *yaml.Node, within int) int {
	from := l.start(node)
	end := l.end(from)
	flow := node.Kind != yaml.ScalarNode
	for at := from.line + 1; at <= min(end.line, len(l.lines)-1); at++ {
		line := l.lines[at]
		in := indent(line)
		switch {
		// Blank lines need no indentation.
		case in == len(line):
		case !flow && (in <= within || line[in] == '\t'):
			return at + 1
		case flow && in <= within && line[in] != '#':
			// The closing bracket may be below the key.
			if closes := line[in] == ']' || line[in] == '}'; !closes || in < within {
				return at + 1
			}
		}
	}
	return 0
}

// strayTab returns the first line with a tab outside of quoted texts, block texts and comments, or 0. Tabs
// for which separates returns false are ignored. The scalars must be in the order of the text. Lines are
// numbered from 1.
func (l *layout) strayTab(scalars []located, separates func(line string, at int) bool) int {
	var quoted position // the end of the last quoted text
	for n, line := range l.lines {
		for at := 0; at < len(line); at++ {
			here := position{n, at}
			tab := line[at] == '\t' || strings.HasPrefix(line[at:], markedTab)
			if !tab || !separates(line, at) || here.before(quoted) {
				continue
			}
			next := sort.Search(len(scalars), func(i int) bool { return here.before(scalars[i].at) })
			if next > 0 {
				scalar := scalars[next-1]
				// In a block text tabs are ordinary characters.
				if scalar.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && scalar.at.line < n {
					break
				}
				inQuotes := scalar.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
				if inQuotes && quoted.before(scalar.at) {
					quoted = l.end(scalar.at)
					if here.before(quoted) {
						continue
					}
				}
			}
			from := 0
			// A " #" within the quoted text does not begin a comment.
			if quoted.line == n {
				from = quoted.offset
			}
			if !strings.Contains(line[from:at], " #") && !strings.HasPrefix(line, "#") {
				return n + 1
			}
			break
		}
	}
	return 0
}

// separates reports whether a tab separates words and is not part of one.
func separates(line string, at int) bool {
	return at == 0 || at+1 == len(line) ||
		strings.IndexByte(" \t:-?", line[at-1]) >= 0 || strings.IndexByte(" \t#:", line[at+1]) >= 0
}

// checkLines notes lines that parsers read differently.
func (w *walker) checkLines() {
	for i, line := range w.layout.lines {
		switch {
		case line == "..." || strings.HasPrefix(line, "... "):
			w.notes.repaired(w.offset+i+1, "the line ... ends the frontmatter")
			return
		case strings.HasPrefix(line, "\ufeff"):
			w.notes.repaired(w.offset+i+1, "the line starts with a byte order mark")
			return
		case strings.Contains(line, "\r"):
			w.notes.repaired(w.offset+i+1, "there is a carriage return within the line")
			return
		case strings.ContainsAny(line, oddBreaks):
			w.notes.repaired(w.offset+i+1, "there is a line break that YAML does not have")
			return
		}
	}
}

// check notes irregularities of a node. within is the indentation of the enclosing collection.
func (w *walker) check(node *yaml.Node, within int) {
	if reason := w.irregularity(node, within); reason != "" {
		w.repaired(node, reason)
	}
	isQuoted := node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	if within != inFlow && (isQuoted || node.Style&yaml.FlowStyle != 0) {
		if at := w.layout.unindented(node, within); at > 0 {
			w.notes.repaired(w.offset+at,
				"the lines of a text in quotes, or of a list in brackets, are not indented")
		}
	}
	if comment := node.LineComment; comment != "" {
		line := w.layout.lines[w.layout.start(node).line]
		// The library takes key: "a"#b for a comment; YAML 1.2 (6.6) wants white space before it.
		if at := strings.LastIndex(line, comment); at > 0 && line[at-1] != ' ' && line[at-1] != '\t' {
			w.repaired(node, "a comment needs a space before it")
		}
	}
}

// irregularity returns what some parsers reject or read differently in the text of a node, or "".
func (w *walker) irregularity(node *yaml.Node, within int) string {
	isPlain := node.Kind == yaml.ScalarNode && node.Style&quotedStyles == 0
	switch {
	case w.layout.first(node) == '!':
		return "the value has a tag; put it in quotes"
	case isPlain && strings.TrimSpace(w.source(node)) != w.source(node):
		return "the value has a space of another kind at its end"
	// [a:] and [-] are a mapping and a list to some parsers, and words to others.
	case isPlain && within == inFlow &&
		(strings.HasSuffix(node.Value, ":") || node.Value == "-" || node.Value == "?"):
		return "an entry is not a plain word; put it in quotes"
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && endsBlank(node.Value):
		return "the last line of the text has nothing but spaces"
	case w.marked && node.Style&yaml.FoldedStyle != 0 && strings.Contains(node.Value, markedTab):
		return "a line of the text starts with a tab"
	case w.escaped && node.Style&yaml.DoubleQuotedStyle == 0 && hasEscape(node.Value):
		return "the text has an escape, which is only valid in double quotes"
	default:
		return ""
	}
}

// checkKey notes irregularities of a key.
func (w *walker) checkKey(key *yaml.Node) {
	at := w.layout.start(key)
	before := strings.TrimRight(w.layout.lines[at.line][:at.offset], " \t")
	scalar := w.scalar(key)
	infinite := scalar.kind == number && (math.IsInf(scalar.number, 0) || math.IsNaN(scalar.number))
	switch {
	case strings.HasSuffix(before, "?"):
		w.repaired(key, "the key follows a question mark")
	case key.Value == "" && key.Style&quotedStyles == 0:
		w.repaired(key, "there is a colon without a key")
	case infinite:
		w.repaired(key, "the key is a number that JSON does not have")
	}
}

// endsBlank reports whether the last line of a block text consists of spaces.
func endsBlank(text string) bool {
	text = strings.TrimRight(text, "\n")
	last := text[strings.LastIndexByte(text, '\n')+1:]
	return last != "" && blank(last)
}

func hasEscape(text string) bool {
	return strings.Contains(text, `\U`) || strings.Contains(text, `\x2f`)
}
