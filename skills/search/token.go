package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxTerm is the maximum length of a term, in bytes; longer words are truncated.
const maxTerm = 64

// word is a word of a text, folded.
type word struct {
	text  string
	parts []string // parts of a compound like parseJSON or oauth2, else nil
	pair  bool     // one of overlapping pairs of characters
	last  bool     // the last character of a run of pairs, on its own
}

// eachWord calls yield for every word of text, in order.
func eachWord(text string, yield func(word)) {
	// Most text is normal already, and normalizing would copy it.
	if !norm.NFKC.IsNormalString(text) {
		text = norm.NFKC.String(text)
	}
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		if !inWord(r) {
			at += size
			continue
		}
		end, dense := at+size, isDense(r)
		for !notPlain(r) && end < len(text) && !notPlain(rune(text[end])) {
			end++ // most letters
		}
		plain := end
		for end < len(text) {
			next, size := utf8.DecodeRuneInString(text[end:])
			if !inWord(next) || isDense(next) != dense && !unicode.IsMark(next) {
				break
			}
			end += size
		}
		if dense {
			eachPair(text[at:end], yield)
		} else {
			end += suffix(text[at:end], text[end:])
			run := text[at:end]
			if notPlain(r) || plain < end {
				yield(word{text: clip(fold(run)), parts: split(run)})
			} else {
				yield(word{text: clip(run)}) // most words
			}
		}
		at = end
	}
}

// notPlain reports whether r is not a lower-case ASCII letter.
func notPlain(r rune) bool { return r < 'a' || r > 'z' }

func inWord(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

// isDense reports whether r belongs to a script without spaces between words.
func isDense(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) || r == 'ー'
}

// suffix returns the length of the non-letter part of a name like C++ or F#.
func suffix(run, rest string) int {
	switch {
	case len(run) > 1:
	case strings.HasPrefix(rest, "++"):
		return 2
	case strings.HasPrefix(rest, "#"):
		return 1
	}
	return 0
}

// eachPair yields the pairs of adjacent characters of run, and its last character. Marks stay with the
// preceding letter.
func eachPair(run string, yield func(word)) {
	run = fold(run)
	previous, start := -1, 0
	for i, r := range run {
		if i == 0 || unicode.IsMark(r) {
			continue
		}
		if previous >= 0 {
			yield(word{text: clip(run[previous:i]), pair: true})
		}
		previous, start = start, i
	}
	if previous >= 0 {
		yield(word{text: clip(run[previous:]), pair: true})
	}
	yield(word{text: clip(run[start:]), last: previous >= 0})
}

// split returns the folded parts of a compound, at capitals and digits. Parts of one character are dropped.
func split(run string) []string {
	var parts []string
	start, whole := 0, len(run)
	cut := func(end int) {
		if part := run[start:end]; utf8.RuneCountInString(part) > 1 && len(part) < whole {
			parts = append(parts, clip(fold(part)))
		}
		start = end
	}
	var before, last rune // before last
	lastAt := 0
	for i, r := range run {
		switch {
		case i == 0 || unicode.IsMark(r):
		case unicode.IsNumber(r) != unicode.IsNumber(last), unicode.IsUpper(r) && unicode.IsLower(last):
			cut(i)
		case unicode.IsLower(r) && unicode.IsUpper(last) && unicode.IsUpper(before) && lastAt > start:
			cut(lastAt)
		}
		before, last, lastAt = last, r, i
	}
	if start > 0 {
		cut(len(run))
	}
	return parts
}

// fold maps words that differ only in case to the same text, by simple Unicode folding, and ß to ss.
func fold(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			return unicode.ToLower(r)
		}
		return unicode.ToLower(unicode.ToUpper(r))
	}, s)
	return strings.ReplaceAll(s, "ß", "ss")
}

// clip truncates a term to maxTerm bytes, between characters.
func clip(s string) string {
	if len(s) <= maxTerm {
		return s
	}
	return strings.ToValidUTF8(s[:maxTerm], "")
}

// emptyWords occur in most descriptions and carry no meaning for a skill.
var emptyWords = setOf("a about an and any are as at be by can do does for from has have " +
	"help helps how i if in into is it its me my need needs of on or skill skills so that the their " +
	"them these this to use used user users using want wants we what when where which will " +
	"with you your")

// fillers are words of sentences that carry no meaning for a query.
var fillers = setOf("he she they our us mine him her his hers theirs who whom whose why did done doing was " +
	"were been being am not don had having would should could may might must shall no nor doesn didn isn " +
	"aren won cant there here then than too very just also only some any each every all both few more " +
	"most other such own ever never now again please way thing things something someone somebody anyone " +
	"anybody everything everyone let lets get gets got getting go goes going put tell tells say says " +
	"know think see give show look looks like up down out off over under after before between through " +
	"while because until against into t s m d ll re ve much many one two three")

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// stem removes the English endings that change the meaning least. Other words are their own stem.
func stem(s string) string {
	if len(s) < 4 || strings.ContainsFunc(s, notPlain) {
		return s
	}
	switch {
	case strings.HasSuffix(s, "ies") && len(s) > 4:
		return s[:len(s)-2]
	case hasSuffix(s, "sses", "xes", "zes", "ches", "shes"):
		s = s[:len(s)-2]
	case strings.HasSuffix(s, "s") && !hasSuffix(s, "ss", "us", "is"):
		s = s[:len(s)-1]
	}
	for _, ending := range []string{"ing", "ed"} {
		rest, ok := strings.CutSuffix(s, ending)
		if ok && len(rest) >= 3 && strings.ContainsAny(rest, "aeiouy") {
			// Undo the doubling in "running", but not in "calling".
			if n := len(rest); rest[n-1] == rest[n-2] && !strings.ContainsRune("lsz", rune(rest[n-1])) {
				return rest[:n-1]
			}
			return rest
		}
	}
	switch n := len(s); {
	case s[n-1] == 'e' && n > 4:
		return s[:n-1]
	case s[n-1] == 'y' && n > 3 && !strings.ContainsRune("aeiou", rune(s[n-2])):
		return s[:n-1] + "i"
	}
	return s
}

func hasSuffix(s string, endings ...string) bool {
	for _, ending := range endings {
		if strings.HasSuffix(s, ending) {
			return true
		}
	}
	return false
}
