package frontmatter

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// tokenKind is what the scanner of strict frontmatter finds.
type tokenKind int

const (
	tokenScalar  tokenKind = iota
	tokenKey               // before a key, whether ? stands there or not
	tokenValue             // the colon behind a key
	tokenEntry             // the hyphen of a list
	tokenMapping           // a mapping begins
	tokenList              // a list begins that is indented deeper than what holds it
	tokenEnd               // a mapping or a list of that kind ends
	tokenDocumentEnd
	tokenStreamEnd
)

var tokenNames = [...]string{"a value", "a key", "a colon", "a list entry", "a mapping", "a list", "less indentation", "the line ...", "the end"}

type token struct {
	kind   tokenKind
	line   int // of the block, from 0
	column int // in characters, from 0
	text   string
	plain  bool // a scalar without quotes or block indicator
}

// strictError is a fault in a block.
type strictError struct {
	line        int // of the block, from 0
	reason, fix string
}

// possibleKey is a scalar that a colon may turn into a key.
type possibleKey struct {
	set      bool
	required bool // nothing else may stand there
	at       int  // offset
	line     int
	column   int
	token    int // its index
}

// maxKeyLength is the most characters between the start of a key and its colon.
const maxKeyLength = 1024

// tokenizer takes a block apart as the reference's YAML library does, so that it accepts what that
// one accepts: YAML 1.2 in block style, with the laxities of the common scanner design (indentation
// decides only where collections begin and end; quoted text need not be indented).
type tokenizer struct {
	src       string // ends with a NUL, which it has nowhere else
	pos       int
	line      int
	lineStart int
	counted   int // offset up to which columns has counted
	columns   int // characters from lineStart to counted
	indent    int
	indents   []int
	tokens    []token
	keyNext   bool // a key may start at the next token
	key       possibleKey
	failed    *strictError
}

// tokenize returns the tokens of a block.
func tokenize(block string) ([]token, *strictError) {
	t := &tokenizer{src: block + "\x00", indent: -1, keyNext: true}
	if strings.HasPrefix(block, "\ufeff") {
		t.pos = len("\ufeff")
	}
	for t.failed == nil {
		if t.next(); len(t.tokens) > 0 && t.tokens[len(t.tokens)-1].kind == tokenStreamEnd {
			break
		}
	}
	return t.tokens, t.failed
}

func (t *tokenizer) fail(line int, reason, fix string) {
	if t.failed == nil {
		t.failed = &strictError{line: line, reason: reason, fix: fix}
	}
}

// at returns the byte n bytes ahead. The NUL at the end keeps the callers within the text: none looks
// further than a byte it knows to be no NUL.
func (t *tokenizer) at(n int) byte { return t.src[t.pos+n] }

// column returns how many characters of the line are behind. A byte order mark is none.
func (t *tokenizer) column() int {
	if t.counted < t.lineStart {
		t.counted, t.columns = t.lineStart, 0
	}
	for ; t.counted < t.pos; t.counted++ {
		if c := t.src[t.counted]; c < utf8.RuneSelf || utf8.RuneStart(c) && !strings.HasPrefix(t.src[t.counted:], "\ufeff") {
			t.columns++
		}
	}
	return t.columns
}

// breakSize returns the size of the line break at an offset, 0 when there is none. All but the line
// feed are of no account for line numbers and columns.
func (t *tokenizer) breakSize(at int) int {
	switch t.src[at] {
	case '\n':
		return 1
	case 0xc2:
		if t.src[at+1] == 0x85 {
			return 2
		}
	case 0xe2:
		if t.src[at+1] == 0x80 && (t.src[at+2] == 0xa8 || t.src[at+2] == 0xa9) {
			return 3
		}
	}
	return 0
}

// ends reports that no token goes on at an offset: a space, a tab, a line break or the end.
func (t *tokenizer) ends(at int) bool {
	c := t.src[at]
	return c == ' ' || c == '\t' || c == 0 || t.breakSize(at) > 0
}

// lineBreak passes a line break and returns what it stands for in a text.
func (t *tokenizer) lineBreak() string {
	size := t.breakSize(t.pos)
	text := t.src[t.pos : t.pos+size]
	t.pos += size
	switch size {
	case 1:
		t.line++
		t.lineStart = t.pos
	case 2:
		text = "\n"
	}
	return text
}

func (t *tokenizer) add(kind tokenKind) {
	t.tokens = append(t.tokens, token{kind: kind, line: t.line, column: t.column()})
}

// blanks passes spaces, comments and line breaks up to the next token.
func (t *tokenizer) blanks() {
	for {
		for t.at(0) == ' ' {
			t.pos++
		}
		switch {
		case t.at(0) == '#':
			t.comment()
			for t.breakSize(t.pos) > 0 {
				t.lineBreak()
			}
			t.keyNext = true
		case t.breakSize(t.pos) > 0:
			t.lineBreak()
			t.keyNext = true
			if t.at(0) != '\n' {
				continue
			}
			for t.at(0) == ' ' || t.at(0) == '\t' || t.breakSize(t.pos) > 0 {
				if t.lineBreak() == "" {
					t.pos++
				}
			}
		default:
			return
		}
	}
}

// comment passes the rest of a line.
func (t *tokenizer) comment() {
	for t.at(0) != 0 && t.breakSize(t.pos) == 0 {
		t.pos++
	}
}

// next adds the next token, and what its place implies.
func (t *tokenizer) next() {
	t.blanks()
	t.forget()
	column := t.column()
	for t.indent > column {
		t.indent = t.indents[len(t.indents)-1]
		t.indents = t.indents[:len(t.indents)-1]
		t.add(tokenEnd)
	}
	c := t.at(0)
	switch {
	case c == 0:
		t.close()
		t.add(tokenStreamEnd)
	case c == '%' && column == 0:
		t.fail(t.line, "a line that starts with % is a directive", quoteIt)
	case c == '.' && column == 0 && strings.HasPrefix(t.src[t.pos:], "...") && t.ends(t.pos+3):
		t.close()
		t.add(tokenDocumentEnd)
		t.pos += 3
	case c == '[' || c == '{':
		t.fail(t.line, "flow style ("+string(c)+") is not allowed", "write it over several lines, one entry on each, or put the value in quotes")
	case c == '&' || c == '*' || c == '!':
		t.fail(t.line, "anchors, aliases and tags ("+string(c)+") are not allowed", quoteIt)
	case c == ']' || c == '}' || c == ',' || c == '@' || c == '`' || c == '\t':
		t.fail(t.line, fmt.Sprintf("a value cannot start with %q", c), quoteIt)
	case c == '-' && t.ends(t.pos+1):
		t.begin(tokenList, tokenEntry, "a list entry is not allowed here")
	case c == '?' && t.ends(t.pos+1):
		t.begin(tokenMapping, tokenKey, "a key is not allowed here")
	case c == ':' && t.ends(t.pos+1):
		t.colon()
	case c == '|' || c == '>':
		t.keyNext = true
		t.drop()
		t.blockScalar(c == '>')
	case c == '\'' || c == '"':
		t.save()
		t.keyNext = false
		t.quoted(c)
	case t.startsPlain(c):
		t.save()
		t.keyNext = false
		t.plain()
	default:
		t.fail(t.line, fmt.Sprintf("a value cannot start with %q", c), quoteIt)
	}
}

const quoteIt = "put the value in quotes"

func (t *tokenizer) startsPlain(c byte) bool {
	switch c {
	case '?', ':', '-':
		return !t.ends(t.pos + 1)
	case '#', '%', ' ':
		return false
	}
	return true
}

// close ends every collection before the end of a document.
func (t *tokenizer) close() {
	for t.indent > -1 {
		t.indent = t.indents[len(t.indents)-1]
		t.indents = t.indents[:len(t.indents)-1]
		t.add(tokenEnd)
	}
	t.drop()
	t.keyNext = false
}

// deepen begins a collection at a column, unless one is there.
func (t *tokenizer) deepen(column int) bool {
	if t.indent >= column {
		return false
	}
	t.indents = append(t.indents, t.indent)
	t.indent = column
	return true
}

// begin adds an indicator that may be the first of its collection.
func (t *tokenizer) begin(collection, indicator tokenKind, refusal string) {
	if !t.keyNext {
		t.fail(t.line, refusal, quoteIt)
		return
	}
	if t.deepen(t.column()) {
		t.add(collection)
	}
	t.keyNext = true
	t.drop()
	t.add(indicator)
	t.pos++
}

// colon adds what separates a key from its value. The key before it may have been taken for a value.
func (t *tokenizer) colon() {
	if !t.key.set {
		t.begin(tokenMapping, tokenValue, "a value has a colon and a space in it")
		return
	}
	key := t.key
	t.key = possibleKey{}
	place := token{kind: tokenKey, line: key.line, column: key.column}
	t.tokens = slices.Insert(t.tokens, key.token, place)
	if t.deepen(key.column) {
		place.kind = tokenMapping
		t.tokens = slices.Insert(t.tokens, key.token, place)
	}
	t.keyNext = false
	t.add(tokenValue)
	t.pos++
}

// save notes that the next token may be a key.
func (t *tokenizer) save() {
	if !t.keyNext {
		return
	}
	t.drop()
	column := t.column()
	t.key = possibleKey{set: true, required: t.indent == column, at: t.pos, line: t.line, column: column, token: len(t.tokens)}
}

// drop gives up a possible key.
func (t *tokenizer) drop() {
	if t.key.set && t.key.required {
		t.fail(t.key.line, "a key has no colon behind it", "put a colon and a space between key and value, or indent the line below its key")
	}
	t.key = possibleKey{}
}

// forget gives up a possible key that is on another line or too far away.
func (t *tokenizer) forget() {
	if !t.key.set {
		return
	}
	far := t.pos-t.key.at > maxKeyLength && utf8.RuneCountInString(t.src[t.key.at:t.pos]) > maxKeyLength
	if far || t.key.line != t.line {
		t.drop()
	}
}
