package signal

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The classes of invisible characters.
const (
	tagCharacter = iota
	bidiControl
	straySelector
	lineBreak // recognized only by some programs, or not visible
	controlCharacter
	zeroWidth
	lookalike
	classes
)

var classNames = [classes]string{
	tagCharacter:     "tag character",
	bidiControl:      "bidirectional control",
	straySelector:    "stray variation selector",
	lineBreak:        "odd line break",
	controlCharacter: "control character",
	zeroWidth:        "zero-width character",
	lookalike:        "lookalike letter",
}

// characterCounts are the numbers of invisible characters, by their classes.
type characterCounts [classes]int

// String returns the numbers with the names of the classes.
func (c *characterCounts) String() string {
	var counts []string
	for class, n := range c {
		if n > 0 {
			counts = append(counts, plural(n, classNames[class]))
		}
	}
	return strings.Join(counts, ", ")
}

const (
	blackFlag    = '\U0001f3f4'
	cancelTag    = '\U000e007f'
	brailleBlank = '\u2800'
)

const (
	maxRegion  = 6  // tag characters of a flag, without the final one
	maxContext = 64 // bytes around a direction mark to search for its script
)

// invisible is a range of characters.
type invisible struct {
	low, high rune
	class     int
	needed    func(c context) bool // nil: never
}

// invisibles are the invisible characters, in order of comparison; the first range that contains a character
// decides. A character is not a signal where the text around it needs it.
var invisibles = []invisible{
	{'\r', '\r', lineBreak, nil},
	{'\t', '\t', controlCharacter, always},
	{'\f', '\f', controlCharacter, always},
	{0, 0x1f, controlCharacter, nil},
	{0x85, 0x85, lineBreak, nil},
	{0x7f, 0x9f, controlCharacter, nil},
	{0xad, 0xad, zeroWidth, nil},                          // soft hyphen
	{0x34f, 0x34f, zeroWidth, nil},                        // combining grapheme joiner
	{0x3bd, 0x3bf, lookalike, context.inOwnScript},        // Greek letters like v, o
	{0x430, 0x458, lookalike, context.inOwnScript},        // Cyrillic letters like a, c, e, o
	{0x61c, 0x61c, bidiControl, context.rightToLeft},      // Arabic letter mark
	{0x115f, 0x1160, zeroWidth, context.besideHangul},     // Hangul fillers
	{0x180e, 0x180e, zeroWidth, nil},                      // Mongolian vowel separator
	{0x200b, 0x200b, zeroWidth, context.withoutSpaces},    // zero-width space
	{0x200c, 0x200d, zeroWidth, context.joined},           // zero-width joiners
	{0x200e, 0x200f, bidiControl, context.rightToLeft},    // direction marks
	{0x2028, 0x2029, lineBreak, nil},                      // line and paragraph separator
	{0x202a, 0x202e, bidiControl, nil},                    // embeddings and overrides
	{0x2060, 0x2064, zeroWidth, nil},                      // word joiner, invisible operators
	{0x2066, 0x2069, bidiControl, nil},                    // isolates
	{0x206a, 0x206f, zeroWidth, nil},                      // deprecated format characters
	{0x2800, 0x2800, zeroWidth, context.besideBraille},    // blank pattern
	{0x3164, 0x3164, zeroWidth, nil},                      // Hangul filler
	{0xfe00, 0xfe0f, straySelector, context.takesVariant}, // variation selectors
	{0xfeff, 0xfeff, zeroWidth, nil},                      // byte order mark
	{0xffa0, 0xffa0, zeroWidth, nil},                      // half-width Hangul filler
	{0xe0000, 0xe007f, tagCharacter, context.inFlag},
	{0xe0100, 0xe01ef, straySelector, context.afterHan},
}

// twinOf returns the Latin letter that a letter of another alphabet looks like, or 0.
func twinOf(r rune) byte {
	switch r {
	case 'а':
		return 'a'
	case 'е':
		return 'e'
	case 'о', 'ο':
		return 'o'
	case 'р':
		return 'p'
	case 'с':
		return 'c'
	case 'у':
		return 'y'
	case 'х':
		return 'x'
	case 'і':
		return 'i'
	case 'ј':
		return 'j'
	case 'ѕ':
		return 's'
	case 'ν':
		return 'v'
	}
	return 0
}

// inOwnScript reports whether a letter looks like no Latin one, or is in a word with others of its alphabet.
func (c context) inOwnScript() bool {
	r, _ := utf8.DecodeRune(c.line[c.start:])
	if twinOf(r) == 0 {
		return true
	}
	// A word of both has a place where they meet.
	if !c.either(func(r rune) bool { return r < utf8.RuneSelf && isLetter(byte(r)) }) {
		return true
	}
	// A word of Latin letters and their twins only is written to be taken for another word.
	latin := 0
	for _, r := range string(c.word()) {
		switch {
		case r < utf8.RuneSelf:
			latin++
		case twinOf(r) == 0:
			return true
		}
	}
	const least = 2
	return latin < least
}

// word returns the character with the letters around it, within a bound: a line may be one word.
func (c context) word() []byte {
	before := c.line[max(0, c.start-maxContext/2):c.start]
	after := c.line[c.end:min(len(c.line), c.end+maxContext/2)]
	begin := c.start - len(before) + len(bytes.TrimRightFunc(before, unicode.IsLetter))
	end := c.end + len(after) - len(bytes.TrimLeftFunc(after, unicode.IsLetter))
	return c.line[begin:end]
}

// checkCharacter records the character at line[at] if it is invisible.
func (s *Scanner) checkCharacter(line []byte, at int) {
	class := invisibleAt(line, at)
	// A byte order mark at the start of a file is common and harmless.
	if class < 0 || s.line == 1 && at == 0 && bytes.HasPrefix(line, []byte("\ufeff")) {
		return
	}
	s.addCharacter(class, s.isHarmful(class, line, at))
}

// addCharacter records an invisible character of the current line, which a user should look at if isPlain is
// set.
func (s *Scanner) addCharacter(class int, isPlain bool) {
	s.characters[class]++
	s.found.addIf(isPlain, Invisible, s.line)
}

// isHarmful reports whether an invisible character of a class can hide something.
func (s *Scanner) isHarmful(class int, line []byte, at int) bool {
	r, size := utf8.DecodeRune(line[at:])
	switch class {
	case lookalike:
		return !s.namesLetters(line)
	case bidiControl:
		// Embeddings, overrides and isolates reorder the text that a reader sees (CVE-2021-42574).
		return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
	// Another encoding may leave a few of them; many in a row may be a text in a code of their own.
	case straySelector, zeroWidth:
		return inRun(line[:at], class)
	case lineBreak:
		return overwrites(r, line[at+size:]) || s.program == code && endsLine(r)
	case controlCharacter:
		return changesTerminal(line, at)
	default:
		return true
	}
}

// overwrites reports whether a terminal writes the rest of a line over the text before it.
func overwrites(r rune, rest []byte) bool {
	return r == '\r' && len(rest) > 0 && rest[0] != '\r' && rest[0] != '\n'
}

// endsLine reports whether JavaScript ends a comment at a character, where an editor may show one line
// (ECMA-262, LineTerminator).
func endsLine(r rune) bool { return r >= 0x2028 }

// changesTerminal reports whether the control character at line[at] changes what a terminal shows.
func changesTerminal(line []byte, at int) bool {
	switch rest := line[at+1:]; line[at] {
	case 0x1b:
		// It begins a control sequence or a command (ECMA-48).
		return len(rest) > 0 && (rest[0] == '[' || rest[0] == ']')
	case '\b':
		// Manual pages print bold letters with one backspace; several in a row take text back.
		return at > 0 && line[at-1] == '\b'
	default:
		return false
	}
}

// letters is whether the letters of a line that look like others are named in it.
type letters struct {
	line     int
	areNamed bool
}

// namesLetters reports whether the current line shows a reader the letters in it that look like others.
func (s *Scanner) namesLetters(line []byte) bool {
	// A line may have thousands of such letters, so it is searched once.
	if s.letters.line != s.line {
		s.letters = letters{s.line, containsAny(line, "U+0", "yrillic", "omoglyph", "omograph")}
	}
	return s.letters.areNamed
}

// inRun reports whether a text ends in many invisible characters of a class.
func inRun(text []byte, class int) bool {
	most := map[int]int{straySelector: 3, zeroWidth: 7}[class]
	for range most {
		r, size := utf8.DecodeLastRune(text)
		isOfClass := func(i invisible) bool { return i.class == class && i.low <= r && r <= i.high }
		if !slices.ContainsFunc(invisibles, isOfClass) {
			return false
		}
		text = text[:len(text)-size]
	}
	return true
}

func always(context) bool { return true }

// invisibleAt returns the class of the character at line[at], or -1 if it is visible or needed.
func invisibleAt(line []byte, at int) int {
	r, size := utf8.DecodeRune(line[at:])
	for i := range invisibles {
		rule := &invisibles[i]
		if r < rule.low || r > rule.high {
			continue
		}
		if rule.needed != nil && rule.needed(context{line, at, at + size}) {
			return -1
		}
		return rule.class
	}
	return -1
}

// isControl reports whether text has no use for a control character. Tabs, form feeds and line feeds are
// useful.
func isControl(c byte) bool { return c < ' ' && c != '\t' && c != '\n' && c != '\f' || c == 0x7f }

// context is a character of a line, from start to end, with the text around it.
type context struct {
	line       []byte
	start, end int
}

func (c context) before() rune {
	r, _ := utf8.DecodeLastRune(c.line[:c.start])
	return r
}

func (c context) after() rune {
	r, _ := utf8.DecodeRune(c.line[c.end:])
	return r
}

// either reports whether is returns true for a neighbour of the character.
func (c context) either(is func(rune) bool) bool { return is(c.before()) || is(c.after()) }

func (c context) besideBraille() bool {
	return c.either(func(r rune) bool { return brailleBlank <= r && r <= 0x28ff })
}

func (c context) besideHangul() bool {
	return c.either(func(r rune) bool { return unicode.Is(unicode.Hangul, r) })
}

func (c context) afterHan() bool { return unicode.Is(unicode.Han, c.before()) }

// joined reports whether a joiner changes a neighbour: characters of emoji, and of scripts whose letters are
// shaped by their neighbours.
func (c context) joined() bool {
	return c.either(func(r rune) bool {
		switch {
		case r < 0x250 || r == utf8.RuneError:
			return false
		case isSelector(r), unicode.Is(unicode.So, r), unicode.Is(unicode.Sk, r):
			return true
		}
		return unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Nko, unicode.Mongolian,
			unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya,
			unicode.Tamil, unicode.Telugu,
			unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar,
			unicode.Tibetan)
	})
}

// withoutSpaces reports whether a neighbour belongs to a script without spaces between words, where a
// zero-width space marks a possible line break.
func (c context) withoutSpaces() bool {
	return c.either(func(r rune) bool {
		return r >= 0x250 && unicode.In(r, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
			unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Tibetan)
	})
}

// takesVariant reports whether the previous character may have variants: other selectors and Latin letters
// have none.
func (c context) takesVariant() bool {
	before := c.before()
	return !isSelector(before) && (before >= 0x250 || !unicode.IsLetter(before))
}

// rightToLeft reports whether the text is in a script whose numbers and punctuation need direction marks.
func (c context) rightToLeft() bool {
	text := c.line[max(0, c.start-maxContext):min(len(c.line), c.start+maxContext)]
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r >= 0x590 && unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana) {
			return true
		}
		text = text[size:]
	}
	return false
}

// inFlag reports whether the preceding tag characters spell the region of a flag.
func (c context) inFlag() bool {
	text := c.line[:c.start]
	// The region of a flag is spelled with tag characters after a black flag (UTS #51).
	for range maxRegion + 1 {
		r, size := utf8.DecodeLastRune(text)
		if r == blackFlag {
			return true
		}
		if r < 0xe0020 || r >= cancelTag {
			return false
		}
		text = text[:len(text)-size]
	}
	return false
}

func isSelector(r rune) bool { return 0xfe00 <= r && r <= 0xfe0f || 0xe0100 <= r && r <= 0xe01ef }

// appendVisible appends a line without its invisible characters beyond ASCII.
func appendVisible(to, line []byte) []byte {
	for at := 0; at < len(line); {
		r, size := utf8.DecodeRune(line[at:])
		isHidden := r >= utf8.RuneSelf && r != utf8.RuneError && slices.ContainsFunc(invisibles,
			func(i invisible) bool { return i.class != lookalike && i.low <= r && r <= i.high })
		switch twin := twinOf(r); {
		case twin != 0:
			to = append(to, twin)
		case !isHidden:
			to = append(to, line[at:at+size]...)
		}
		at += size
	}
	return to
}
