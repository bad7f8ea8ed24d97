// Package search finds skills by keywords, ranked, in a catalogue that is too large to show.
//
// An [Index] is built once from the skills of a snapshot and never changes. It ranks by BM25F over name,
// path, tags, description, when_to_use with triggers, and the beginning of the instructions, in that order of
// weight. More of the instructions, their first 3,000 bytes, are a second list; the two are fused by
// reciprocal rank. Comparison ignores case and compatibility forms, in every script; scripts without spaces
// between words are compared by pairs of characters. A prefix of a word matches the word. The same skills and
// queries give the same results, in the same order.
//
// It has no synonyms. Of 120 sentences, each written for one of 9,071 public skills, it finds the right skill
// among the first 5 for 69 (plain BM25 for 51), and as keywords for 119; [Index.Evaluate] measures this. One
// of the misses finds a copy of the right skill, and 10 share no word with its description. These extensions
// were measured and rejected, since each gained little: manual synonyms (4 more of 40 sentences known to
// their author, one less of 40 others), other weights (2 more of 120), all instructions (7 more, 3 keywords
// less), the most frequent words of each (5 more), 50,000 related words or word vectors learned from the
// instructions (6 and 3 more), and words of the best hits (3 more). The best of them together found 9 more,
// and 10 instead of 8 of 40 new sentences. Public word vectors (GloVe, 100 dimensions), used to expand the
// query and to rerank the best 50 hits, found 10 of the new ones with parameters chosen on the other half of
// them, and 11 with the best of 775.
//
// The second list was measured on 45 other sentences and 438 keyword queries for 5,098 public skills: the
// right skill is among the first 5 for 12 sentences instead of 7, on the first page for 22 instead of 17, and
// first for 3 as before; the keywords find what they found before, at the same places. In a plain fusion
// keywords lose: of 216 queries of four words of a description, 157 instead of 179 find it first. The
// parameters were chosen on these sentences.
//
// It does not read the rest of the instructions or other files, and it does not decide who may see a skill:
// it finds any of its skills. A skill's own description determines its rank, so the rank is no reason for
// trust.
//
//	index := search.New(snapshot.Skills)
//	result, err := index.Search("extract tables from pdf", search.Page{})
//	if err != nil {
//		return err
//	}
//	for _, hit := range result.Hits {
//		fmt.Println(hit.Skill.Path)
//	}
package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills"
)

const (
	// MaxQuery is the maximum length of a query, in characters.
	MaxQuery = 1_000
	// MaxPage is the maximum number of hits on a page.
	MaxPage = 100

	defaultPage = 20
)

// Errors that a caller may distinguish. Their texts contain no part of the query and can be shown.
var (
	// ErrQuery: the query has more than MaxQuery characters. It is refused, not truncated.
	ErrQuery = fmt.Errorf("the query has more than %d characters", MaxQuery)
	// ErrCursor: the cursor belongs to another query, or the skills changed since. The first page can be
	// requested again.
	ErrCursor = errors.New(
		"the cursor belongs to another query or to an earlier catalogue: ask again without it")
)

// Index holds the data to search some skills: about 3 KiB per skill, besides the skills themselves. It is
// immutable and safe for concurrent use.
type Index struct {
	skills   []*skills.Skill // sorted by Path
	identity [32]byte        // hash of all indexed text

	list      // of the fields
	text list // of the instructions
}

// list ranks skills by some of their text.
type list struct {
	terms    []string // sorted
	postings [][]posting
}

// posting is the weight of a term in one skill. The postings of a term are in the order of skills.
type posting struct {
	doc    uint32
	weight float32 // the part of the BM25 score independent of other skills
}

// Page is the part of a result that is requested. The zero value is the first page.
type Page struct {
	Cursor string // Result.Next of the previous page; empty for the first
	Size   int    // hits; 0: 20, at most MaxPage
}

// Result is one page of the skills that a query finds.
type Result struct {
	Hits  []Hit // best first; skills with equal scores are sorted by path
	Total int   // hits on all pages
	// Next is the cursor of the next page, or empty on the last one. It is valid for the same query to an
	// Index of the same skills.
	Next string
	// Suggestion is the query with each unknown word replaced by a similar word of some skill; empty if no
	// word is similar.
	Suggestion string
}

// Hit is a skill that was found.
type Hit struct {
	Skill *skills.Skill
	Score float64 // comparable only within a result; 0 for a query without words
}

// Search returns the skills with at least one word of the query, best first. Words without meaning of their
// own, like "the", are ignored unless the query has no others. A query without any letter or digit finds all
// skills, sorted by path.
//
// Errors: ErrQuery, ErrCursor.
func (x *Index) Search(query string, page Page) (Result, error) {
	if len(query) > MaxQuery && utf8.RuneCountInString(query) > MaxQuery {
		return Result{}, ErrQuery
	}
	from, err := x.open(page.Cursor, query)
	if err != nil {
		return Result{}, err
	}
	size := page.Size
	if size <= 0 {
		size = defaultPage
	}
	to := from + min(size, MaxPage)
	var hits []scored
	var result Result
	if words := parse(query); len(words) > 0 {
		terms, unknown := x.resolve(words)
		hits, result.Total = x.fused(terms, query, to)
		result.Suggestion = x.suggest(words, unknown)
	} else {
		result.Total = len(x.skills)
		for doc := range min(to, result.Total) {
			hits = append(hits, scored{doc: doc})
		}
	}
	// The skills are the same, but the query has fewer hits than the cursor requires: a forged number.
	if from > 0 && from >= len(hits) {
		return Result{}, ErrCursor
	}
	for _, hit := range hits[from:] {
		result.Hits = append(result.Hits, Hit{Skill: x.skills[hit.doc], Score: hit.score})
	}
	if to < result.Total {
		result.Next = x.cursor(query, to)
	}
	return result, nil
}

// fused returns the best most skills, in order, and the number of skills that match: those with a term in
// their fields, and the best by their instructions. The order does not depend on most.
//
// The first skill by the fields keeps its place, and the more of the query it has, the less the instructions
// weigh: keywords are in the fields, while the words of sentences often are not.
func (x *Index) fused(terms []string, query string, most int) (top []scored, total int) {
	top, covered, total := x.rank(&x.list, terms, query, max(most, fusedOf))
	texts, _, _ := x.rank(&x.text, terms, "", fusedText)
	if len(texts) == 0 {
		return top[:min(len(top), most)], total
	}
	gain := textWeight
	if len(top) > 0 {
		gain *= min(1, 2*(1-covered(top[0].doc)))
	}
	// A first hit with all words leaves nothing for the instructions to improve, and keywords keep their
	// order.
	if gain == 0 {
		return top[:min(len(top), most)], total
	}
	places := make(map[int]int, len(top))
	for i := range top {
		places[top[i].doc] = i
		// Skills that are called like the query stay above all others too.
		first := i == 0 || top[i].score >= exactBonus
		top[i].score = 1 / (rankOffset + float64(i+1))
		if first {
			top[i].score++
		}
	}
	for i, hit := range texts {
		more := gain / (rankOffset + float64(i+1))
		place, found := places[hit.doc]
		switch {
		case found && place < fusedOf:
			top[place].score += more
		case found: // only if most is larger, so the place has no effect
			top[place].score = more
		default:
			top = append(top, scored{more, hit.doc})
			if covered(hit.doc) == 0 {
				total++
			}
		}
	}
	slices.SortFunc(top, better)
	return top[:min(len(top), most)], total
}

// scored is a skill with its score for one query.
type scored struct {
	score float64
	doc   int
}

// better orders skills by their score, then by their path.
func better(a, b scored) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.doc, b.doc))
}

// rank returns the best most skills that match a term in a list, in order, the share of the query that a
// skill has, weighted by rarity, and the number of matches. Without a query, no skill is called like it.
func (x *Index) rank(
	l *list, terms []string, query string, most int,
) (top []scored, share func(doc int) float64, total int) {
	if len(l.terms) == 0 {
		return nil, func(int) float64 { return 0 }, 0
	}
	r := x.match(l, terms)
	if i := l.find(terms[0]); i >= 0 && query != "" {
		x.addExact(r, l.postings[i], query)
	}
	top, total = r.best(most)
	return top, func(doc int) float64 { return r.covered[doc] / r.all }, total
}

// ranking is how well each skill matches some terms.
type ranking struct {
	scores  []float64
	covered []float64 // sum of the idf of the terms that match
	all     float64   // sum of the idf of all terms
}

// match compares the skills with terms.
func (x *Index) match(l *list, terms []string) *ranking {
	n := len(x.skills)
	r := &ranking{scores: make([]float64, n), covered: make([]float64, n)}
	best := make([]float32, n) // best weight for the current term
	expand := max(maxExpanded/len(terms), minExpanded)
	var touched []uint32
	for _, term := range terms {
		touched = touched[:0]
		same := 0 // skills with the term itself or one with its stem
		for i, factor := range l.variants(term, expand) {
			for _, p := range l.postings[i] {
				if best[p.doc] == 0 {
					touched = append(touched, p.doc)
				}
				// A skill scores by its best variant: repeating a word in all its forms does not help.
				best[p.doc] = max(best[p.doc], factor*p.weight)
			}
			if factor >= asStem {
				same = len(touched)
			}
		}
		// The weight of a term is its idf, which is always positive here.
		// Completions of a short prefix are many, and would make a rare term look common.
		with := float64(cmp.Or(same, len(touched)))
		rarity := math.Log(1 + (float64(n)-with+0.5)/(with+0.5))
		r.all += rarity
		for _, doc := range touched {
			r.scores[doc] += rarity * float64(best[doc])
			r.covered[doc] += rarity
			best[doc] = 0
		}
	}
	for doc := range r.scores {
		// A match of the whole query ranks above repeated matches of a part.
		r.scores[doc] *= (1 + r.covered[doc]/r.all) / 2
	}
	return r
}

// addExact raises the skills that are called like the query. first are the postings of its first term.
func (x *Index) addExact(r *ranking, first []posting, query string) {
	query = strings.TrimSpace(query)
	isBreak := func(r rune) bool { return r == ' ' || r == '_' || r == '-' }
	hyphened := strings.Join(strings.FieldsFunc(query, isBreak), "-")
	for _, p := range first {
		if sk := x.skills[p.doc]; isCalled(sk, query) || isCalled(sk, hyphened) {
			r.scores[p.doc] += exactBonus
		}
	}
}

// best returns the best most skills, in order, and the number of matches.
func (r *ranking) best(most int) (top []scored, total int) {
	// Sorting all matches would take longer than finding them.
	bar := scored{score: -1} // at least most hits are better than this
	for doc, score := range r.scores {
		if r.covered[doc] == 0 {
			continue
		}
		total++
		if hit := (scored{score, doc}); better(hit, bar) < 0 {
			top = append(top, hit)
		}
		if len(top) >= 2*most {
			slices.SortFunc(top, better)
			top = top[:most]
			bar = top[most-1]
		}
	}
	slices.SortFunc(top, better)
	return top[:min(len(top), most)], total
}

func isCalled(sk *skills.Skill, name string) bool {
	last := sk.Path[strings.LastIndexByte(sk.Path, '/')+1:]
	return strings.EqualFold(sk.Frontmatter.Name, name) ||
		strings.EqualFold(last, name) || strings.EqualFold(sk.Path, name)
}
