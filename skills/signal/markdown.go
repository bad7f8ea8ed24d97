package signal

import "bytes"

// fence tracks code blocks of Markdown.
type fence struct {
	mark byte // the character that opened the current block
	size int
}

func (f *fence) open() bool { return f.size > 0 }

// line processes the next line, and reports whether it opens a block of commands that other clients would run
// ("```!").
func (f *fence) line(line []byte) bool {
	at := 0
	for at < len(line) && isBlockStart(line[at]) {
		at++
	}
	rest := line[at:]
	if len(rest) < 3 || rest[0] != '`' && rest[0] != '~' || rest[1] != rest[0] || rest[2] != rest[0] {
		return false
	}
	mark := rest[0]
	info := bytes.TrimLeft(rest, string(mark))
	size := len(rest) - len(info)
	info = bytes.TrimSpace(info)
	switch {
	// A line with more backticks after the first ones is inline code (CommonMark, section 4.5).
	case f.size == 0 && (mark == '~' || bytes.IndexByte(info, '`') < 0):
		f.mark, f.size = mark, size
		return len(info) > 0 && info[0] == '!'
	// Only a fence of the same kind and at least the same length ends a block (section 4.5).
	case f.mark == mark && size >= f.size && len(info) == 0:
		f.size = 0
	}
	return false
}

// isBlockStart reports whether a byte may precede a code block: blanks, and markers of lists and quotes.
func isBlockStart(c byte) bool {
	return c == ' ' || c == '\t' || c == '-' || c == '*' || c == '+' || c == '>'
}

// inCode reports whether the rest of the line is inside of inline code.
func inCode(before []byte) bool { return bytes.Count(before, []byte("`"))%2 == 1 }

// maxMarker is the maximum number of words in a comment that is a marker for some program, such as "toc" or
// "prettier-ignore".
const maxMarker = 3

// isMarker reports whether the text after "<!--" is such a marker.
func isMarker(rest []byte) bool {
	text, _, closed := bytes.Cut(rest, []byte("-->"))
	words := 0
	// A line may begin a thousand comments: with all words of each, one file took 1.8 s at every scan.
	for range bytes.FieldsSeq(text) {
		words++
		if words > maxMarker {
			break
		}
	}
	return closed && words <= maxMarker
}

// isDynamic reports whether the "!`" at line[at] begins a command: it is a separate word and closed.
func isDynamic(line []byte, at int) bool {
	if at > 0 && bytes.IndexByte([]byte(" \t(-:*>|"), line[at-1]) < 0 {
		return false
	}
	return bytes.IndexByte(line[at+2:], '`') > 0
}

// cells iterates over the cells of a Markdown table row, which may contain "\|".
func cells(row []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		begin := 0
		for i, c := range row {
			if c == '|' && (i == 0 || row[i-1] != '\\') {
				if !yield(row[begin:i]) {
					return
				}
				begin = i + 1
			}
		}
		yield(row[begin:])
	}
}

// isHeading reports whether a line of Markdown is a heading.
func isHeading(line []byte) bool {
	return len(line) > 1 && line[0] == '#' && (line[1] == '#' || line[1] == ' ')
}

// isItem reports whether a line of Markdown is an item, a row or a quotation.
func isItem(line []byte) bool {
	start := bytes.TrimLeft(line, " \t")
	return len(start) > 0 && bytes.IndexByte([]byte("-*+>|0123456789"), start[0]) >= 0
}
