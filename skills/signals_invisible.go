package skills

import (
	"unicode"
	"unicode/utf8"
)

// The kinds of invisible characters.
const (
	tagCharacter = iota
	bidiControl
	hiddenSelector
	lineBreak // that is none for who reads by lines, or none to the eye
	controlCharacter
	zeroWidth
	invisibleKinds
)

var invisibleNames = [invisibleKinds]string{"tag character", "bidirectional control", "stray variation selector", "odd line break", "control character", "zero-width character"}

// invisibleLeads are the first two bytes of all invisible characters, and of some others.
var invisibleLeads = []string{"\xe2\x80", "\xe2\x81", "\xf3\xa0", "\xef\xbb", "\xef\xb8", "\xef\xbe", "\xe3\x85", "\xe1\xa0", "\xe1\x85", "\xd8\x9c"}

// invisibleLatin are the first two bytes of invisible characters with a lead byte that is common in
// text, so that they are looked for by themselves.
func invisibleLatin() []string {
	leads := []string{"\xc2\xad", "\xcd\x8f"}
	for c := byte(0x80); c < 0xa0; c++ {
		leads = append(leads, string([]byte{0xc2, c}))
	}
	return leads
}

// isControl reports control characters that text has no use for. Blanks are none: tabs, form feeds, and
// what ends a line.
func isControl(c byte) bool { return c < ' ' && c != '\t' && c != '\n' && c != '\f' || c == 0x7f }

const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
	brailleBlank       = '\u2800'
	byteOrderMark      = '\ufeff'
	blackFlag          = '\U0001f3f4'
	cancelTag          = '\U000e007f'
)

const (
	maxRegion  = 6  // tag characters of a flag, the last one left out
	maxContext = 64 // bytes around a direction mark in which its script is looked for
)

// invisibleAt returns the kind of the character at line[at], -1 when it can be seen or is needed
// where it stands.
func invisibleAt(line []byte, at int) int {
	r, size := utf8.DecodeRune(line[at:])
	before, _ := utf8.DecodeLastRune(line[:at])
	after, _ := utf8.DecodeRune(line[at+size:])
	switch {
	case r == '\r', r == 0x85, r == 0x2028, r == 0x2029:
		return lineBreak
	case r < utf8.RuneSelf && isControl(byte(r)), 0x80 <= r && r < 0xa0:
		return controlCharacter
	case r == 0xad, r == 0x34f:
		return zeroWidth
	case r == brailleBlank:
		if !isBraille(before) && !isBraille(after) {
			return zeroWidth
		}
	case 0xe0000 <= r && r <= 0xe007f:
		if !inFlag(line[:at]) {
			return tagCharacter
		}
	case 0x202a <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069:
		return bidiControl
	case r == 0x200e, r == 0x200f, r == 0x061c:
		if !writesRightToLeft(line[max(0, at-maxContext):min(len(line), at+maxContext)]) {
			return bidiControl
		}
	case 0xfe00 <= r && r <= 0xfe0f:
		if isSelector(before) || before < 0x250 && unicode.IsLetter(before) {
			return hiddenSelector
		}
	case 0xe0100 <= r && r <= 0xe01ef:
		if !unicode.Is(unicode.Han, before) {
			return hiddenSelector
		}
	case r == zeroWidthNonJoiner, r == zeroWidthJoiner:
		if !joins(before) && !joins(after) {
			return zeroWidth
		}
	case r == 0x200b:
		if !breaksWithoutSpace(before) && !breaksWithoutSpace(after) {
			return zeroWidth
		}
	case r == byteOrderMark, 0x2060 <= r && r <= 0x2064, 0x206a <= r && r <= 0x206f, r == 0x180e, r == 0x3164, r == 0xffa0:
		return zeroWidth
	case r == 0x115f, r == 0x1160:
		if !unicode.Is(unicode.Hangul, after) && !unicode.Is(unicode.Hangul, before) {
			return zeroWidth
		}
	}
	return -1
}

// inFlag reports that the tag characters at the end of the text spell the region of a flag.
func inFlag(text []byte) bool {
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

func isBraille(r rune) bool { return brailleBlank <= r && r <= 0x28ff }

func isSelector(r rune) bool { return 0xfe00 <= r && r <= 0xfe0f || 0xe0100 <= r && r <= 0xe01ef }

// joins reports characters that a joiner changes: those of emoji, and of scripts whose letters take
// their form from their neighbours.
func joins(r rune) bool {
	switch {
	case r < 0x250 || r == utf8.RuneError:
		return false
	case isSelector(r), unicode.Is(unicode.So, r), unicode.Is(unicode.Sk, r):
		return true
	}
	return unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Nko, unicode.Mongolian, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi,
		unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Tibetan)
}

// breaksWithoutSpace reports letters of scripts that write words without spaces, where a zero-width
// space says where a line may end.
func breaksWithoutSpace(r rune) bool {
	return r >= 0x250 && unicode.In(r, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Tibetan)
}

// writesRightToLeft reports a line in a script whose numbers and punctuation need direction marks.
func writesRightToLeft(line []byte) bool {
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		if r >= 0x590 && unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana) {
			return true
		}
		line = line[size:]
	}
	return false
}
