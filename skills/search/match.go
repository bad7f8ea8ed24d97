package search

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

const (
	maxTerms = 64 // of a query; what comes after them is not looked at
	// maxExpanded is how many words that begin with a term are looked at, for all terms of a query
	// together, but minExpanded for each.
	maxExpanded = 512
	minExpanded = 32
)

// How much a word counts that is not the query's own.
const (
	asStem      = 0.85 // has the same stem
	asBeginning = 0.5  // begins with the term
	asShorter   = 0.4  // is most of the term
)

// parse returns the words of a query that tell something, or all when none does.
func parse(query string) []word {
	var all, telling []word
	eachWord(query, func(w word) {
		if w.last || len(all) >= maxTerms {
			return
		}
		all = append(all, w)
		if !isEmpty(w.text) {
			telling = append(telling, w)
		}
	})
	if len(telling) > 0 {
		return telling
	}
	return all
}

// resolve turns words into terms to look for: compounds the index does not have are taken apart, and
// neighbours are put together where the index has them as one. unknown are the places of words
// that nothing matches.
func (x *Index) resolve(words []word) (terms []string, unknown []int) {
	add := func(term string) {
		if !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	for i, w := range words {
		if i > 0 && !w.pair {
			if joined := words[i-1].text + w.text; x.find(joined) >= 0 {
				add(joined)
			}
		}
		parts := w.parts
		if x.find(w.text) >= 0 {
			parts = nil
		} else if len(parts) == 0 && !x.matches(w.text) {
			parts = x.divide(w.text)
			if parts == nil && !w.pair {
				unknown = append(unknown, i)
			}
		}
		if len(parts) == 0 {
			add(w.text)
		}
		for _, part := range parts {
			add(part)
		}
	}
	return terms, unknown
}

// divide splits a term into two that the index has; where there are several ways, in the place
// where the rarer half is the most frequent.
func (x *Index) divide(term string) []string {
	const shortest = 3
	var parts []string
	most := 0
	for i := shortest; i <= len(term)-shortest; i++ {
		if !utf8.RuneStart(term[i]) {
			continue
		}
		left, right := x.find(term[:i]), x.find(term[i:])
		if left < 0 || right < 0 {
			continue
		}
		if n := min(len(x.of(left)), len(x.of(right))); n > most {
			most, parts = n, []string{term[:i], term[i:]}
		}
	}
	return parts
}

func (x *Index) term(i int) string {
	start := uint32(0)
	if i > 0 {
		start = x.termEnds[i-1]
	}
	return x.terms[start:x.termEnds[i]]
}

// of returns the postings of a term.
func (x *Index) of(i int) []posting {
	start := uint32(0)
	if i > 0 {
		start = x.postingEnd[i-1]
	}
	return x.postings[start:x.postingEnd[i]]
}

// from is the place of the first term that is not before text.
func (x *Index) from(text string) int {
	return sort.Search(len(x.termEnds), func(i int) bool { return x.term(i) >= text })
}

// find is the place of a term, -1 when no skill has it.
func (x *Index) find(text string) int {
	if i := x.from(text); i < len(x.termEnds) && x.term(i) == text {
		return i
	}
	return -1
}

// matches reports whether anything matches a term.
func (x *Index) matches(term string) bool {
	found := false
	x.variants(term, 1, func(int, float32) bool {
		found = true
		return false
	})
	return found
}

// variants calls yield with the terms of the index that stand for a term, and how much each counts.
// Those that mean the same come first, then at most expand that begin with it.
func (x *Index) variants(term string, expand int, yield func(i int, factor float32) bool) {
	exact := x.find(term)
	if exact >= 0 && !yield(exact, 1) {
		return
	}
	root := stem(term)
	for i := range x.beginning(strings.TrimSuffix(root, "i"), maxExpanded) {
		if i != exact && x.term(i) != term && stem(x.term(i)) == root && !yield(i, asStem) {
			return
		}
	}
	if utf8.RuneCountInString(term) > 2 || exact < 0 {
		for i := range x.beginning(term, expand) {
			if i != exact && stem(x.term(i)) != root && !yield(i, asBeginning) {
				return
			}
		}
	}
	const shortest = 4
	for n := len(term) - 1; n >= shortest && 5*n >= 3*len(term); n-- {
		if i := x.find(term[:n]); i >= 0 && stem(x.term(i)) != root && !yield(i, asShorter) {
			return
		}
	}
}

// beginning iterates over the places of the first most terms that begin with text.
func (x *Index) beginning(text string, most int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		start := x.from(text)
		for i := start; i < len(x.termEnds) && i < start+most && strings.HasPrefix(x.term(i), text); i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// matcher collects the skills that match one term. A skill counts by its best variant, so that
// repeating a word in all its forms does not help.
type matcher struct {
	index   *Index
	expand  int
	best    []float32 // by skill; 0: does not match
	touched []uint32
}

// match fills touched and best, and returns how much the term tells.
func (m *matcher) match(term string) float64 {
	same := 0 // skills that have the term itself or one of its stem
	m.index.variants(term, m.expand, func(i int, factor float32) bool {
		for _, p := range m.index.of(i) {
			if m.best[p.doc] == 0 {
				m.touched = append(m.touched, p.doc)
			}
			m.best[p.doc] = max(m.best[p.doc], factor*p.weight)
		}
		if factor >= asStem {
			same = len(m.touched)
		}
		return true
	})
	if same == 0 {
		same = len(m.touched)
	}
	return idf(same, len(m.index.skills))
}

func (m *matcher) reset() {
	for _, doc := range m.touched {
		m.best[doc] = 0
	}
	m.touched = m.touched[:0]
}
