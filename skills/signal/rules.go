package signal

import (
	"bytes"
	"math/bits"
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"
)

// group is what an anchor may be part of.
type group uint8

const (
	unseen   group = 1 << iota // a character that may be invisible
	comments                   // an HTML comment
	dynamic                    // a command that another client would run
	fetches                    // a command that downloads or decodes
	phrases                    // a phrase of an injection
)

// anchors are the texts, in any case, at which a line is looked at more closely. Lines are searched
// for two bytes of each, at an offset where these are rare in prose and code.
var anchors = [...]struct {
	text   string
	offset int // of the two bytes
	group  group
}{
	{"<!--", 0, comments},
	{"!`", 0, dynamic},
	{"curl", 2, fetches},
	{"wget", 0, fetches},
	{"iwr", 0, fetches},
	{"irm", 1, fetches},
	{"invoke-", 2, fetches},
	{"downloadstring", 1, fetches},
	{"base64", 3, fetches},
	{"ignore", 1, phrases},
	{"disregard", 2, phrases},
	{"forget", 2, phrases},
	{"override", 3, phrases},
	{"bypass", 1, phrases},
	{"the user", 4, phrases},
	{"are now", 5, phrases},
	{"prompt", 4, phrases},
	{"<|im_", 1, phrases},
}

// pairs finds the anchors, and the first two bytes of characters that may be invisible: each has a
// bit in the tables of its first and second byte. Like all tables here it is made when it is first
// used: most starts of the program search nothing.
var pairs = sync.OnceValue(newPairTable)

type pairTable struct{ first, second [256]uint32 }

// The bits of what may be invisible, by the first bytes. Latin letters have a bit of their own: with
// another's, each of them would be looked at.
const (
	invisibleBit = len(anchors) + iota
	latinBit
	controlBit
	maybeInvisible = 1<<invisibleBit | 1<<latinBit | 1<<controlBit
)

func newPairTable() *pairTable {
	t := &pairTable{}
	set := func(table *[256]uint32, c byte, bit int) {
		table[c] |= 1 << bit
		if 'a' <= c && c <= 'z' {
			table[c-'a'+'A'] |= 1 << bit
		}
	}
	for bit, a := range anchors {
		set(&t.first, a.text[a.offset], bit)
		set(&t.second, a.text[a.offset+1], bit)
	}
	for _, rule := range invisibles {
		for r := max(rule.low, utf8.RuneSelf); r <= rule.high; r++ {
			lead, bit := utf8.AppendRune(nil, r), invisibleBit
			if lead[0] < 0xd0 {
				bit = latinBit
			}
			t.first[lead[0]] |= 1 << bit
			t.second[lead[1]] |= 1 << bit
		}
	}
	for c := range 256 {
		if isControl(byte(c)) {
			t.first[c] |= 1 << controlBit
		}
		t.second[c] |= 1 << controlBit
	}
	return t
}

// match returns the group of the anchor that line has at the offset, if it has one.
func (t *pairTable) match(line []byte, at int, hint uint32) group {
	if hint&maybeInvisible != 0 {
		return unseen
	}
	for ; hint != 0; hint &= hint - 1 {
		a := &anchors[bits.TrailingZeros32(hint)]
		from := at - a.offset
		if from >= 0 && len(line)-from >= len(a.text) && equalFold(line[from:from+len(a.text)], a.text) {
			return a.group
		}
	}
	return 0
}

// equalFold compares ASCII text with text in lower case and of equal length.
func equalFold(b []byte, lower string) bool {
	for i := range lower {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// fence follows the code blocks of Markdown.
type fence struct {
	mark byte // what opened the block that is open
	size int
}

func (f *fence) open() bool { return f.size > 0 }

// line passes the next line, and reports whether it opens a block of commands that another client
// would run ("```!").
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
	case f.size == 0 && (mark == '~' || bytes.IndexByte(info, '`') < 0):
		f.mark, f.size = mark, size
		return len(info) > 0 && info[0] == '!'
	case f.mark == mark && size >= f.size && len(info) == 0:
		f.size = 0
	}
	return false
}

// isBlockStart reports whether a byte may precede a code block: blanks, and the marks of lists and
// quotes.
func isBlockStart(c byte) bool {
	return c == ' ' || c == '\t' || c == '-' || c == '*' || c == '+' || c == '>'
}

// inCode reports whether what follows on the line is inside of inline code.
func inCode(before []byte) bool { return bytes.Count(before, []byte("`"))%2 == 1 }

// maxMarker is how many words a comment has at most that is a mark for some program, such as "toc" or
// "prettier-ignore".
const maxMarker = 3

// isMarker reports whether what follows "<!--" on a line is such a comment.
func isMarker(rest []byte) bool {
	text, _, closed := bytes.Cut(rest, []byte("-->"))
	return closed && len(bytes.Fields(text)) <= maxMarker
}

// isDynamic reports whether the "!`" at line[at] begins a command: it is a word of its own and closed.
func isDynamic(line []byte, at int) bool {
	if at > 0 && bytes.IndexByte([]byte(" \t(-:*>|"), line[at-1]) < 0 {
		return false
	}
	return bytes.IndexByte(line[at+2:], '`') > 0
}

// command is a command line that may have been broken with a backslash or after a pipe.
type command struct {
	text []byte
	line int // its first
}

// add appends a line, and reports whether the command continues in the next.
func (c *command) add(line []byte, number int) (more bool) {
	if len(c.text) == 0 {
		c.line = number
	}
	c.text = append(c.text, line...)
	text := bytes.TrimRight(c.text, " \t\r")
	switch {
	case len(text) == 0 || len(text) >= maxLine:
		return false
	case text[len(text)-1] == '\\':
		c.text = append(text[:len(text)-1], ' ')
		return true
	}
	return text[len(text)-1] == '|'
}

// cells iterates over the cells of a row of a Markdown table, which may hold "\|".
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

// lazily returns an expression that is compiled when it is first used.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// shells are the programs that run what they read.
const shells = `(?:sudo\s+(?:-\S+\s+)*)?(?:env\s+)?(?:\w+=\S*\s+)*(?:/(?:usr/)?bin/)?` +
	`(?:(?:ba|z|da|k|a|fi)?sh\b|(?:python3?|node|perl|ruby|php)(?:\s+-)?(?:\s*$|["')` + "`" + `]|\s*[;&|]))`

// pipeToShell matches a command that downloads or decodes into a shell: by a pipe, by substitution,
// by process substitution, and the same in PowerShell. A pipe needs an address before it: prose about
// "curl | sh" is not a command.
var pipeToShell = lazily(`(?i)` +
	`\b(?:curl|wget)\s[^|]*[/.$][^|]*\|(?:.*\|)?\s*` + shells +
	`|\bbase64\s+(?:-d|--decode)\b.*\|\s*` + shells +
	`|\b(?:(?:ba|z|da|k|a)?sh|eval|source|exec)\s+(?:-\S+\s+)*["']?` +
	"(?:<\\(|\\$\\(|`)" + `\s*(?:curl|wget|base64\s+-)` +
	`|(?:^|\s)\.\s+<\(\s*(?:curl|wget)` +
	`|\b(?:iwr|irm|invoke-webrequest|invoke-restmethod|curl|downloadstring)\b` +
	`.*\|\s*(?:iex|invoke-expression)\b` +
	`|\b(?:iex|invoke-expression)\b.*\b(?:iwr|irm|invoke-webrequest|invoke-restmethod|downloadstring)\b`)

// injection is an order that a model should not take from a file. A match has one word of each list:
// an expression costs a thousand times what looking for the words does, and few lines have them.
type injection struct {
	words      [][]string // in lower case
	expression func() *regexp.Regexp
}

// possible reports whether a line, in lower case, has the words of a match.
func (i *injection) possible(lower []byte) bool {
	for _, alternatives := range i.words {
		has := func(word string) bool { return bytes.Contains(lower, []byte(word)) }
		if !slices.ContainsFunc(alternatives, has) {
			return false
		}
	}
	return true
}

// injections are searched for in every line that has an anchor of phrases. Between the words of one
// there may be any blanks.
var injections = []injection{
	{ // "ignore all previous instructions"
		[][]string{
			{"ignore", "disregard", "forget"},
			{"instruction", "prompt", "rules", "directions", "guidelines", "messages"},
		},
		lazily(`(?i)\b(?:ignore|disregard|forget)\s+` +
			`(?:(?:all|any|every|of|the|your|my|these|those)\s+){0,4}` +
			`(?:previous|prior|above|earlier|preceding|foregoing|system)\s+(?:\w+\s+)?` +
			`(?:instructions?|prompts?|rules|directions|guidelines|messages)\b`),
	},
	{ // "override your instructions", "bypass your safety guidelines"
		[][]string{{"override", "bypass", "ignore", "disregard"}, {"your"}},
		lazily(`(?i)\b(?:override|bypass|ignore|disregard)\s+(?:all\s+(?:of\s+)?)?your\s+(?:\w+\s+)?` +
			`(?:instructions|guidelines|safety|guardrails|system\s+prompt)\b`),
	},
	{ // "hide this from the user"
		[][]string{{"hide", "conceal", "keep"}, {"from"}, {"user"}},
		lazily(`(?i)\b(?:hide|conceal|keep)\s+(?:this|it|these|that)\s+(?:a\s+)?(?:secret\s+)?` +
			`from\s+the\s+user\b`),
	},
	{ // "do not tell the user about it"
		[][]string{{"tell", "inform", "alert", "notify", "warn"}, {"user"}},
		lazily(`(?i)\b(?:do\s+not|don'?t|never)\s+(?:tell|inform|alert|notify|warn)\s+the\s+user\s+` +
			`(?:about|that\s+you|of)\b`),
	},
	{ // "without informing the user"
		[][]string{{"without"}, {"user"}},
		lazily(`(?i)\bwithout\s+(?:telling|informing|alerting|notifying)\s+the\s+user\b`),
	},
	{ // "reveal your system prompt"
		[][]string{{"system"}, {"prompt"}},
		lazily(`(?i)\b(?:reveal|print|output|repeat|leak|show\s+me)\s+(?:your|the)\s+(?:\w+\s+)?` +
			`system\s+prompt\b`),
	},
	{ // "you are now in developer mode"
		[][]string{{"you"}, {"are"}, {"now"}},
		lazily(`(?i)\byou\s+are\s+now\s+(?:in\s+)?` +
			`(?:dan\b|developer\s+mode|god\s+mode|unrestricted|jailbroken|an?\s+unrestricted)`),
	},
	{ // the marks of chat templates
		[][]string{{"<|im_"}},
		lazily(`(?i)<\|im_(?:start|end)\|>`),
	},
}
