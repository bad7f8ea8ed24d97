// Package signal searches the text of a skill for things that a reader should know: invisible characters,
// comments that only a model sees, downloads that are executed, commands that other clients run while they
// load a skill, and phrases of known prompt injections. In a program it follows variables: to a file that is
// fetched from an open address and started, credentials that are sent, and files that others start or obey.
//
// A finding is minor if the text speaks to a reader: a vendor's installer in prose, a refusal, a quotation, a
// lesson about attacks, the configuration of an agent as the purpose of a skill. The same in a script that
// runs, from an open address, decoded, or hidden is not.
//
// The rules are simple. They miss what hides from them, and may be wrong. A text is searched in one pass, in
// time proportional to its size, for any content.
package signal

import (
	"bytes"
	"math"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxFile is the number of bytes searched per file.
const MaxFile = 1 << 20

const (
	maxLine      = 4096    // bytes of a line searched as a unit
	maxCloser    = 1 << 17 // bytes of lines matched with expressions, per file
	maxCloserAll = 1 << 19 // the same for all files of a Scanner
)

// Kind is the kind of a signal.
type Kind int

// The kinds of signals, in the order of [Scanner.End].
const (
	Invisible Kind = iota // invisible characters
	Comment               // HTML comments in Markdown
	Pipe                  // commands that execute downloaded or decoded text
	Dynamic               // commands that other clients run while they load a skill
	Phrase                // phrases of known prompt injections
	Config                // instructions to change the configuration of an agent
	Unasked               // what other programs run on their own
	kinds
)

// Signal summarizes the findings of one kind in a file.
type Signal struct {
	Kind   Kind
	Line   int    // the first line with it, from 1
	Detail string // one line, without text from the file
	Minor  bool   // a fact worth knowing, which alone does not withhold the skill
}

// Scanner searches text that arrives in pieces, line by line. The result does not depend on the boundaries of
// pieces. The zero value must be prepared by [Scanner.Begin]. One Scanner searches all files of one skill,
// with a common limit on the number of lines that it examines closely.
type Scanner struct {
	budget
	pairs      *pairTable
	found      findings
	characters characterCounts

	// The file.
	markdown bool
	packages bool     // the file is a package.json
	program  language // of a file that runs, else none
	left     int      // remaining bytes to search

	// Its lines.
	line   int    // the number of the current line, from 1
	rest   []byte // its beginning, from earlier pieces
	item   bool   // it is set off from the text
	recent recent
	fence  fence

	// Searches of any text.
	agent      agentSearch
	command    command
	comment    comment
	download   download
	phrase     phraseSearch
	letters    letters
	configured int // the line of an order to change an agent's configuration, or 0

	// Searches of programs.
	statement statement
	names     variables
	docs      bool // the line is in a docstring
	past      past
	archive   archive
	written   writtenText
	hooks     hooksDir
	loop      loop
	task      task

	clean []byte // a buffer for a line without what hides its words
	whole []byte // a buffer for a line of a program with its literals joined
}

// budget bounds the bytes of lines that are matched with expressions.
type budget struct {
	closer int // remaining ones of the file
	spent  int // in all files
}

// ofFile returns the budget of the next file. The files of a skill share a limit: a hostile skill of 32 files
// took 28 s of a processor.
func (b *budget) ofFile() budget { return budget{min(maxCloser, maxCloserAll-b.spent), b.spent} }

// spend subtracts the cost of matching a line, and reports whether the budget was sufficient.
func (b *budget) spend(line []byte) bool {
	b.closer -= len(line)
	if b.closer < 0 {
		return false
	}
	b.spent += len(line)
	return true
}

// Begin discards the findings and prepares for a file. At most limit bytes of it are searched.
func (s *Scanner) Begin(file string, limit int) {
	name := strings.ToLower(file)
	base := name[strings.LastIndexByte(name, '/')+1:]
	*s = Scanner{
		budget:   s.budget.ofFile(),
		pairs:    pairs(),
		markdown: slices.Contains([]string{".md", ".markdown", ".mdx"}, path.Ext(base)),
		packages: base == "package.json",
		program:  languageOf(base),
		left:     min(limit, MaxFile),
		line:     1,
		agent:    agentSearch{file: agentFileOf(name)},

		// Memory that is used again.
		rest:      s.rest[:0],
		recent:    s.recent,
		command:   command{text: s.command.text[:0]},
		comment:   comment{text: s.comment.text[:0]},
		download:  download{name: s.download.name[:0]},
		phrase:    phraseSearch{before: s.phrase.before[:0], lower: s.phrase.lower[:0]},
		statement: statement{text: s.statement.text[:0], escape: escapeOf(base)},
		names:     s.names[:0],
		archive:   archive{name: s.archive.name[:0], file: s.archive.file[:0]},
		written:   writtenText{end: s.written.end[:0]},
		clean:     s.clean[:0],
		whole:     s.whole[:0],
	}
	s.recent.reset()
	// Python executes lines of a .pth file at each start (module site).
	if slices.Contains(runUnasked, base) || strings.HasSuffix(base, ".pth") {
		s.found.addPlain(Unasked, s.line)
	}
}

// Add searches the next piece. It retains no part of it.
func (s *Scanner) Add(piece []byte) {
	piece = piece[:min(len(piece), s.left)]
	s.left -= len(piece)
	for len(piece) > 0 {
		room := maxLine - len(s.rest)
		end := bytes.IndexByte(piece[:min(len(piece), room)], '\n')
		switch {
		case end >= 0:
			if len(s.rest) == 0 {
				s.search(piece[:end])
			} else {
				s.rest = append(s.rest, piece[:end]...)
				s.search(s.rest)
				s.rest = s.rest[:0]
			}
			s.line++
			piece = piece[end+1:]
		case len(piece) < room:
			s.rest = append(s.rest, piece...)
			return
		default:
			s.searchPart(piece[:room])
			piece = piece[room:]
		}
	}
}

// searchPart searches the known part of a line that is too long, up to its last complete character.
func (s *Scanner) searchPart(tail []byte) {
	s.rest = append(s.rest, tail...)
	// The next piece has the rest of the last character, which would be taken for an invalid one.
	cut := len(s.rest)
	for back := 1; back < utf8.UTFMax; back++ {
		if at := cut - back; utf8.RuneStart(s.rest[at]) {
			if !utf8.FullRune(s.rest[at:]) {
				cut = at
			}
			break
		}
	}
	if s.rest[cut-1] == '\r' {
		// It may be a part of the ending of the line.
		cut--
	}
	s.search(s.rest[:cut])
	s.rest = append(s.rest[:0], s.rest[cut:]...)
}

// search searches a line, or a part of a long one.
func (s *Scanner) search(line []byte) {
	if s.line == 1 && s.program == none && bytes.HasPrefix(line, []byte("#!")) {
		s.program = interpreterOf(line)
	}
	whole := line
	s.item = isItem(line)
	if s.markdown && s.fence.line(line) {
		s.found.add(Dynamic, s.line)
	}
	hidden := s.found[Invisible].count
	seen := s.searchAnchors(line)
	s.searchComment(line, seen)
	if s.line > s.download.line {
		s.searchRun(line, s.download.line)
	}
	s.searchAgentFile(line)
	if s.program == none {
		s.startsDropped(line, s.line)
	} else {
		// searchPipe skips a line that was counted here, so this comes before searchCommand.
		s.searchStatement(line)
	}
	if seen&fetches != 0 || len(s.command.text) > 0 {
		s.searchCommand(line)
	}
	if s.found[Invisible].count > hidden {
		// Invisible characters could split the words of a phrase.
		s.clean = appendVisible(s.clean[:0], line)
		line, s.phrase.anchors = s.clean, math.MaxUint64
	}
	s.searchPhrase(line)
	s.searchConfig(line, seen)
	if seen&installs != 0 && s.packages && s.spend(line) && lifecycle().Match(line) {
		s.found.addPlain(Unasked, s.line)
	}
	s.recent.add(whole, s.markdown && !s.fence.open() && isHeading(whole))
}

// searchAnchors searches a line for the anchors, and for characters that are not visible. It returns the
// groups of the anchors that need an expression, and records the anchors of phrases.
func (s *Scanner) searchAnchors(line []byte) (seen group) {
	s.phrase.anchors = 0
	for i := 1; i < len(line); i++ {
		// Nearly all pairs of bytes end here: this loop takes most of the time.
		if hint := s.pairs.first[line[i-1]] & s.pairs.second[line[i]]; hint != 0 {
			seen |= s.check(line, i-1, hint)
		}
	}
	// A control character at the end has no pair; a carriage return there is part of the line ending.
	if last := len(line) - 1; last >= 0 && line[last] != '\r' && isControl(line[last]) {
		s.addCharacter(controlCharacter, false)
	}
	return seen
}

// check decides about the pair of bytes at line[at]. It returns the group of an anchor that needs an
// expression.
func (s *Scanner) check(line []byte, at int, hint uint64) group {
	found, bit := s.pairs.match(line, at, hint)
	switch found {
	case unseen:
		s.checkCharacter(line, at)
		return 0
	case comments:
		if !s.beginsComment(line, at) {
			return 0
		}
	case dynamic:
		if s.markdown && isDynamic(line, at) {
			s.found.add(Dynamic, s.line)
		}
		return 0
	case phrases:
		s.phrase.anchors |= bit
	}
	return found
}

// End returns the signals of the file, at most one of each kind.
func (s *Scanner) End() []Signal {
	if len(s.rest) > 0 {
		s.search(s.rest)
		// At the limit of the search, the line feed of a line ending may follow.
		if s.left > 0 && s.rest[len(s.rest)-1] == '\r' {
			s.addCharacter(lineBreak, false)
		}
		s.rest = s.rest[:0]
	}
	if len(s.statement.text) > 0 {
		s.endStatement()
	}
	if len(s.command.text) > 0 {
		s.endCommand()
	}
	if s.comment.isOpen {
		s.endComment()
	}
	if s.hooks.line > 0 && s.hooks.isFilled {
		s.found.addPlain(Unasked, s.hooks.line)
	}
	if s.task.line > 0 && s.task.isWritten {
		s.found.addPlain(Unasked, s.task.line)
	}
	return s.found.signals(&s.characters)
}
