package search

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/skills"
)

// frequency is the number of occurrences of a term in each field of a skill, in half words, at most 255.
type frequency [fields]uint8

// counted is the frequency of a term in one skill.
type counted struct {
	doc uint32
	in  frequency
}

// New indexes skills. The index retains the skills, but not the slice.
func New(all []*skills.Skill) *Index {
	x := &Index{skills: slices.Clone(all)}
	slices.SortStableFunc(x.skills, func(a, b *skills.Skill) int { return strings.Compare(a.Path, b.Path) })
	sum, hashed := sha256.New(), []byte(nil)
	fields, text := newBuilder(len(x.skills)), newBuilder(len(x.skills))
	var group sync.WaitGroup
	// The instructions take most of the time.
	group.Go(func() {
		for doc, sk := range x.skills {
			text.add(doc, fieldText, texts(sk)[fieldText])
			text.end(doc)
		}
		x.text = text.list()
	})
	for doc, sk := range x.skills {
		for field, words := range texts(sk) {
			// The length keeps two fields from having the hash of other two with the same text.
			hashed = binary.LittleEndian.AppendUint32(hashed[:0], uint32(len(words)))
			hashed = append(hashed, words...)
			sum.Write(hashed)
			if field != fieldText {
				fields.add(doc, field, words)
			}
		}
		fields.end(doc)
	}
	sum.Sum(x.identity[:0])
	x.list = fields.list()
	group.Wait()
	return x
}

// builder collects the terms of a list.
type builder struct {
	ids     map[string]int // of terms in found
	found   [][]counted    // in the order of skills
	lengths [][fields]float32

	// of the current skill:
	seen      []occurrence
	different int     // terms
	last      []int32 // the number of the last skill with each term, from 1
}

// occurrence is a term in a field of one skill: from the low end 8 bits of half words, 8 of the field, and
// the id of the term in found. As a number it is sorted fast.
type occurrence uint64

func newBuilder(n int) *builder {
	return &builder{ids: map[string]int{}, lengths: make([][fields]float32, n)}
}

// add adds a field of a skill. The last field of a skill is followed by end.
func (b *builder) add(doc, field int, text string) {
	eachWord(text, func(w word) {
		// In names, paths and tags every word was chosen, even "with" or "you".
		if field >= fieldDescription && emptyWords[w.text] {
			return
		}
		b.lengths[doc][field]++
		b.count(doc, w.text, field, wholeCount)
		for _, part := range w.parts {
			b.count(doc, part, field, partCount)
		}
	})
}

// count notes n half words of a term.
func (b *builder) count(doc int, term string, field int, n uint8) {
	id, known := b.ids[term]
	if !known || b.last[id] != int32(doc+1) {
		b.different++
		// A skill with a vocabulary of its own must not fill the index of all.
		if b.different > maxOfSkill {
			return
		}
	}
	if !known {
		id = len(b.found)
		b.ids[strings.Clone(term)] = id // does not keep the longer text alive
		b.found, b.last = append(b.found, nil), append(b.last, 0)
	}
	b.last[id] = int32(doc + 1)
	b.seen = append(b.seen, occurrence(id)<<16|occurrence(field)<<8|occurrence(n))
}

// end adds what was noted of a skill to the terms. Skills are added in their order. Sorting first touches
// each term once: they lie far apart in memory.
func (b *builder) end(doc int) {
	seen := b.seen
	b.seen, b.different = seen[:0], 0
	slices.Sort(seen)
	for len(seen) > 0 {
		id, n := seen[0]>>16, 0
		c := counted{doc: uint32(doc)}
		for ; n < len(seen) && seen[n]>>16 == id; n++ {
			field, half := uint8(seen[n]>>8), uint8(seen[n])
			// A byte that overflows would make a frequent term a rare one.
			if c.in[field] <= 255-half {
				c.in[field] += half
			}
		}
		b.found[id] = append(b.found[id], c)
		seen = seen[n:]
	}
}

// list returns the list of everything that was added.
func (b *builder) list() list {
	l := list{terms: slices.Sorted(maps.Keys(b.ids))}
	l.postings = make([][]posting, len(l.terms))
	mean := meanLengths(b.lengths)
	for i, term := range l.terms {
		of := b.found[b.ids[term]]
		l.postings[i] = make([]posting, len(of))
		for n, c := range of {
			l.postings[i][n] = posting{c.doc, weight(&c.in, &b.lengths[c.doc], &mean)}
		}
	}
	return l
}

// texts returns the fields of a skill, truncated.
func texts(sk *skills.Skill) [fields]string {
	f, lead := &sk.Frontmatter, sk.Lead.String()
	all := [fields]string{
		fieldName:        f.Name,
		fieldPath:        sk.Path,
		fieldTags:        strings.Join(f.Tags[:min(len(f.Tags), maxField)], " "),
		fieldDescription: f.Description,
		fieldWhen:        strings.Join(append(f.Texts("triggers"), f.WhenToUse), "\n"),
		fieldLead:        lead[:min(len(lead), maxLead)],
		fieldText:        lead,
	}
	for field, text := range all {
		all[field] = text[:min(len(text), maxField)]
	}
	return all
}

// meanLengths returns the mean length of each field over the skills with a non-empty one.
func meanLengths(lengths [][fields]float32) (mean [fields]float32) {
	for field := range fields {
		sum, n := float32(0), float32(0)
		for doc := range lengths {
			if length := lengths[doc][field]; length > 0 {
				sum, n = sum+length, n+1
			}
		}
		mean[field] = sum / max(n, 1)
	}
	return mean
}

// weight returns the part of a BM25 score that is independent of other skills.
func weight(in *frequency, lengths, mean *[fields]float32) float32 {
	var sum float32
	for field, n := range in {
		if n > 0 {
			relative := 1 - lengthCost[field] + lengthCost[field]*(lengths[field]/mean[field])
			sum += fieldWeight[field] * float32(n) / wholeCount / relative
		}
	}
	return sum * (saturation + 1) / (sum + saturation)
}
