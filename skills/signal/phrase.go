package signal

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// phraseSearch is the state of the search for phrases, which may begin in the line before.
type phraseSearch struct {
	anchors       uint64 // of phrases in the current line
	before        []byte // the end of the previous line, if a phrase may begin there
	beforeLine    int
	beforeAnchors uint64 // of phrases in the previous line
	lower         []byte // a buffer
}

// searchPhrase searches a line, alone and joined with the end of the previous one, for a phrase.
func (s *Scanner) searchPhrase(line []byte) {
	p := &s.phrase
	// A phrase may go on in the next line, after the mark of a quotation, an item or a comment.
	text := bytes.TrimRight(bytes.TrimLeft(line, " \t>#*/-"), " \t\r")
	if len(text) > 0 && p.anchors|p.beforeAnchors != 0 && s.hasPhrase(text) {
		// No other phrase begins in a match.
		text, p.anchors = nil, 0
	}
	p.before = append(p.before[:0], text[len(text)-min(len(text), maxBefore):]...)
	p.beforeLine, p.beforeAnchors = s.line, p.anchors
}

// maxBefore is the length of the part of a line that is joined with the next one, in bytes.
const maxBefore = 200

// hasPhrase reports whether a line, alone or with the previous one, has a phrase, and records it.
func (s *Scanner) hasPhrase(text []byte) bool {
	p := &s.phrase
	isFirst := len(p.before) == 0
	p.before = append(append(p.before, ' '), text...)
	if !s.spend(p.before) {
		return false
	}
	p.lower = appendLower(p.lower[:0], p.before)
	// If case is ignored, two other characters match s and k.
	isFolded := containsAny(text, "\u017f", "\u212a")
	if isFolded {
		p.lower = bytes.ReplaceAll(p.lower, []byte("\u017f"), []byte("s"))
		p.lower = bytes.ReplaceAll(p.lower, []byte("\u212a"), []byte("k"))
	}
	masks, near := anchoredBy(), p.anchors|p.beforeAnchors
	found, plain, line, plainLine := false, false, s.line, 0
	for i := range injections {
		rule := &injections[i]
		// To match an expression costs a thousand times as much as a search for words, and few lines have
		// them.
		if !isFolded && masks[i]&near == 0 || !rule.possible(p.lower) {
			continue
		}
		within, at := text, s.line
		m := rule.expression().FindIndex(within)
		if m == nil && !isFirst {
			within, at = p.before, p.beforeLine
			m = rule.expression().FindIndex(within)
		}
		if m == nil {
			continue
		}
		found, line = true, min(line, at)
		if s.isOrder(rule, within, m[0], m[1]) {
			plain, plainLine = true, at
		}
	}
	switch {
	case plain:
		s.found.addPlain(Phrase, plainLine)
	case found:
		s.found.add(Phrase, line)
	}
	return found
}

// isOrder reports whether a phrase, from one place of a text to another, speaks to a model.
func (s *Scanner) isOrder(rule *injection, text []byte, from, to int) bool {
	before, after := text[:from], text[to:]
	return !s.isMinor(rule, before) && !isQuoted(before, after) && !s.isExample(before, text)
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
