package search

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// Question is a query with the skills that answer it.
type Question struct {
	Query string   `json:"query"`
	Want  []string `json:"want"` // paths or names; any of them is correct
}

// ParseQuestions parses one question per line: the query, then after tabs the paths or names of skills that
// answer it. Empty lines and lines that begin with # are skipped.
func ParseQuestions(text string) ([]Question, error) {
	var questions []Question
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		want := slices.DeleteFunc(fields[1:], func(s string) bool { return s == "" })
		if len(want) == 0 {
			return nil, fmt.Errorf("line %d has no tab and skill after the query", number)
		}
		questions = append(questions, Question{Query: fields[0], Want: want})
	}
	return questions, nil
}

// Evaluation compares how well Search and plain BM25 answer questions. Plain BM25 over the words of name,
// path and description is the baseline.
type Evaluation struct {
	Questions int      `json:"questions"`
	Search    Scores   `json:"search"`
	Plain     Scores   `json:"plainBM25"`
	Answers   []Answer `json:"answers"` // in the order of the questions
}

// Scores are the numbers of questions with a correct answer among the first hits.
type Scores struct {
	At1  int     `json:"at1"`
	At5  int     `json:"at5"`
	At20 int     `json:"at20"` // a page of search_skills
	MRR  float64 `json:"mrr"`  // mean reciprocal rank, from 0 to 1
}

// Answer is the rank of the first correct answer to a question, from 1; 0 if not among MaxPage hits.
type Answer struct {
	Question
	Rank  int `json:"place"` // by Search
	Plain int `json:"plainBM25"`
}

// Evaluate answers questions.
//
// Errors: the errors of Search; an error for a question whose answers are not among the skills.
func (x *Index) Evaluate(questions []Question) (*Evaluation, error) {
	floor := newPlain(x.skills)
	e := &Evaluation{Questions: len(questions), Answers: []Answer{}}
	for _, q := range questions {
		right := func(sk *skills.Skill) bool {
			return slices.Contains(q.Want, sk.Path) || slices.Contains(q.Want, sk.Name())
		}
		// A question that nothing can answer would lower both scores.
		if !slices.ContainsFunc(x.skills, right) {
			return nil, fmt.Errorf("the skills that answer %q are not there: %q", q.Query, q.Want)
		}
		found, err := x.Search(q.Query, Page{Size: MaxPage})
		if err != nil {
			return nil, fmt.Errorf("%q: %w", q.Query, err)
		}
		a := Answer{Question: q}
		a.Rank = 1 + slices.IndexFunc(found.Hits, func(h Hit) bool { return right(h.Skill) })
		a.Plain = 1 + slices.IndexFunc(floor.search(q.Query),
			func(doc int) bool { return right(x.skills[doc]) })
		e.Search.add(a.Rank, len(questions))
		e.Plain.add(a.Plain, len(questions))
		e.Answers = append(e.Answers, a)
	}
	return e, nil
}

func (s *Scores) add(place, questions int) {
	for most, at := range map[int]*int{1: &s.At1, 5: &s.At5, 20: &s.At20} {
		if 0 < place && place <= most {
			*at++
		}
	}
	if place > 0 {
		s.MRR += 1 / float64(place) / float64(questions)
	}
}

// plainIndex is plain BM25 with its usual parameters.
type plainIndex struct {
	counts []map[string]int // of the words of each skill
	length []float64
	mean   float64
	with   map[string]float64 // number of skills with a word
}

func plainWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !inWord(r) })
}

func newPlain(all []*skills.Skill) *plainIndex {
	p := &plainIndex{with: map[string]float64{}}
	for _, sk := range all {
		counts := map[string]int{}
		words := plainWords(sk.Frontmatter.Name + " " + sk.Path + " " + sk.Description())
		for _, w := range words {
			counts[w]++
			if counts[w] == 1 {
				p.with[w]++
			}
		}
		p.counts, p.length = append(p.counts, counts), append(p.length, float64(len(words)))
		p.mean += float64(len(words)) / float64(len(all))
	}
	return p
}

// search returns the indexes of at most MaxPage skills, best first.
func (p *plainIndex) search(query string) []int {
	const k1, b = 1.2, 0.75
	score := make([]float64, len(p.counts))
	for _, w := range plainWords(query) {
		rarity := math.Log(1 + (float64(len(score))-p.with[w]+0.5)/(p.with[w]+0.5))
		for doc, counts := range p.counts {
			n := float64(counts[w])
			score[doc] += rarity * n * (k1 + 1) / (n + k1*(1-b+b*p.length[doc]/p.mean))
		}
	}
	var hits []int
	for doc := range score {
		if score[doc] > 0 {
			hits = append(hits, doc)
		}
	}
	slices.SortStableFunc(hits, func(a, b int) int { return cmp.Compare(score[b], score[a]) })
	return hits[:min(len(hits), MaxPage)]
}
