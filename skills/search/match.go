package search

import (
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxTerms = 64 // of a query; later ones are ignored
	// maxExpanded is how many words that begin with a term are looked at, for all terms of a query
	// together, but minExpanded for each.
	maxExpanded = 512
	minExpanded = 32
)

// How much a word counts that is not the query's own.
const (
	asStem      = 0.85 // has the same stem
	asBeginning = 0.5  // begins with the term, which no skill has
	asOther     = 0.2  // begins with the term, which other skills have
	asShorter   = 0.4  // is most of the term
)

// parse returns the words of a query that carry meaning, or all if none does. Sentences have words that
// say nothing about what is wanted, but would find the skills that are called "let" or "look".
func parse(query string) []word {
	var all []word
	eachWord(query, func(w word) {
		if !w.last && len(all) < maxTerms {
			all = append(all, w)
		}
	})
	meaning := slices.DeleteFunc(slices.Clone(all),
		func(w word) bool { return emptyWords[w.text] || fillers[w.text] })
	if len(meaning) > 0 {
		return meaning
	}
	return all
}

// resolve turns words into terms to look for: compounds the index does not have are taken apart, and
// neighbours are put together if the index has them as one. unknown are the places of words without
// any match.
func (x *Index) resolve(words []word) (terms []string, unknown []int) {
	add := func(all ...string) {
		for _, term := range all {
			if !slices.Contains(terms, term) {
				terms = append(terms, term)
			}
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
		} else if len(parts) == 0 {
			like := false
			for range x.variants(w.text, 1) {
				like = true
				break
			}
			if !like {
				parts = x.divide(w.text)
			}
			if !like && parts == nil && !w.pair {
				unknown = append(unknown, i)
			}
		}
		if len(parts) == 0 {
			parts = []string{w.text}
		}
		add(parts...)
	}
	return terms, unknown
}

// divide splits a term into two that the index has; if there are several ways, in the place where the
// rarer half is the most frequent.
func (x *Index) divide(term string) []string {
	const shortest = 3
	var parts []string
	most := 0
	for i := shortest; i <= len(term)-shortest; i++ {
		left, right := x.find(term[:i]), x.find(term[i:])
		if left < 0 || right < 0 {
			continue
		}
		if n := min(len(x.postings[left]), len(x.postings[right])); n > most {
			most, parts = n, []string{term[:i], term[i:]}
		}
	}
	return parts
}

// find returns the place of a term, -1 if no skill has it.
func (x *Index) find(text string) int {
	if i, found := slices.BinarySearch(x.terms, text); found {
		return i
	}
	return -1
}

// variants iterates over the terms of the index that match a term, with how much each counts: the term
// itself, then terms of the same stem, then at most expand terms that begin with it.
func (x *Index) variants(term string, expand int) iter.Seq2[int, float32] {
	return func(yield func(i int, factor float32) bool) {
		exact := x.find(term)
		if exact >= 0 && !yield(exact, 1) {
			return
		}
		root := stem(term)
		// A stem may end in the i of a y that its forms do not have.
		for i := range x.beginning(strings.TrimSuffix(root, "i"), maxExpanded) {
			if i != exact && stem(x.terms[i]) == root && !yield(i, asStem) {
				return
			}
		}
		// Of a word that skills have others are rarely the beginning: "back" is not backoff, nor "mood"
		// moody.
		factor := float32(asBeginning)
		if exact >= 0 {
			factor = asOther
		}
		// Too many words begin with one or two letters to mean them.
		if utf8.RuneCountInString(term) > 2 || exact < 0 {
			for i := range x.beginning(term, expand) {
				if i != exact && stem(x.terms[i]) != root && !yield(i, factor) {
					return
				}
			}
		}
		const shortest = 4
		for n := len(term) - 1; n >= shortest && 5*n >= 3*len(term); n-- {
			if i := x.find(term[:n]); i >= 0 && stem(x.terms[i]) != root && !yield(i, asShorter) {
				return
			}
		}
	}
}

// beginning iterates over the places of the first most terms that begin with text.
func (x *Index) beginning(text string, most int) iter.Seq[int] {
	return func(yield func(int) bool) {
		start, _ := slices.BinarySearch(x.terms, text)
		for i := start; i < min(len(x.terms), start+most) && strings.HasPrefix(x.terms[i], text); i++ {
			if !yield(i) {
				return
			}
		}
	}
}
