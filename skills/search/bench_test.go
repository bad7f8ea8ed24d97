package search_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/search"
)

// generated makes n skills with descriptions of 15 to 60 words. Words come as often as in real text:
// the k-th most frequent one about 1/k times, so that few are in most skills and most in few.
func generated(n int) []*skills.Skill {
	random := rand.New(rand.NewPCG(3, 4))
	seen := map[string]bool{}
	var vocabulary []string
	for _, w := range strings.FieldsFunc(invented,
		func(r rune) bool { return strings.ContainsRune(" |\n.,:;?/()", r) }) {
		w = strings.ToLower(w)
		if !seen[w] {
			seen[w] = true
			vocabulary = append(vocabulary, w)
		}
	}
	syllables := strings.Fields("con ver re port pro duc tion ma na ge ser vice ta ble in ter face mo del " +
		"da ta op ti mi ze scan ner lo gic")
	for len(vocabulary) < 12_000 {
		var b strings.Builder
		for range 2 + random.IntN(3) {
			b.WriteString(syllables[random.IntN(len(syllables))])
		}
		if w := b.String(); !seen[w] {
			seen[w] = true
			vocabulary = append(vocabulary, w)
		}
	}
	zipf := rand.NewZipf(random, 1.1, 8, uint64(len(vocabulary)-1))
	text := func(words int) string {
		var b strings.Builder
		for i := range words {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(vocabulary[zipf.Uint64()])
		}
		return b.String()
	}
	all := make([]*skills.Skill, n)
	for i := range all {
		name := strings.ReplaceAll(text(2+random.IntN(2)), " ", "-") + fmt.Sprintf("-%d", i)
		all[i] = &skills.Skill{Path: fmt.Sprintf("team-%d/%s", i%40, name), Frontmatter: skills.Frontmatter{
			Name: name, Description: text(15 + random.IntN(46)), Tags: strings.Fields(text(random.IntN(3))),
		}}
		all[i].Lead = skills.NewLead([]byte(text(450)))
		if i%4 == 0 {
			all[i].Frontmatter.WhenToUse = text(12)
		}
	}
	return all
}

func BenchmarkSearch(b *testing.B) {
	x := search.New(generated(10_000))
	common := "the a to and of in for write with data files tests text code pages change find what have " +
		"into from how them user use web plan state"
	queries := []struct{ name, query string }{
		{"word", "kubernetes"},
		{"sentence", "find a skill that helps me extract tables from a scanned pdf report"},
		{"prefix", "con"},
		{"missing", "kuberntes"},
		{"missing4", "kuberntes paralelepipd zzzzconverzzz qqqscannerlogqq"},
		{"longest", (strings.Repeat("con re pro ser ta da in mo op ma ", 40))[:search.MaxQuery]},
		{"common", common},
		{"joined", strings.Repeat("converreportproductionmanageserviceta", 27)},
		{"all", ""},
	}
	for _, q := range queries {
		b.Run(q.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Search(q.query, search.Page{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		all := generated(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				search.New(all)
			}
			b.ReportMetric(float64(held(all))/float64(n), "held-B/skill")
		})
	}
}

// held is the heap an index takes.
func held(all []*skills.Skill) int64 {
	before := heap()
	x := search.New(all)
	after := heap()
	runtime.KeepAlive(x)
	return after - before
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestIndexMemory holds the index to its size.
func TestIndexMemory(t *testing.T) {
	const most = 4_096 // bytes a skill
	all := generated(5_000)
	sizes := []int64{held(all) / int64(len(all)), held(all) / int64(len(all))}
	if got := slices.Min(sizes); got > most {
		t.Errorf("an index of %d skills takes %d bytes for each, want at most %d", len(all), got, most)
	}
}
