package search

import (
	"math/bits"
	"strings"
)

// maxUnknown is how many words of a query are corrected.
const maxUnknown = 4

// suggest returns the query with its unknown words replaced by similar terms; empty when none is.
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

// nearest is the most similar term, the most frequent of several, the first of those; empty when
// none is similar. Words of up to seven characters may differ in one, longer ones in two and not in the
// first.
func (x *Index) nearest(term string) string {
	want := []rune(term)
	limit := 1
	switch {
	case len(want) < 3:
		return ""
	case len(want) > 7:
		limit = 2
	}
	_, has := measure(term)
	best, bestCount := "", 0
	var d differ
	for i := range x.termEnds {
		other := x.term(i)
		length, letters := measure(other)
		if length < 3 || length < len(want)-limit || length > len(want)+limit ||
			bits.OnesCount64(letters&^has) > limit || bits.OnesCount64(has&^letters) > limit {
			continue
		}
		n := d.distance(want, other, limit)
		if n > limit || n > 1 && !strings.HasPrefix(other, string(want[:1])) {
			continue
		}
		if count := len(x.of(i)); n < limit || count > bestCount {
			best, bestCount, limit = other, count, n
		}
	}
	return best
}

// measure counts the characters of s and says which it has. A change of one character adds at most
// one to those it has and takes away at most one.
func measure(s string) (length int, letters uint64) {
	for _, r := range s {
		length++
		letters |= 1 << (r & 63)
	}
	return length, letters
}

// differ computes distances without allocating.
type differ struct {
	rows  [3][maxTerm + 1]int
	other []rune
}

// distance is the number of characters to insert, delete, replace or swap with the next to get from
// a to b; some number above limit when there are more.
func (d *differ) distance(a []rune, b string, limit int) int {
	d.other = d.other[:0]
	for _, r := range b {
		d.other = append(d.other, r)
	}
	other := d.other
	older, previous, current := &d.rows[0], &d.rows[1], &d.rows[2]
	for j := range len(other) + 1 {
		previous[j] = j
	}
	for i := range a {
		current[0] = i + 1
		least := i + 1
		for j := range other {
			cost := 1
			if a[i] == other[j] {
				cost = 0
			}
			n := min(previous[j]+cost, previous[j+1]+1, current[j]+1)
			if i > 0 && j > 0 && a[i] == other[j-1] && a[i-1] == other[j] {
				n = min(n, older[j-1]+1)
			}
			current[j+1] = n
			least = min(least, n)
		}
		if least > limit {
			return least
		}
		older, previous, current = previous, current, older
	}
	return previous[len(other)]
}
