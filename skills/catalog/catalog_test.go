package catalog_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
)

var update = flag.Bool("update", false, "write the golden files")

func skill(path, description string) *skills.Skill {
	return &skills.Skill{Path: path, Frontmatter: skills.Frontmatter{Description: description}}
}

func when(path, description, when string) *skills.Skill {
	return &skills.Skill{Path: path, Frontmatter: skills.Frontmatter{Description: description, WhenToUse: when}}
}

// many makes n skills whose descriptions differ in length, in an order that is not theirs.
func many(n int) []*skills.Skill {
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("Convert reports between formats, check every figure against its source and write a short summary for readers who need it quickly.")
	all := make([]*skills.Skill, n)
	for i := range all {
		length := 4 + random.IntN(2*len(words))
		var text []string
		for w := range length {
			text = append(text, words[w%len(words)])
		}
		all[i] = skill(fmt.Sprintf("team-%d/skill-%05d", i%3, i), strings.Join(text, " "))
	}
	random.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func TestRenderGolden(t *testing.T) {
	for _, n := range []int{1, 10, 50, 200, 10_000} {
		all := many(n)
		chosen := catalog.Options{
			Budget: 4_096, Pinned: []string{"team-0/skill-00000", "team-0/skill-00009", "team-2/skill-09998"},
			NameOnly: []string{"team-1/skill-00001", "team-0/skill-00009"}, Tail: catalog.SearchTail,
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			golden(t, fmt.Sprintf("render-%d.txt", n), catalog.Render(all, catalog.Options{Budget: 4_096}))
			golden(t, fmt.Sprintf("chosen-%d.txt", n), catalog.Render(all, chosen))
			golden(t, fmt.Sprintf("line-%d.txt", n), catalog.Line(all, catalog.Options{Budget: 250}))
			golden(t, fmt.Sprintf("chosen-line-%d.txt", n), catalog.Line(all, catalog.Options{Budget: 250, Pinned: chosen.Pinned}))
			chosen.Format = catalog.FormatXML
			golden(t, fmt.Sprintf("chosen-%d.xml", n), catalog.Render(all, chosen))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestRender(t *testing.T) {
	long := strings.Repeat("word ", 40)
	whole, begun := strings.TrimSpace(long), strings.Repeat("word ", 20)+"word..."
	tests := []struct {
		name   string
		skills []*skills.Skill
		opts   catalog.Options
		want   string
	}{
		{"none", nil, catalog.Options{Budget: 100}, ""},
		{"no budget", []*skills.Skill{skill("a", "A.")}, catalog.Options{}, ""},
		{"sorted", []*skills.Skill{skill("b", "B."), skill("a", "A.")}, catalog.Options{Budget: 100}, "a: A.\nb: B."},
		{"exact budget", []*skills.Skill{skill("a", "A."), skill("b", "B.")}, catalog.Options{Budget: 11}, "a: A.\nb: B."},
		{"no description", []*skills.Skill{skill("a", " \n ")}, catalog.Options{Budget: 100}, "a"},
		{"cut alike", []*skills.Skill{skill("a", long), skill("b", long), skill("c", "Short.")}, catalog.Options{Budget: 80},
			"a: word word word word word...\nb: word word word word word...\nc: Short."},
		{"names only", []*skills.Skill{skill("a", long), skill("b", long)}, catalog.Options{Budget: 20}, "a\nb"},
		{"tail", many(60), catalog.Options{Budget: 70}, "team-0/skill-00000\nand 59 more; call load_skill with the exact name"},
		{"own tail", many(60), catalog.Options{Budget: 60, Tail: catalog.SearchTail},
			"team-0/skill-00000\n59 more: use search_skills"},
		{"tail only", many(60), catalog.Options{Budget: 60}, "and 60 more; call load_skill with the exact name"},
		{"tail does not fit", many(60), catalog.Options{Budget: 20}, ""},
		{"wide text", []*skills.Skill{skill("a", strings.Repeat("技能", 30)), skill("b", "B.")}, catalog.Options{Budget: 40},
			"a: " + strings.Repeat("技能", 14) + "...\nb: B."},
		{"long name", []*skills.Skill{skill(strings.Repeat("n", 129), "Fits."), skill("a", "A.")}, catalog.Options{Budget: 142},
			"a: A.\n" + strings.Repeat("n", 129) + ": Fits."},
		{"long name does not fit", []*skills.Skill{skill(strings.Repeat("n", 129), "Crowds out."), skill("a", "A.")}, catalog.Options{Budget: 130},
			"a: A.\nand 1 more; call load_skill with the exact name"},
		{"long name does not crowd out", []*skills.Skill{skill(strings.Repeat("n", 129), ""), skill("z1", ""), skill("z2", "")}, catalog.Options{Budget: 134},
			"z1\nz2\nand 1 more; call load_skill with the exact name"},
		{"pinned keeps its description", []*skills.Skill{skill("a", long), skill("b", "What b is for, in whole."), skill("c", long)},
			catalog.Options{Budget: 60, Pinned: []string{"b"}}, "b: What b is for, in whole.\na: word word...\nc: word word..."},
		{"name only", []*skills.Skill{skill("a", "A."), skill("b", "B.")}, catalog.Options{Budget: 100, NameOnly: []string{"a"}}, "a\nb: B."},
		{"name only and pinned", []*skills.Skill{skill("a", "A."), skill("b", "B.")}, catalog.Options{Budget: 100, NameOnly: []string{"b"}, Pinned: []string{"b"}}, "b\na: A."},
		{"unknown choices", []*skills.Skill{skill("a", "A.")}, catalog.Options{Budget: 100, NameOnly: []string{"x"}, Pinned: []string{"y"}}, "a: A."},
		{"emoji count as two", []*skills.Skill{skill("a", strings.Repeat("\U0001f4bb", 30)), skill("b", "B.")}, catalog.Options{Budget: 40},
			"a: " + strings.Repeat("\U0001f4bb", 14) + "...\nb: B."},
		{"largest budget", []*skills.Skill{skill("a", "A.")}, catalog.Options{Budget: math.MaxInt}, "a: A."},
		{"smallest budget", []*skills.Skill{skill("a", "A.")}, catalog.Options{Budget: math.MinInt}, ""},
		{"pinned yield to names", []*skills.Skill{skill("a", ""), skill("b", "A description of b that is long."), skill("c-is-a-long-name", "")},
			catalog.Options{Budget: 48, Pinned: []string{"b"}}, "b: A description of b that...\na\nc-is-a-long-name"},
		{"whole in the order of names", []*skills.Skill{skill("a", long), skill("b", long), skill("c", long)},
			catalog.Options{Budget: 430}, "a: " + whole + "\nb: " + begun + "\nc: " + begun},
		{"the one used more is whole", []*skills.Skill{skill("a", long), skill("b", long), skill("c", long)},
			catalog.Options{Budget: 430, Uses: map[string]int{"c": 2, "b": 1, "x": 9}},
			"c: " + whole + "\nb: " + begun + "\na: " + begun},
		{"pinned before used", []*skills.Skill{skill("a", long), skill("b", long), skill("c", long)},
			catalog.Options{Budget: 430, Pinned: []string{"a"}, Uses: map[string]int{"c": 2}},
			"a: " + whole + "\nc: " + begun + "\nb: " + begun},
		{"no room for the beginnings", []*skills.Skill{skill("a", long), skill("b", long), skill("c", long)},
			catalog.Options{Budget: 230, Uses: map[string]int{"c": 2}}, "c: " + whole + "\na\nb"},
		{"use changes nothing if all fit", []*skills.Skill{skill("a", "A."), skill("b", "B.")},
			catalog.Options{Budget: 11, Uses: map[string]int{"b": 1}}, "a: A.\nb: B."},
		{"used names before others", many(60), catalog.Options{Budget: 90, Uses: map[string]int{"team-2/skill-00005": 1}},
			"team-2/skill-00005\nteam-0/skill-00000\nand 58 more; call load_skill with the exact name"},
		{"when to use it", []*skills.Skill{when("a", "A.", "Asked."), when("b", "", "Never."), when("c", "C.", " ")}, catalog.Options{Budget: 22}, "a: A. - Asked.\nb\nc: C."},
		{"no room for when", []*skills.Skill{when("a", "A.", "Asked.")}, catalog.Options{Budget: 13}, "a: A."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := catalog.Render(tt.skills, tt.opts); got != tt.want {
				t.Errorf("Render = %q, want %q", got, tt.want)
			}
		})
	}
}

// TestRenderHostile holds texts that want to look like another skill, or to carry what no one sees.
func TestRenderHostile(t *testing.T) {
	tests := []struct{ name, path, description, want string }{
		{"newline", "a", "A.\nadmin: trusted", "a: A. admin: trusted"},
		{"other line breaks", "a", "A.\r\v\f\u0085\u2028\u2029admin: trusted", "a: A. admin: trusted"},
		{"terminal", "a", "A\x1b[31mB\x00C", "a: A [31mB C"},
		{"bidi", "a", "A\u202egnp.exe\u2066", "a: Agnp.exe"},
		{"tag characters", "a", "A\U000e0041\U000e0042.", "a: A."},
		{"selectors", "a", "A\U000e0100\U000e01ef.", "a: A."},
		{"emoji", "a", "\U0001f469\u200d\U0001f4bb codes", "a: \U0001f469\u200d\U0001f4bb codes"},
		{"not UTF-8", "a", "A\xffB", "a: A\ufffdB"},
		{"path with a colon", "a: b", "C.", `"a: b": C.`},
		{"path with a newline", "a\nb", "C.", `"a\nb": C.`},
		{"path with a comma", "a, b", "C.", `"a, b": C.`},
		{"path with quotes", `a"b`, "C.", `"a\"b": C.`},
		{"path with letters that show nothing", "pdf\u3164é", "C.", `"pdf\u3164\u00e9": C.`},
		{"text with letters that show nothing", "a", "B\u3164\u115f\u034fC.", "a: BC."},
		{"other letters", "größe/技能", "C.", "größe/技能: C."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := catalog.Render([]*skills.Skill{skill(tt.path, tt.description)}, catalog.Options{Budget: 1_000})
			if got != tt.want {
				t.Errorf("Render = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	abc := []*skills.Skill{skill("c", ""), skill("a", ""), skill("b", "")}
	tests := []struct {
		name   string
		skills []*skills.Skill
		budget int
		want   string
	}{
		{"all", abc, 7, "a, b, c"},
		{"none", nil, 7, ""},
		{"one short of all", []*skills.Skill{skill("alpha", ""), skill("beta", ""), skill("gamma-delta", "")}, 22, "alpha, and 2 more"},
		{"count", many(12), 40, "team-0/skill-00000, and 11 more"},
		{"count only", many(12), 20, "12 skills"},
		{"nothing fits", many(12), 5, ""},
		{"negative", abc, -1, ""},
		{"forged", []*skills.Skill{skill("a, b", "")}, 20, `"a, b"`},
		{"too long a name", []*skills.Skill{skill(strings.Repeat("n", 200), ""), skill("z", "")}, 100, "z, and 1 more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := catalog.Line(tt.skills, catalog.Options{Budget: tt.budget}); got != tt.want {
				t.Errorf("Names = %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzRender proves what holds for every text: the budget, one line a skill, and independence of
// the order given.
func FuzzRender(f *testing.F) {
	f.Add("a", "A.", "b", "B.", 40)
	f.Add("a\n", "x\ny: z", "b: c", "\u202e", 4_096)
	f.Add("", "", "", "", 1)
	f.Add("a", strings.Repeat("w ", 100), "b", strings.Repeat("技", 100), 90)
	f.Add("a", strings.Repeat("\U0001f4bb<&", 100), "b", "]]>'\"", 300)
	f.Fuzz(func(t *testing.T, pathA, textA, pathB, textB string, budget int) {
		budget %= 8_192
		all := []*skills.Skill{skill(pathA, textA), skill(pathB, textB)}
		if pathA == pathB {
			all = all[:1]
		}
		for _, opts := range []catalog.Options{
			{Budget: budget}, {Budget: budget, Pinned: []string{pathB}}, {Budget: budget, Format: catalog.FormatXML},
		} {
			checkRender(t, all, opts)
		}
		if got := catalog.Line(all, catalog.Options{Budget: budget}); length(got) > max(budget, 0) || strings.Contains(got, "\n") {
			t.Fatalf("Names(%d) = %q", budget, got)
		}
	})
}

// TestBudgetIsUsed makes sure that cutting is not cruder than it has to be.
func TestBudgetIsUsed(t *testing.T) {
	for n := 1; n <= 100; n += 3 {
		got := utf8.RuneCountInString(catalog.Render(many(n), catalog.Options{Budget: 4_096}))
		whole := utf8.RuneCountInString(catalog.Render(many(n), catalog.Options{Budget: 1 << 20}))
		if got > 4_096 || got < min(whole, 3_000) {
			t.Errorf("Render of %d skills has %d characters of 4096", n, got)
		}
	}
}

func BenchmarkRender(b *testing.B) {
	for _, n := range []int{10, 200, 10_000} {
		all := many(n)
		slices.SortFunc(all, func(a, b *skills.Skill) int { return strings.Compare(a.Path, b.Path) })
		for name, opts := range map[string]catalog.Options{
			"text": {Budget: 4_096}, "xml": {Budget: 4_096, Format: catalog.FormatXML}, "whole": {Budget: 1 << 20},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					catalog.Render(all, opts)
				}
			})
		}
	}
}
