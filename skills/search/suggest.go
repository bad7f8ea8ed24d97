package search

import (
	"math/bits"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// maxUnknown is the maximum number of words to correct in a query.
const maxUnknown = 4

// suggest returns the query with its unknown words replaced by similar terms, or "" without a similar term.
func (x *Index) suggest(words []word, unknown []int) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	changed := false
	for _, i := range unknown[:min(len(unknown), maxUnknown)] {
		if near := x.nearest(texts[i]); near != "" {
			texts[i], changed = near, true
		}
	}
	if !changed {
		return ""
	}
	return strings.Join(texts, " ")
}

// nearest returns the most similar term, or the most frequent of several; "" if none is similar. Words of up
// to seven characters may differ in one character, longer ones in two but not in the first.
func (x *Index) nearest(term string) string {
	want := []rune(term)
	limit := 1
	switch {
	case len(want) < 3:
		return ""
	case len(want) > 7:
		limit = 2
	}
	has := letters(term)
	best, bestCount := "", 0
	for i, text := range x.terms {
		// One edit adds at most one letter and removes at most one.
		those := letters(text)
		if bits.OnesCount64(those&^has) > limit || bits.OnesCount64(has&^those) > limit {
			continue
		}
		other := []rune(text)
		if len(other) < 3 || len(other) < len(want)-limit || len(other) > len(want)+limit {
			continue
		}
		n := skills.EditDistance(want, other, limit)
		// People rarely misspell the first letter, so two edits with another first letter lead to another
		// word.
		if n > limit || n > 1 && other[0] != want[0] {
			continue
		}
		if count := len(x.postings[i]); n < limit || count > bestCount {
			best, bestCount, limit = text, count, n
		}
	}
	return best
}

// letters returns a bit set of the characters of s, where some characters share a bit.
func letters(s string) (set uint64) {
	for _, r := range s {
		set |= 1 << (r & 63)
	}
	return set
}
