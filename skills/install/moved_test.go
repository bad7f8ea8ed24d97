package install

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store"
)

// service is a skill of a template with some lines of its own.
func service(name, own string) string {
	return "---\nname: " + name + "\ndescription: Calls a service.\n---\n" +
		strings.Repeat("Ask for the key of the service before you call it.\n", 4) + own
}

// A place of a source becomes that of one vanished skill at most, the nearest, and of none if another skill is
// installed from it.
func TestOneSuccessor(t *testing.T) {
	const own = "North has its own account, which is not the one of the others.\n"
	for name, test := range map[string]struct {
		before, after map[string]string
		kept          []string // of before
		want          map[string]string
	}{
		"the nearest": {
			before: map[string]string{"north": service("north", own), "south": service("south", own[:20])},
			after:  map[string]string{"alpha": service("alpha", own)},
			want:   map[string]string{"north": "alpha", "south": ""}},
		"two as near": {
			before: map[string]string{"north": service("north", ""), "south": service("south", "")},
			after:  map[string]string{"alpha": service("alpha", "")},
			want:   map[string]string{"north": "", "south": ""}},
		"equal files": {
			before: map[string]string{"a/x": service("x", ""), "b/y": service("x", "")},
			after:  map[string]string{"c/y": service("x", "")},
			want:   map[string]string{"a/x": "", "b/y": "c/y"}},
		"all equal ones": {
			before: map[string]string{"a/x": service("x", ""), "b/y": service("x", "")},
			after:  map[string]string{"c/y": service("x", ""), "c/z": service("x", "")},
			want:   map[string]string{"a/x": "c/z", "b/y": "c/y"}},
		"one name": {
			before: map[string]string{"a/x": service("x", own[:30]), "b/x": service("x", own)},
			after:  map[string]string{"c/x": service("x", own+"\n")},
			want:   map[string]string{"a/x": "", "b/x": "c/x"}},
		"installed": {
			before: map[string]string{"a/x": service("x", ""), "b/x": service("x", "")},
			after:  map[string]string{}, kept: []string{"b/x"},
			want: map[string]string{"a/x": "", "b/x": "b/x"}},
		"installed, with another name": {
			before: map[string]string{"a/x": service("x", own), "b/x": service("x", "")},
			after:  map[string]string{}, kept: []string{"b/x"},
			want: map[string]string{"a/x": "", "b/x": "b/x"}},
	} {
		m := newMachine(t)
		files := map[string]string{}
		for dir, text := range test.before {
			files["src/"+dir+"/SKILL.md"] = text
		}
		dir := write(t, t.TempDir(), files)
		for _, at := range slices.Sorted(maps.Keys(test.before)) {
			req := Request{Source: dir, Skills: []string{"src/" + at}, Name: strings.ReplaceAll(at, "/", "-")}
			m.install(req)
		}
		for at := range test.before {
			if !slices.Contains(test.kept, at) {
				if err := os.RemoveAll(filepath.Join(dir, "src", at)); err != nil {
					t.Fatal(err)
				}
			}
		}
		files = map[string]string{"other/SKILL.md": skillText("other")}
		for at, text := range test.after {
			files["src/"+at+"/SKILL.md"] = text
		}
		write(t, dir, files)
		i := m.open()
		plan, err := i.UpdateMoved(t.Context(), nil, Moves{Follow: true}, Access{})
		if err = carryOut(t.Context(), plan, err); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for at, want := range test.want {
			e := i.Lock().Find(strings.ReplaceAll(at, "/", "-"))
			isRefused := slices.ContainsFunc(plan.Refused, func(r Refusal) bool {
				return r.Before == e && strings.Contains(r.Reason, "the source no longer has it")
			})
			if isRefused != (want == "") || want != "" && e.Origin.Path != "src/"+want {
				t.Errorf("%s: %s is from %q now, refused %v, want %q", name, at, e.Origin.Path, isRefused, want)
			}
		}
	}
}

// The template of many skills is compared once for a pair of them, not each of its lines.
func TestLikenessOfTemplate(t *testing.T) {
	const number = 200
	l := newLikeness()
	for n := range number {
		text := fmt.Sprintf("name: s%d\nDoes %d.\n", n, n)
		for line := range 60 {
			text += fmt.Sprintf("Step %d.\n", line)
		}
		l.add([]store.File{{Path: "SKILL.md", Size: int64(len(text)), Digest: digest.FromString(text)}},
			[]byte(text))
	}
	l.classify()
	steps := 0
	for _, holders := range l.holders {
		steps += len(holders)
	}
	if steps > 2*number {
		t.Errorf("%d skills have %d classes with them", number, steps)
	}
}

// A source with too much is not compared, and its skills are not taken for removed ones.
func TestLikenessLimit(t *testing.T) {
	l := newLikeness()
	l.total = maxParts
	l.add(nil, []byte("a\n"))
	if _, err := l.nearest(&store.Tree{}); err != errTooMuch {
		t.Errorf("error = %v", err)
	}
}
