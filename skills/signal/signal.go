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
	markdown bool
	pairs    *pairTable
	left     int // remaining bytes to search
	closer   int // remaining bytes of lines to match with expressions
	spent    int // bytes of lines matched with expressions, in all files

	line          int    // the number of the current line, from 1
	rest          []byte // its beginning, from earlier pieces
	found         [kinds]finding
	invisible     [classes]int
	fence         fence
	command       command
	lower         []byte // a buffer
	clean         []byte // a buffer
	before        []byte // the previous line, if it may begin a phrase
	beforeLine    int
	anchors       uint64 // of phrases in the line
	beforeAnchors uint64 // of phrases in the previous line
	saved         []byte // the name of the last downloaded file
	savedLine     int
	packages      bool // the file is a package.json

	agent           *agentFile // the row of the file, if an agent or an editor obeys it
	hasKey, hasRuns bool       // its texts were found

	program  language // of a file that runs, else none
	recent   recent
	names    []tainted // variables of a program
	docs     bool      // the line is in a docstring
	item     bool      // the line is set off from the text
	connects bool      // the program has opened a connection
	sockets  bool      // the program has a connection between any two programs
	loads    bool      // the program has fetched from an open address
	answers  bool      // the program has fetched or decoded something
	fetches  bool      // the program has fetched something
	whole    []byte    // a buffer
	// whether the line lettersLine names its letters
	letters     bool
	lettersLine int
	hiding      bool   // the line is in a comment
	hidden      []byte // its text
	hiddenLine  int
	configured  int  // the line of an order to change an agent's configuration, or 0
	open        bool // the saved file came from an open address

	hookEnd    []byte // the line that ends the git hook or the settings which the program writes, or nothing
	hookLine   int    // the line where the program begins to write it
	isSettings bool   // these are settings of a shell
	isIndented bool   // tabs may precede the line that ends it
	hooksLine  int    // the line that names a directory of the project as the one of its git hooks, or 0
	fillsHooks bool   // the program puts something else into a directory of hooks

	loopNames []string // the variables of a loop in a shell that reads lines
	loopLine  int      // a line that sends one of them in that loop, or 0

	openingLine int  // the line of a task that runs when a folder is opened, or 0
	writesTasks bool // the program writes the tasks of an editor

	escape         byte   // the character that escapes the end of a line in a shell
	statement      []byte // the lines of a statement that the next line continues, or nothing
	statementBegin int    // its first line
	isJoined       bool   // the line is a statement over several lines

	archive, packed []byte // an archive that the program opens, and what it is written into
}

// Begin discards the findings and prepares for a file. At most limit bytes of it are searched.
func (s *Scanner) Begin(file string, limit int) {
	name := strings.ToLower(file)
	markdown := strings.HasSuffix(name, ".md") || strings.HasSuffix(name, ".markdown") ||
		strings.HasSuffix(name, ".mdx")
	base := name[strings.LastIndexByte(name, '/')+1:]
	*s = Scanner{
		markdown: markdown,
		pairs:    pairs(),
		left:     min(limit, MaxFile),
		// The files of a skill share a limit: a hostile skill of 32 files took 28 s of a processor.
		closer:   min(maxCloser, maxCloserAll-s.spent),
		spent:    s.spent,
		line:     1,
		rest:     s.rest[:0],
		command:  command{text: s.command.text[:0]},
		lower:    s.lower[:0],
		clean:    s.clean[:0],
		whole:    s.whole[:0],
		before:   s.before[:0],
		saved:    s.saved[:0],
		packages: base == "package.json",
		agent:    agentFileOf(name),
		program:  languageOf(base),
		escape:   escapeOf(base),
		recent:   s.recent,
		names:    s.names[:0],
		hidden:   s.hidden[:0],
		hookEnd:  s.hookEnd[:0],
		archive:  s.archive[:0],
		packed:   s.packed[:0],

		statement: s.statement[:0],
	}
	s.recent.reset()
	// Python executes lines of a .pth file at each start (module site).
	if slices.Contains(runUnasked, base) || strings.HasSuffix(base, ".pth") {
		s.countPlain(Unasked, s.line)
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
	defer func() { s.recent.add(whole, s.markdown && !s.fence.open() && isHeading(whole)) }()
	if s.markdown && s.fence.line(line) {
		s.count(Dynamic)
	}
	seen, hidden := group(0), s.found[Invisible].count
	s.anchors = 0
	for i := 1; i < len(line); i++ {
		// Nearly all pairs of bytes end here: this loop takes most of the time.
		if hint := s.pairs.first[line[i-1]] & s.pairs.second[line[i]]; hint != 0 {
			seen |= s.check(line, i-1, hint)
		}
	}
	// A control character at the end has no pair; a carriage return there is part of the line ending.
	if last := len(line) - 1; last >= 0 && line[last] != '\r' && isControl(line[last]) {
		s.invisible[controlCharacter]++
		s.count(Invisible)
	}
	if s.markdown && (seen&comments != 0 || s.hiding) {
		if m := reference().FindSubmatch(line); m != nil && !s.hiding {
			s.hidden, s.hiddenLine = append(s.hidden[:0], m[1]...), s.line
			s.endHidden()
		} else {
			s.addHidden(line)
		}
	}
	if len(s.saved) > 0 && s.line > s.savedLine {
		s.searchRun(line, s.savedLine)
	}
	if s.agent != nil {
		s.searchAgentFile(line)
	}
	if s.program != none {
		// searchPipe skips a line that was counted here, so this comes before searchCommand.
		s.searchStatement(line)
	} else if len(s.names) > 0 {
		s.startsDropped(line, s.line)
	}
	if seen&fetches != 0 || len(s.command.text) > 0 {
		s.searchCommand(line)
	}
	if s.found[Invisible].count > hidden {
		// Invisible characters could split the words of a phrase.
		s.clean = appendVisible(s.clean[:0], line)
		line, s.anchors = s.clean, math.MaxUint64
	}
	s.searchPhrase(line)
	s.searchConfig(line, seen)
	if seen&installs != 0 && s.packages && s.spend(line) && lifecycle().Match(line) {
		s.countPlain(Unasked, s.line)
	}
}

// spend subtracts the cost of matching a line from the budget, and reports whether it was sufficient.
func (s *Scanner) spend(line []byte) bool {
	s.closer -= len(line)
	if s.closer < 0 {
		return false
	}
	s.spent += len(line)
	return true
}

// check decides about the pair of bytes at line[at]. It returns the group of an anchor that needs an
// expression.
func (s *Scanner) check(line []byte, at int, hint uint64) group {
	found, bit := s.pairs.match(line, at, hint)
	if found == phrases {
		s.anchors |= bit
	}
	switch found {
	// A byte order mark at the start of a file is common and harmless.
	case unseen:
		atStart := s.line == 1 && at == 0 && bytes.HasPrefix(line, []byte("\ufeff"))
		if class := invisibleAt(line, at); class >= 0 && !atStart {
			s.invisible[class]++
			if s.isHarmful(class, line, at) {
				s.countPlain(Invisible, s.line)
			} else {
				s.count(Invisible)
			}
		}
		return 0
	// In code, a comment is shown to readers.
	case comments:
		isReference := line[at] == '['
		if !s.markdown || s.fence.open() || inCode(line[:at]) || !isReference &&
			isMarker(line[at+len("<!--"):]) {
			return 0
		}
		if !isReference {
			s.count(Comment)
		}
		return comments
	case dynamic:
		if s.markdown && isDynamic(line, at) {
			s.count(Dynamic)
		}
		return 0
	default:
		return found
	}
}

// End returns the signals of the file, at most one of each kind.
func (s *Scanner) End() []Signal {
	if len(s.rest) > 0 {
		s.search(s.rest)
		// At the limit of the search, the line feed of a line ending may follow.
		if s.left > 0 && s.rest[len(s.rest)-1] == '\r' {
			s.invisible[lineBreak]++
			s.count(Invisible)
		}
		s.rest = s.rest[:0]
	}
	if len(s.statement) > 0 {
		s.endStatement()
	}
	if len(s.command.text) > 0 {
		s.endCommand()
	}
	if s.hiding {
		s.endHidden()
	}
	if s.hooksLine > 0 && s.fillsHooks {
		s.countPlain(Unasked, s.hooksLine)
	}
	if s.openingLine > 0 && s.writesTasks {
		s.countPlain(Unasked, s.openingLine)
	}
	var out []Signal
	for kind, found := range s.found {
		if found.count == 0 {
			continue
		}
		signal := Signal{Kind: Kind(kind), Line: found.line, Minor: found.plain == 0}
		count := found.count
		if found.plain > 0 {
			signal.Line, count = found.plainLine, found.plain
		}
		if signal.Kind == Invisible {
			signal.Detail = s.countsOfInvisible()
		} else {
			signal.Detail = plural(count, wordings[kind].noun) + wordings[kind].rest
		}
		if count > 1 {
			signal.Detail += "; this is the first"
		}
		out = append(out, signal)
	}
	return out
}
