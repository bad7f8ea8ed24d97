package signal

import "bytes"

// statement is a statement of a program over several lines, up to the current line.
type statement struct {
	text     []byte // its lines, or nothing
	begin    int    // the first one
	escape   byte   // the character that escapes the end of a line in a shell
	isJoined bool   // it ended, and is searched
}

// searchStatement searches a line of a program together with the lines before it that it continues.
func (s *Scanner) searchStatement(line []byte) {
	c := &s.statement
	isWithin := len(c.text) > 0
	text := bytes.TrimLeft(line, " \t")
	isGap := len(bytes.TrimSpace(text)) == 0 || isComment(text)
	// After an escaped end of a line, what looks like a comment is an option, or ends the command.
	if isWithin && isGap && (s.program == code || bytes.HasSuffix(c.text, []byte("|"))) {
		return
	}
	part, goesOn := s.continues(line)
	switch {
	case !isWithin && !goesOn:
		s.searchProgram(line)
		return
	case !isWithin:
		c.begin = s.line
	case len(text) < len(line):
		c.text, part = append(bytes.TrimRight(c.text, " \t"), ' '), bytes.TrimLeft(part, " \t")
	}
	c.text = append(c.text, part...)
	if !goesOn || len(c.text) > maxLine {
		s.endStatement()
	}
}

// endStatement searches the collected lines.
func (s *Scanner) endStatement() {
	line := s.line
	s.line, s.statement.isJoined = s.statement.begin, true
	s.searchProgram(s.statement.text)
	s.line, s.statement.isJoined, s.statement.text = line, false, s.statement.text[:0]
}

// continues reports whether the next line continues the statement of a line, and returns the line without an
// escaped end.
func (s *Scanner) continues(line []byte) (part []byte, goesOn bool) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	text := bytes.TrimRight(line, " \t")
	isWithin := len(s.statement.text) > 0
	switch {
	case len(text) == 0 || !isWithin && isComment(text):
		return line, false
	case s.program == code:
		return text, !s.docs && !togglesDocs(text) && leavesOpen(text, isWithin)
	case (len(line)-len(bytes.TrimRight(line, string(s.statement.escape))))%2 == 1:
		return line[:len(line)-1], !hasComment(line)
	case text[len(text)-1] == '|':
		// A line of a table begins with a bar too.
		return text, bytes.TrimLeft(text, " \t")[0] != '|'
	default:
		return line, false
	}
}

// leavesOpen reports whether a line of a program ends within the arguments of a call. isWithin is set if it
// begins there too.
func leavesOpen(text []byte, isWithin bool) bool {
	before, last := bytes.TrimRight(text[:len(text)-1], " \t"), text[len(text)-1]
	switch {
	case last == '(':
		return true
	case last == '{' && len(before) > 0 && bytes.IndexByte([]byte("([,=:"), before[len(before)-1]) < 0:
		// It begins the body of a function, behind an arrow or a list of parameters.
		return false
	case last == ',', last == '[', last == '{':
		return isWithin || opensCall(text)
	default:
		return false
	}
}

// opensCall reports whether a line has more opening parentheses than closing ones, outside of its literals.
func opensCall(line []byte) bool {
	depth := 0
	for _, c := range unquoted(line, false) {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	return depth > 0
}

// hasComment reports whether a line of a shell ends in a comment.
func hasComment(line []byte) bool {
	for i, c := range unquoted(line, true) {
		if c == '#' && (i == 0 || bytes.IndexByte([]byte(" \t;&|("), line[i-1]) >= 0) {
			return true
		}
	}
	return false
}
