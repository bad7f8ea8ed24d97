package search

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// The fields of a skill that are searched.
const (
	fieldName = iota
	fieldPath
	fieldTags
	fieldDescription
	fieldWhen
	fields
)

// What of a skill is searched, so that one skill cannot fill the index.
const (
	maxField   = 4 << 10 // bytes of each field
	maxOfSkill = 1_024   // different terms, in the order of the fields
)

// The parameters of BM25: how fast more of the same counts less, how much a field counts, and how
// much a long field is held against a skill.
const saturation = 1.2

var (
	fieldWeight = [fields]float32{fieldName: 5, fieldPath: 2.5, fieldTags: 3, fieldDescription: 1, fieldWhen: 1}
	lengthCost  = [fields]float32{fieldName: 0.6, fieldPath: 0.3, fieldTags: 0.3, fieldDescription: 0.6, fieldWhen: 0.6}
)

// A word counts twice as much as a part of a compound.
const (
	wholeCount = 2
	partCount  = 1
)

// New indexes skills. It carries all of them and keeps no other reference to the slice.
func New(all []*skills.Skill) *Index {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *skills.Skill) int { return strings.Compare(a.Path, b.Path) })
	b := builder{ids: make(map[string]uint32, 1024), hash: sha256.New(), lengths: make([][fields]uint32, len(sorted))}
	for doc, sk := range sorted {
		b.add(uint32(doc), sk)
	}
	x := b.index()
	x.skills = sorted
	return x
}

// builder collects the counts of all terms; the index is made when all skills are known.
type builder struct {
	ids     map[string]uint32
	seen    []seen   // by id
	counts  []counts // in the order of skills
	first   int      // in counts, of the current skill
	lengths [][fields]uint32
	hash    hash.Hash
}

// seen says where the counts of the skill that had a term last are.
type seen struct{ doc, at, skills uint32 }

// counts says how often a term is in the fields of a skill, in halves, as far as a byte counts.
type counts struct {
	id, doc uint32
	in      [fields]uint8
}

func (b *builder) add(doc uint32, sk *skills.Skill) {
	b.first = len(b.counts)
	f := &sk.Frontmatter
	b.field(doc, fieldName, f.Name)
	b.field(doc, fieldPath, sk.Path)
	b.field(doc, fieldTags, strings.Join(f.Tags[:min(len(f.Tags), maxField)], " "))
	b.field(doc, fieldDescription, f.Description)
	b.field(doc, fieldWhen, f.WhenToUse)
}

func (b *builder) field(doc uint32, field int, text string) {
	text = text[:min(len(text), maxField)]
	b.hash.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
	b.hash.Write([]byte(text))
	prose := field == fieldDescription || field == fieldWhen
	eachWord(text, func(w word) {
		if prose && isEmpty(w.text) {
			return
		}
		b.lengths[doc][field]++
		b.count(doc, field, w.text, wholeCount)
		for _, part := range w.parts {
			b.count(doc, field, part, partCount)
		}
	})
}

func (b *builder) count(doc uint32, field int, term string, n uint8) {
	id, known := b.ids[term]
	present := known && b.seen[id].skills > 0 && b.seen[id].doc == doc
	if !present && len(b.counts)-b.first >= maxOfSkill {
		return
	}
	if !known {
		id = uint32(len(b.seen))
		b.ids[strings.Clone(term)] = id
		b.seen = append(b.seen, seen{})
	}
	s := &b.seen[id]
	if !present {
		*s = seen{doc: doc, at: uint32(len(b.counts)), skills: s.skills + 1}
		b.counts = append(b.counts, counts{id: id, doc: doc})
	}
	if in := &b.counts[s.at].in[field]; *in <= 255-n {
		*in += n
	}
}

// index sorts what was counted by term.
func (b *builder) index() *Index {
	terms := make([]string, 0, len(b.ids))
	size := 0
	for term := range b.ids {
		terms = append(terms, term)
		size += len(term)
	}
	slices.Sort(terms)
	x := &Index{termEnds: make([]uint32, len(terms)), postingEnd: make([]uint32, len(terms)), postings: make([]posting, len(b.counts))}
	b.hash.Sum(x.identity[:0])
	var text strings.Builder
	text.Grow(size)
	next := make([]uint32, len(terms)) // by id: where the next posting goes
	end := uint32(0)
	for i, term := range terms {
		text.WriteString(term)
		id := b.ids[term]
		next[id] = end
		end += b.seen[id].skills
		x.termEnds[i], x.postingEnd[i] = uint32(text.Len()), end
	}
	x.terms = text.String()
	mean := b.meanLengths()
	for i := range b.counts {
		c := &b.counts[i]
		x.postings[next[c.id]] = posting{doc: c.doc, weight: b.weight(c, &mean)}
		next[c.id]++
	}
	return x
}

// meanLengths is the mean length of each field over the skills that have it.
func (b *builder) meanLengths() (mean [fields]float32) {
	for field := range fields {
		sum, n := 0, 0
		for doc := range b.lengths {
			if length := b.lengths[doc][field]; length > 0 {
				sum, n = sum+int(length), n+1
			}
		}
		mean[field] = float32(sum) / float32(max(n, 1))
	}
	return mean
}

func (b *builder) weight(c *counts, mean *[fields]float32) float32 {
	var sum float32
	for field, n := range c.in {
		if n > 0 {
			relative := float32(b.lengths[c.doc][field]) / mean[field]
			sum += fieldWeight[field] * float32(n) / wholeCount / (1 - lengthCost[field] + lengthCost[field]*relative)
		}
	}
	return sum * (saturation + 1) / (sum + saturation)
}
