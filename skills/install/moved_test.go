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
		"less than most": {
			before: map[string]string{"north": service("north", strings.Repeat(own, 3))},
			after:  map[string]string{"alpha": service("alpha", strings.Repeat("It is about another thing: the weather of today.\n", 4))},
			want:   map[string]string{"north": ""}},
		"clearly the nearest": {
			before: map[string]string{"north": service("north", own)},
			after:  map[string]string{"alpha": service("alpha", own), "beta": service("beta", own[:30])},
			want:   map[string]string{"north": "alpha"}},
		"not clearly the nearest": {
			before: map[string]string{"north": service("north", own)},
			after:  map[string]string{"alpha": service("alpha", own), "beta": service("beta", own+"Ask.\n")},
			want:   map[string]string{"north": ""}},
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
		plan, err := i.Update(t.Context(), nil, Moves{Follow: true}, Access{})
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

// Two skills that may both be one other skill are named and not pruned; a skill that is like none is pruned.
func TestTieIsNotPruned(t *testing.T) {
	m := newMachine(t)
	dir := write(t, t.TempDir(), map[string]string{
		"src/north/SKILL.md": service("north", ""), "src/south/SKILL.md": service("south", ""),
		"src/west/SKILL.md": skillText("west"), "other/SKILL.md": skillText("other")})
	m.install(Request{Source: dir, All: true})
	for _, at := range []string{"north", "south", "west"} {
		if err := os.RemoveAll(filepath.Join(dir, "src", at)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, map[string]string{"src/alpha/SKILL.md": service("alpha", "")})
	i := m.open()
	plan, err := i.Update(t.Context(), nil, Moves{Follow: true, Prune: true}, Access{})
	if err = carryOut(t.Context(), plan, err); err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, r := range plan.Refused {
		reasons = append(reasons, r.Reason)
	}
	const want = "the source no longer has it at %q; one of src/north, src/south may be \"src/alpha\" now: " +
		"install that if you want it, and `skillsd remove` this one"
	if !slices.Equal(reasons, []string{fmt.Sprintf(want, "src/north"), fmt.Sprintf(want, "src/south")}) {
		t.Errorf("refused: %q", reasons)
	}
	if l := i.Lock(); l.Find("north") == nil || l.Find("south") == nil || l.Find("west") != nil {
		t.Errorf("%d skills are left", len(l.Skills))
	}
}

// A skill of a plugin that was renamed is found in another part of a branch, with the files of its plugin, and
// another machine gets it by the lock file.
func TestRenamedOnBranch(t *testing.T) {
	const own = "Read ${CLAUDE_PLUGIN_ROOT}/docs/a.md first.\n"
	r := newRepo(t)
	r.commit(map[string]string{"README.md": "Nothing is on this branch.\n"})
	r.run("checkout", "--quiet", "-b", "side")
	r.commit(map[string]string{"p/.claude-plugin/plugin.json": `{"name": "p"}`, "p/docs/a.md": "A.\n",
		"p/skills/report/SKILL.md": service("report", own), "p/skills/other/SKILL.md": skillText("other")})
	m := newMachine(t).withGit(r)
	m.install(Request{Source: r.url, Ref: "side", Subdir: "p/skills/report"})
	r.run("rm", "-r", "--quiet", "p/skills/report")
	r.commit(map[string]string{"p/skills/summary/SKILL.md": service("summary", own)})
	r.run("checkout", "--quiet", "main")
	i := m.open()
	for _, follow := range []bool{false, true} {
		plan, err := i.Update(t.Context(), nil, Moves{Follow: follow, Prune: true}, Access{})
		if err = carryOut(t.Context(), plan, err); err != nil {
			t.Fatal(err)
		}
		isRefused := len(plan.Refused) == 1 &&
			strings.Contains(plan.Refused[0].Reason, `it may be "p/skills/summary" now`)
		if isRefused == follow {
			t.Errorf("follow %v: refused %+v", follow, plan.Refused)
		}
	}
	e := i.Lock().Find("p/report")
	if e == nil || e.Origin.Path != "p/skills/summary" || e.Origin.Subdir != "p/skills/summary" ||
		e.Origin.Ref != "side" || e.Plugin.String() != "p" || len(e.Taken) != 2 {
		t.Fatalf("entry = %+v", e)
	}
	verified(t, i)
	second := newMachine(t).withGit(r).open()
	if _, err := synced(t.Context(), second, Sync{Lock: i.Lock()}); err != nil {
		t.Error(err)
	}
	if got := second.Lock().Find("p/report"); got == nil || got.Tree != e.Tree {
		t.Errorf("on another machine: %+v", got)
	}
}

// The template of many skills is compared once for a pair of them, not each of its lines.
func TestLikenessOfTemplate(t *testing.T) {
	const number = 200
	l := newLikeness(nil)
	for n := range number {
		text := fmt.Sprintf("name: s%d\nDoes %d.\n", n, n)
		for line := range 60 {
			text += fmt.Sprintf("Step %d.\n", line)
		}
		if err := l.add([]store.File{{Path: "SKILL.md", Size: int64(len(text)), Digest: digest.FromString(text)}},
			func(store.File) ([]byte, error) { return []byte(text), nil }); err != nil {
			t.Fatal(err)
		}
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

// The steps of all comparisons of a source have one limit.
func TestLikenessSteps(t *testing.T) {
	file := store.File{Path: "data/table", Size: maxLined + 1, Digest: digest.FromString("x")}
	stored := &store.Tree{Files: []store.File{file}}
	l := newLikeness(nil)
	for range 2 {
		if err := l.add([]store.File{file}, func(store.File) ([]byte, error) { return nil, errWhole }); err != nil {
			t.Fatal(err)
		}
	}
	l.steps = maxSteps - 4 // a search has one step for each of the two skills
	for n := range 3 {
		got, err := l.nearest(stored, nil)
		if n < 2 && (err != nil || got.best != 1 || got.next != 1) || n == 2 && err != errTooMuch {
			t.Errorf("search %d: %+v, %v", n, got, err)
		}
	}
}

// A source with too much is not compared, and its skills are not taken for removed ones.
func TestLikenessLimit(t *testing.T) {
	l := newLikeness(nil)
	l.total = maxParts
	err := l.add([]store.File{{Path: "SKILL.md"}}, func(store.File) ([]byte, error) { return []byte("a\n"), nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.nearest(&store.Tree{}, nil); err != errTooMuch {
		t.Errorf("error = %v", err)
	}
}

// rules are lines of a skill.
func rules(about string, changed ...int) (text string) {
	for n := range 40 {
		if slices.Contains(changed, n) {
			text += "Now "
		}
		text += fmt.Sprintf("Rule %d is about %s.\n", n, about)
	}
	return text
}

// A skill that may be one of several now, or a part or the whole of another one, is not pruned: what it may be
// is named. A skill that has all lines of its files elsewhere is found there.
func TestEitherIsNotPruned(t *testing.T) {
	head := func(name string) string { return "---\nname: " + name + "\ndescription: Does it.\n---\n" }
	const either = `; it may be %s now: install `
	cases := `{"skill": "%s", "cases": [` + strings.Repeat("\n  {\"ask\": \"the first\"},", 60) + "\n]}\n"
	for name, test := range map[string]struct{ before, after, want map[string]string }{
		"one name": {
			map[string]string{"a": head("a") + rules("x")},
			map[string]string{"p/a": head("a") + rules("x", 1), "q/a": head("a") + rules("x", 2)},
			map[string]string{"a": `"src/p/a" or "src/q/a"`}},
		"one name, and another text": {
			map[string]string{"a": head("a") + rules("x")},
			map[string]string{"p/a": head("a") + rules("y"), "q/a": head("a") + rules("z")},
			map[string]string{"a": `"src/p/a" or "src/q/a"`}},
		"versions": {
			map[string]string{"a": head("a") + rules("x")},
			map[string]string{"a1": head("a1") + rules("x", 1), "a2": head("a2") + rules("x", 1, 2)},
			map[string]string{"a": `"src/a1" or "src/a2"`}},
		"split": {
			map[string]string{"a": head("a") + rules("x") + rules("y")},
			map[string]string{"b": head("b") + rules("x"), "c": head("c") + rules("y")},
			map[string]string{"a": `"src/b" or "src/c"`}},
		"merged": {
			map[string]string{"a": head("a") + rules("x"), "b": head("b") + rules("y")},
			map[string]string{"c": head("c") + rules("x") + rules("y")},
			map[string]string{"a": `"src/c"`, "b": `"src/c"`}},
		"one level down": {
			map[string]string{"a": head("a") + rules("x")},
			map[string]string{"a/b": head("b") + rules("y")},
			map[string]string{"a": `"src/a/b"`}},
		"one level down, and nearly the same": {
			map[string]string{"a": head("a") + rules("x")},
			map[string]string{"a/b": head("b") + rules("x", 1)},
			map[string]string{"a": "which is nearly the same"}},
		"gone": {
			map[string]string{"a": head("a") + rules("x")}, map[string]string{"b": head("b") + rules("y")},
			map[string]string{"a": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := func(all map[string]string) map[string]string {
				made := map[string]string{"other/SKILL.md": skillText("other")}
				for at, text := range all {
					made["src/"+at+"/SKILL.md"] = text
					made["src/"+at+"/evals/evals.json"] = fmt.Sprintf(cases, at)
					if test.want["a"] != "which is nearly the same" {
						delete(made, "src/"+at+"/evals/evals.json")
					}
				}
				return made
			}
			dir := write(t, t.TempDir(), files(test.before))
			m := newMachine(t)
			m.install(Request{Source: dir, All: true})
			if err := os.RemoveAll(filepath.Join(dir, "src")); err != nil {
				t.Fatal(err)
			}
			write(t, dir, files(test.after))
			i := m.open()
			plan, err := i.Update(t.Context(), nil, Moves{Prune: true}, Access{})
			if err = carryOut(t.Context(), plan, err); err != nil {
				t.Fatal(err)
			}
			for at, want := range test.want {
				var reasons []string
				for _, r := range plan.Refused {
					if r.Name == at {
						reasons = append(reasons, r.Reason)
					}
				}
				if isKept := i.Lock().Find(at) != nil; isKept != (want != "") ||
					isKept != (len(reasons) == 1) || isKept && (!strings.Contains(reasons[0], want) ||
					strings.HasPrefix(want, `"`) && !strings.Contains(reasons[0], fmt.Sprintf(either, want))) {
					t.Errorf("%s: kept %v, %q, want %q", at, isKept, reasons, want)
				}
			}
		})
	}
}
