package search_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/search"
)

func paths(result search.Result) []string {
	var paths []string
	for _, hit := range result.Hits {
		paths = append(paths, hit.Skill.Path)
	}
	return paths
}

func skill(path, description string) *skills.Skill {
	return &skills.Skill{Path: path, Frontmatter: skills.Frontmatter{Name: path[strings.LastIndexByte(path,
		'/')+1:], Description: description}}
}

// TestNothingAsked lists all skills for queries that hold no word.
func TestNothingAsked(t *testing.T) {
	all := inventedSkills()
	for _, query := range []string{"", "  ", "*", "?!", "\xff\xfe", "🎉"} {
		result, err := search.New(all).Search(query, search.Page{Size: 3})
		want := []string{"acme/billing/invoices", "acme/billing/refunds", "acme/legal/contract-review"}
		if err != nil || result.Total != len(all) || !slices.Equal(paths(result), want) {
			t.Errorf("Search(%q) = %q of %d, %v, want %q of %d", query, paths(result), result.Total, err,
				want, len(all))
		}
	}
}

// TestOrder proves that neither the order of the skills given nor the run changes a result, and
// that equal scores are in the order of paths.
func TestOrder(t *testing.T) {
	var all []*skills.Skill
	for i := range 50 {
		all = append(all, skill(fmt.Sprintf("team-%02d/convert", 49-i), "Convert files."))
	}
	all = append(all, inventedSkills()...)
	given := slices.Clone(all)
	first, err := search.New(all).Search("convert a file to pdf", search.Page{Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(all, given) {
		t.Error("New changes the slice it was given")
	}
	for i := range len(first.Hits) - 1 {
		a, b := first.Hits[i], first.Hits[i+1]
		if a.Score < b.Score || a.Score == b.Score && a.Skill.Path >= b.Skill.Path {
			t.Errorf("%s (%v) stands before %s (%v)", a.Skill.Path, a.Score, b.Skill.Path, b.Score)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		again, err := search.New(all).Search("convert a file to pdf", search.Page{Size: 100})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(paths(first), paths(again)); diff != "" {
			t.Fatalf("another order of skills gives another result (-first +again):\n%s", diff)
		}
	}
}

func TestPages(t *testing.T) {
	var all []*skills.Skill
	for i := range 45 {
		all = append(all, skill(fmt.Sprintf("s-%02d", i), "Convert files."))
	}
	if exact, err := search.New(all[:20]).Search("convert", search.Page{}); err != nil || exact.Total != 20 ||
		exact.Next != "" {
		t.Errorf("a result of one whole page = %d hits, next %q, %v", exact.Total, exact.Next, err)
	}
	x := search.New(all)
	for _, query := range []string{"convert", ""} {
		var got []string
		page, sizes := search.Page{}, []int(nil)
		for {
			result, err := x.Search(query, page)
			if err != nil || result.Total != 45 {
				t.Fatalf("Search(%q, %+v) = %d in total, %v", query, page, result.Total, err)
			}
			got, sizes = append(got, paths(result)...), append(sizes, len(result.Hits))
			page.Cursor = result.Next
			if page.Cursor == "" {
				break
			}
		}
		if !slices.Equal(sizes, []int{20, 20, 5}) {
			t.Errorf("pages of Search(%q) have %v hits, want 20, 20, 5", query, sizes)
		}
		if whole, err := x.Search(query, search.Page{Size: 1_000}); err != nil ||
			!slices.Equal(paths(whole), got) {
			t.Errorf("pages of Search(%q) = %q, want %q, %v", query, got, paths(whole), err)
		}
	}
}

// TestPagesOfRanks proves that a page is the part of the whole ranking it claims to be.
func TestPagesOfRanks(t *testing.T) {
	x := search.New(generated(600))
	for _, query := range []string{"write files", "con", "a data set of pages", "test"} {
		whole, err := x.Search(query, search.Page{Size: search.MaxPage})
		if err != nil || whole.Total < 40 {
			t.Fatalf("Search(%q) finds %d, %v", query, whole.Total, err)
		}
		for i := 1; i < len(whole.Hits); i++ {
			if whole.Hits[i-1].Score < whole.Hits[i].Score {
				t.Fatalf("Search(%q): hit %d is better than the one before", query, i)
			}
		}
		for _, size := range []int{1, 2, 7, 20} {
			var got []string
			page := search.Page{Size: size}
			for len(got) < len(whole.Hits) {
				result, err := x.Search(query, page)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, paths(result)...)
				page.Cursor = result.Next
				if page.Cursor == "" {
					break
				}
			}
			if diff := cmp.Diff(paths(whole), got[:len(whole.Hits)]); diff != "" {
				t.Errorf("pages of %d of Search(%q) (-whole +pages):\n%s", size, query, diff)
			}
		}
	}
}

func TestCursor(t *testing.T) {
	all := inventedSkills()
	x := search.New(all)
	result, err := x.Search("write", search.Page{Size: 2})
	if err != nil || result.Next == "" {
		t.Fatalf("Search = %+v, %v, want a second page", result, err)
	}
	cursor := result.Next
	if _, err := search.New(inventedSkills()).Search("write", search.Page{Cursor: cursor}); err != nil {
		t.Errorf("an index of equal skills refuses the cursor: %v", err)
	}
	changed := inventedSkills()
	changed[3].Frontmatter.Description = strings.ToUpper(changed[3].Frontmatter.Description)
	past, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		t.Fatal(err)
	}
	past[len(past)-1] = byte(len(all))
	tests := []struct {
		name, query, cursor string
		index               *search.Index
	}{
		{"another query", "written", cursor, x},
		{"all skills", "", cursor, x},
		{"a skill less", "write", cursor, search.New(all[1:])},
		{"a skill changed", "write", cursor, search.New(changed)},
		{"no skills", "write", cursor, search.New(nil)},
		{"past the end", "write", base64.RawURLEncoding.EncodeToString(past), x},
		{"cut", "write", cursor[:len(cursor)-1], x},
		{"longer", "write", cursor + "AAAA", x},
		{"not base64", "write", "%%%", x},
		{"newline inside", "write", cursor[:4] + "\n" + cursor[4:], x},
		{"huge", "write", strings.Repeat("A", 1<<20), x},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if result, err := tt.index.Search(tt.query, search.Page{Cursor: tt.cursor}); !errors.Is(err,
				search.ErrCursor) {
				t.Errorf("Search = %q, %v, want ErrCursor", paths(result), err)
			}
		})
	}
}

func TestQueryLimit(t *testing.T) {
	x := search.New(inventedSkills())
	for _, query := range []string{strings.Repeat("a", search.MaxQuery), strings.Repeat("技", search.MaxQuery),
		strings.Repeat("a ", search.MaxQuery/2)} {
		if _, err := x.Search(query, search.Page{}); err != nil {
			t.Errorf("Search of %d characters: %v", search.MaxQuery, err)
		}
	}
	if _, err := x.Search(strings.Repeat("a", search.MaxQuery+1), search.Page{}); !errors.Is(err,
		search.ErrQuery) {
		t.Errorf("Search of one character more = %v, want ErrQuery", err)
	}
}

// TestNothingIsFiltered holds what the caller decides: every skill given can be found.
func TestNothingIsFiltered(t *testing.T) {
	hidden := skill("hidden", "Asks not to be offered.")
	hidden.Frontmatter.DisableModelInvocation = true
	x := search.New([]*skills.Skill{hidden, skill("same", "One."), skill("same", "Two.")})
	for query, want := range map[string]int{"offered": 1, "same": 2, "": 3} {
		if result, err := x.Search(query, search.Page{}); err != nil || result.Total != want {
			t.Errorf("Search(%q) = %q, %v, want %d", query, paths(result), err, want)
		}
	}
}

func TestConcurrent(t *testing.T) {
	x := search.New(inventedSkills())
	want, err := x.Search("write tests", search.Page{})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				if got, err := x.Search("write tests", search.Page{}); err != nil ||
					!slices.Equal(paths(got), paths(want)) {
					t.Errorf("Search = %q, %v, want %q", paths(got), err, paths(want))
				}
			}
		})
	}
	group.Wait()
}

func FuzzSearch(f *testing.F) {
	all := inventedSkills()
	x := search.New(all)
	first, err := x.Search("write", search.Page{Size: 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("write", first.Next, "A description.", 2)
	f.Add("parseJSONFile oauth2 c++", "", "C++ ﷺ \u0301", 0)
	f.Add("技能 データ ไทย", "AAAA", "งานวิจัย", -1)
	f.Add("ﬁ ß ſ İ \xff", "", "İıſK", 1_000)
	f.Fuzz(func(t *testing.T, query, cursor, description string, size int) {
		for _, index := range []*search.Index{x,
			search.New([]*skills.Skill{skill("a", description), skill("b", query)})} {
			result, err := index.Search(query, search.Page{Cursor: cursor, Size: size})
			if err != nil {
				if !errors.Is(err, search.ErrCursor) && !errors.Is(err, search.ErrQuery) {
					t.Fatalf("Search(%q, %q) = %v", query, cursor, err)
				}
				continue
			}
			if len(result.Hits) > min(result.Total, search.MaxPage) {
				t.Fatalf("Search(%q) has %d hits of %d", query, len(result.Hits), result.Total)
			}
			if again, err := index.Search(query, search.Page{Cursor: cursor, Size: size}); err != nil ||
				!cmp.Equal(paths(again), paths(result)) || again.Next != result.Next {
				t.Fatalf("Search(%q) is not repeatable: %v", query, err)
			}
			if result.Next != "" {
				if next, err := index.Search(query,
					search.Page{Cursor: result.Next, Size: size}); err != nil || len(next.Hits) == 0 {
					t.Fatalf("the page after Search(%q) = %q, %v", query, paths(next), err)
				}
			}
		}
	})
}
