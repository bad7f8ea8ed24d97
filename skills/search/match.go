package search

import (
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxTerms = 64 // terms of a query; later ones are ignored
	// maxExpanded is the maximum number of completions of all terms of a query, and minExpanded the minimum
	// for each term.
	maxExpanded = 512
	minExpanded = 32
)

// parse returns the meaningful words of a query, or all words if none is meaningful. Filler words of
// sentences would otherwise match skills that are called "let" or "look".
func parse(query string) []word {
	var all []word
	eachWord(query, func(w word) {
		// The last character of a run is indexed so that a query of one character finds it. In a longer query
		// the pairs have it.
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

// resolve converts words to terms: compounds that the index lacks are split, and adjacent words are joined if
// the index has them as one. unknown are the positions of words without any match.
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
			// "type script" finds typescript.
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
			// Pairs of characters are no words, so no correction is suggested for them.
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

// divide splits a term into two terms of the index. Of several splits it chooses the one whose rarer half is
// the most frequent.
func (x *list) divide(term string) []string {
	const shortest = 3
	var parts []string
	most := 0
	for i := shortest; i <= len(term)-shortest; i++ {
		left, right := x.find(term[:i]), x.find(term[i:])
		if left < 0 || right < 0 {
			continue
		}
		// A half that is rare is most likely a misspelling of its own.
		if n := min(len(x.postings[left]), len(x.postings[right])); n > most {
			most, parts = n, []string{term[:i], term[i:]}
		}
	}
	return parts
}

// find returns the position of a term, or -1.
func (x *list) find(text string) int {
	if i, found := slices.BinarySearch(x.terms, text); found {
		return i
	}
	return -1
}

// variants iterates over the terms of the index that match a term, with their weights: the term itself, terms
// with the same stem, then at most expand terms that begin with it.
func (x *list) variants(term string, expand int) iter.Seq2[int, float32] {
	return func(yield func(i int, factor float32) bool) {
		exact := x.find(term)
		if exact >= 0 && !yield(exact, 1) {
			return
		}
		root := stem(term)
		// A stem may end in i for a y, which its forms lack.
		for i := range x.beginning(strings.TrimSuffix(root, "i"), maxExpanded) {
			if i != exact && stem(x.terms[i]) == root && !yield(i, asStem) {
				return
			}
		}
		// A term of the index is rarely a prefix of a related word: "back" is not backoff, nor "mood" moody.
		factor := float32(asBeginning)
		if exact >= 0 {
			factor = asOther
		}
		// One or two letters begin too many words to be useful.
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

// beginning iterates over the positions of the first most terms that begin with text.
func (x *list) beginning(text string, most int) iter.Seq[int] {
	return func(yield func(int) bool) {
		start, _ := slices.BinarySearch(x.terms, text)
		for i := start; i < min(len(x.terms), start+most) && strings.HasPrefix(x.terms[i], text); i++ {
			if !yield(i) {
				return
			}
		}
	}
}
