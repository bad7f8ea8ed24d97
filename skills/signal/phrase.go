package signal

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// searchPhrase searches a line, alone and joined with the end of the previous one, for a phrase.
func (s *Scanner) searchPhrase(line []byte) {
	// A phrase may go on in the next line, after the mark of a quotation, an item or a comment.
	text := bytes.TrimRight(bytes.TrimLeft(line, " \t>#*/-"), " \t\r")
	if found := s.anchors|s.beforeAnchors != 0 && s.hasPhrase(text); found {
		// No other phrase begins in a match.
		text, s.anchors = nil, 0
	}
	s.before = append(s.before[:0], text[len(text)-min(len(text), maxBefore):]...)
	s.beforeLine, s.beforeAnchors = s.line, s.anchors
}

// maxBefore is the length of the part of a line that is joined with the next one, in bytes.
const maxBefore = 200

// hasPhrase reports whether a line, alone or with the previous one, has a phrase, and records it.
func (s *Scanner) hasPhrase(text []byte) bool {
	masks, near := anchoredBy(), s.anchors|s.beforeAnchors
	if !slices.ContainsFunc(masks, func(mask uint64) bool { return mask&near != 0 }) {
		return false
	}
	alone := len(s.before) + 1
	s.before = append(append(s.before, ' '), text...)
	if len(text) == 0 || !s.spend(s.before) {
		return false
	}
	s.lower = appendLower(s.lower[:0], s.before)
	// If case is ignored, two other characters match s and k.
	folded := bytes.Contains(text, []byte("\u017f")) || bytes.Contains(text, []byte("\u212a"))
	if folded {
		s.lower = bytes.ReplaceAll(bytes.ReplaceAll(s.lower, []byte("\u017f"), []byte("s")),
			[]byte("\u212a"), []byte("k"))
	}
	found, plain, line, plainLine := false, false, s.line, 0
	for i := range injections {
		// To match an expression costs a thousand times as much as a search for words, and few lines have
		// them.
		if !folded && masks[i]&near == 0 || !injections[i].possible(s.lower) {
			continue
		}
		within, at := text, s.line
		m := injections[i].expression().FindIndex(within)
		if m == nil && alone > 1 {
			within, at = s.before, s.beforeLine
			m = injections[i].expression().FindIndex(within)
		}
		if m != nil {
			found, line = true, min(line, at)
			if !s.isMinor(&injections[i], within[:m[0]]) && !isQuoted(within[:m[0]], within[m[1]:]) &&
				!s.isExample(within[:m[0]], within) {
				plain, plainLine = true, at
			}
		}
	}
	switch {
	case plain:
		s.countPlain(Phrase, plainLine)
	case found:
		s.countAt(Phrase, line)
	}
	return found
}

// isMinor reports whether a phrase after the beginning of a line is worth knowing only.
func (s *Scanner) isMinor(found *injection, before []byte) bool {
	return found.isFact || found.isData && (s.program != none || s.fence.open() || inCode(before) ||
		bytes.HasSuffix(before, []byte("'")) || bytes.HasSuffix(before, []byte(`"`)))
}

// appendLower appends a text with letters of ASCII in lower case, and one space for several.
func appendLower(lower, text []byte) []byte {
	for _, c := range text {
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '\t' || c == '\r' || c == '\f':
			c = ' '
		}
		if n := len(lower); c != ' ' || n > 0 && lower[n-1] != ' ' {
			lower = append(lower, c)
		}
	}
	return lower
}

// anchoredBy returns the anchors of each injection, as bits.
var anchoredBy = sync.OnceValue(func() []uint64 {
	const shortest = 4
	masks := make([]uint64, len(injections))
	for i := range injections {
		for n, list := range injections[i].words {
			for bit, a := range anchors {
				for text := range strings.SplitSeq(a.text, "\n") {
					if a.group == phrases && slices.ContainsFunc(list, func(word string) bool {
						return n == 0 && strings.Contains(word, text) ||
							len(word) >= shortest && strings.Contains(text, word)
					}) {
						masks[i] |= 1 << bit
					}
				}
			}
		}
	}
	return masks
})
