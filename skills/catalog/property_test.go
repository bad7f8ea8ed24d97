package catalog_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
)

// length is what the budget counts, as a client in JavaScript would.
func length(s string) int { return len(utf16.Encode([]rune(s))) }

// checkRender holds a text to what is promised for all of them and returns it.
func checkRender(t *testing.T, all []*skills.Skill, opts catalog.Options) string {
	t.Helper()
	got := catalog.Render(all, opts)
	if n := length(got); n > max(opts.Budget, 0) {
		t.Fatalf("Render has %d characters, budget %d: %q", n, opts.Budget, got)
	}
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	if other := catalog.Render(reversed, opts); other != got {
		t.Fatalf("Render depends on the order: %q and %q", got, other)
	}
	if opts.Format == catalog.FormatXML {
		checkElements(t, got)
	} else if n := strings.Count(got, "\n"); n > len(all) {
		t.Fatalf("Render of %d skills has %d line breaks: %q", len(all), n, got)
	}
	whole := opts
	whole.Budget = 1 << 30
	if fits := catalog.Fits(all, opts); opts.Budget > 0 && fits != (got == catalog.Render(all, whole)) {
		t.Fatalf("Fits(%d) = %v, and Render = %q", opts.Budget, fits, got)
	}
	return got
}

// checkElements makes sure that no text opens or closes an element.
func checkElements(t *testing.T, text string) {
	t.Helper()
	depth := 0
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		// Characters that XML has no way to write are left as they are.
		if err != nil && strings.Contains(err.Error(), "illegal character code") {
			return
		}
		if err != nil {
			t.Fatalf("not XML: %v in %q", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			depth++
			want := [][]string{1: {"available_skills"}, 2: {"skill", "more"}, 3: {"name", "description", "location"}, 4: nil}[min(depth, 4)]
			if !slices.Contains(want, token.Name.Local) || len(token.Attr) > 0 {
				t.Fatalf("an element %q at depth %d of %q", token.Name.Local, depth, text)
			}
		case xml.EndElement:
			depth--
		case xml.CharData:
		default:
			t.Fatalf("a %T in %q", token, text)
		}
	}
}

// arbitrary makes a catalogue of hostile and ordinary skills.
func arbitrary(random *rand.Rand) []*skills.Skill {
	pieces := []string{"a", "b", "-", "/", "skill", "größe", "技能", "\U0001f4bb", " ", "\n", "\u202e", ": ", ", ", `"`, "<", "&", "word ", "…", "\xff"}
	text := func(most int) string {
		var b strings.Builder
		for range random.IntN(most) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		return b.String()
	}
	var all []*skills.Skill
	for i := range random.IntN(40) {
		path := fmt.Sprintf("%s%d", text(8), i)
		if random.IntN(20) == 0 {
			path += strings.Repeat("long", random.IntN(100))
		}
		all = append(all, skill(path, text(1+random.IntN(120))))
	}
	return all
}

// TestProperties holds the promises for many catalogues, choices and budgets: the budget is kept,
// the order given changes nothing, all names are shown when they fit, and what is shown is whole.
func TestProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range nightly.Size(50, 150) {
		all := arbitrary(random)
		opts := catalog.Options{Budget: random.IntN(3_000), Format: []catalog.Format{catalog.FormatText, catalog.FormatXML}[random.IntN(2)]}
		for _, sk := range all {
			if random.IntN(6) == 0 {
				opts.Pinned = append(opts.Pinned, sk.Path)
			}
			if random.IntN(6) == 0 {
				opts.NameOnly = append(opts.NameOnly, sk.Path)
			}
		}
		if random.IntN(2) == 0 {
			opts.Tail = catalog.SearchTail
		}
		names := namesOf(all, opts)
		for _, budget := range []int{opts.Budget, length(names) - 1, length(names), length(names) + 1, length(names) + 20, length(names) + 500} {
			opts.Budget = budget
			got := checkRender(t, all, opts)
			shown := shownNames(got, opts.Format)
			if want := shownNames(names, opts.Format); budget >= length(names) && !slices.Equal(shown, want) {
				t.Fatalf("names fit %d characters, Render = %q, want all of %q", budget, got, want)
			}
			if budget < length(names) && budget > 60+128 && len(shown) < len(all) && !strings.Contains(got, "more") {
				t.Fatalf("Render leaves names out and does not say so: %q", got)
			}
			known := shownNames(names, opts.Format)
			for _, name := range shown {
				if !slices.Contains(known, name) {
					t.Fatalf("Render shows %q, which is no whole name, in %q", name, got)
				}
			}
		}
	}
}

// namesOf is the text of all names without a description.
func namesOf(all []*skills.Skill, opts catalog.Options) string {
	opts.Budget, opts.NameOnly = 1<<30, nil
	for _, sk := range all {
		opts.NameOnly = append(opts.NameOnly, sk.Path)
	}
	return catalog.Render(all, opts)
}

// shownNames are the names a text shows, in order.
func shownNames(text string, format catalog.Format) []string {
	var names []string
	if format == catalog.FormatXML {
		for part := range strings.SplitSeq(text, "<skill>\n<name>\n") {
			if name, _, ok := strings.Cut(part, "\n</name>"); ok {
				names = append(names, name)
			}
		}
		return names
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, `"`) {
			name := line[:1+quoteEnd(line[1:])]
			names = append(names, name)
		} else if name, _, _ := strings.Cut(line, ":"); name != "" && !strings.Contains(name, " more") {
			names = append(names, name)
		}
	}
	return names
}

// quoteEnd is the length of what stands before the end of a quoted text, the quote included.
func quoteEnd(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// TestCallsAgree proves that nothing but the arguments decides the text.
func TestCallsAgree(t *testing.T) {
	all := many(300)
	opts := catalog.Options{Budget: 4_096, Pinned: []string{"team-0/skill-00009"}, Tail: catalog.SearchTail}
	first := catalog.Render(all, opts)
	random := rand.New(rand.NewPCG(7, 8))
	for range 10 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := catalog.Render(all, opts); got != first {
			t.Fatalf("Render = %q, then %q", first, got)
		}
	}
	same := []*skills.Skill{skill("a", "One."), skill("a", "Two.")}
	if a, b := catalog.Render(same, opts), catalog.Render([]*skills.Skill{same[1], same[0]}, opts); a != b {
		t.Errorf("Render of skills of one path = %q and %q", a, b)
	}
}
