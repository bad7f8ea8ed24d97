package search

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// The searched fields of a skill.
const (
	fieldName = iota
	fieldPath
	fieldTags
	fieldDescription
	fieldWhen
	fieldLead
	fields
)

// Limits on the searched text of a skill, so that one skill cannot fill the index.
const (
	maxField   = 4 << 10 // bytes of each field
	maxOfSkill = 1_024   // distinct terms, in the order of the fields
)

// The parameters of BM25F: k1, the weight of each field, and b of each field.
const saturation = 1.2

var (
	// In the order name, path, tags, description, when, lead.
	fieldWeight = [fields]float32{5, 2.5, 3, 1, 1, 0.3}
	lengthCost  = [fields]float32{0.6, 0.3, 0.3, 0.6, 0.6, 0.6}
)

// A whole word has twice the frequency of a part of a compound.
const (
	wholeCount = 2
	partCount  = 1
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
	places := map[string]int{} // of terms in found
	var found [][]counted      // in the order of skills
	lengths := make([]([fields]float32), len(x.skills))
	for doc, sk := range x.skills {
		different := 0
		for field, text := range texts(sk) {
			hashed = binary.LittleEndian.AppendUint32(hashed[:0], uint32(len(text)))
			hashed = append(hashed, text...)
			sum.Write(hashed)
			count := func(term string, n uint8) {
				place, known := places[term]
				if known {
					if last := &found[place][len(found[place])-1]; last.doc == uint32(doc) {
						if last.in[field] <= 255-n {
							last.in[field] += n
						}
						return
					}
				}
				different++
				if different > maxOfSkill {
					return
				}
				if !known {
					place = len(found)
					places[strings.Clone(term)] = place // does not keep the longer text alive
					found = append(found, nil)
				}
				in := frequency{}
				in[field] = n
				found[place] = append(found[place], counted{uint32(doc), in})
			}
			eachWord(text, func(w word) {
				if field >= fieldDescription && emptyWords[w.text] {
					return
				}
				lengths[doc][field]++
				count(w.text, wholeCount)
				for _, part := range w.parts {
					count(part, partCount)
				}
			})
		}
	}
	sum.Sum(x.identity[:0])
	x.terms = slices.Sorted(maps.Keys(places))
	x.postings = make([][]posting, len(x.terms))
	mean := meanLengths(lengths)
	for i, term := range x.terms {
		of := found[places[term]]
		x.postings[i] = make([]posting, len(of))
		for n, c := range of {
			x.postings[i][n] = posting{c.doc, weight(&c.in, &lengths[c.doc], &mean)}
		}
	}
	return x
}

// texts returns the fields of a skill, truncated.
func texts(sk *skills.Skill) [fields]string {
	f := &sk.Frontmatter
	all := [fields]string{
		fieldName:        f.Name,
		fieldPath:        sk.Path,
		fieldTags:        strings.Join(f.Tags[:min(len(f.Tags), maxField)], " "),
		fieldDescription: f.Description,
		fieldWhen:        strings.Join(append(f.Texts("triggers"), f.WhenToUse), "\n"),
		fieldLead:        sk.Lead,
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
