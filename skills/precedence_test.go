package skills_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
)

func TestPrecedence(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, name := range []string{"one", "two"} {
		writeTree(t, base, map[string]string{name + "/pdf/SKILL.md": document("pdf", "from "+name)})
	}
	one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
	tests := []struct {
		name        string
		roots       []skills.Root
		allowShadow bool
		want        string
	}{
		{"earlier root", []skills.Root{{Dir: one, Tier: skills.TierUser}, {Dir: two, Tier: skills.TierUser}}, false, "from one"},
		{"earlier, more trusted", []skills.Root{{Dir: one, Tier: skills.TierOrg}, {Dir: two, Tier: skills.TierUser}}, false, "from one"},
		{"earlier, less trusted", []skills.Root{{Dir: one, Tier: skills.TierThirdParty}, {Dir: two, Tier: skills.TierOrg}}, false, "from two"},
		{"earlier, less trusted, allowed", []skills.Root{{Dir: one, Tier: skills.TierThirdParty}, {Dir: two, Tier: skills.TierOrg}}, true, "from one"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			snapshot := scan(t, &skills.ScanOptions{AllowShadow: test.allowShadow}, test.roots...)
			if len(snapshot.Skills) != 1 || snapshot.Skills[0].Description() != test.want {
				t.Errorf("served %q of %d skills, want %q", snapshot.Skills[0].Description(), len(snapshot.Skills), test.want)
			}
			if len(snapshot.Shadowed) != 1 || snapshot.Shadowed[0].Description() == test.want {
				t.Errorf("shadowed %v", paths(snapshot.Shadowed))
			}
			if diff := cmp.Diff([]string{"shadowed pdf"}, codes(snapshot.Diagnostics)); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
		})
	}
}

// A trusted skill that cannot be loaded keeps its path from less trusted ones, not from equals.
func TestBrokenSkillHoldsItsPath(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{"one/pdf/SKILL.md": "---\nname: \"pdf\n---\n", "two/pdf/SKILL.md": document("pdf", "from two")})
	one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
	for _, test := range []struct {
		roots       []skills.Root
		allowShadow bool
		served      int
	}{
		{[]skills.Root{{Dir: one, Tier: skills.TierOrg}, {Dir: two, Tier: skills.TierThirdParty}}, false, 0},
		{[]skills.Root{{Dir: two, Tier: skills.TierThirdParty}, {Dir: one, Tier: skills.TierOrg}}, false, 0},
		{[]skills.Root{{Dir: one, Tier: skills.TierOrg}, {Dir: two, Tier: skills.TierThirdParty}}, true, 1},
		{[]skills.Root{{Dir: one, Tier: skills.TierUser}, {Dir: two, Tier: skills.TierUser}}, false, 1},
		{[]skills.Root{{Dir: one, Tier: skills.TierUser}, {Dir: two, Tier: skills.TierBuiltin}}, false, 1},
	} {
		snapshot := scan(t, &skills.ScanOptions{AllowShadow: test.allowShadow}, test.roots...)
		if len(snapshot.Skills) != test.served || len(snapshot.Shadowed) != 1-test.served {
			t.Errorf("%v: served %v, shadowed %v", test.roots, paths(snapshot.Skills), paths(snapshot.Shadowed))
		}
	}
}

// A skill of another root must not answer for URIs that are those of a skill's files.
func TestPrecedenceBelow(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{
		"org/outer/SKILL.md": document("outer", "d"), "org/outer/references/x.md": "real", "org/outer/more/own/SKILL.md": document("own", "d"),
		"low/outer/references/SKILL.md": document("references", "intruder"), "low/outer/references/x.md": "forged",
	})
	org := skills.Root{Dir: filepath.Join(base, "org"), Tier: skills.TierOrg}
	low := skills.Root{Dir: filepath.Join(base, "low"), Tier: skills.TierThirdParty}
	for _, test := range []struct {
		name  string
		roots []skills.Root
		opts  skills.ScanOptions
		want  string
	}{
		{"less trusted", []skills.Root{org, low}, skills.ScanOptions{}, "outer"},
		{"less trusted, earlier", []skills.Root{low, org}, skills.ScanOptions{}, "outer"},
		{"less trusted, earlier, allowed", []skills.Root{low, org}, skills.ScanOptions{AllowShadow: true}, "outer/references"},
	} {
		snapshot := scan(t, &test.opts, test.roots...)
		sk, _, err := snapshot.Resolve("skill://outer/references/x.md")
		if err != nil || sk.Path != test.want {
			t.Errorf("%s: Resolve = %v, %v; want %s", test.name, sk, err, test.want)
		}
		if own := snapshot.Skill("outer/more/own"); test.want == "outer" && (own == nil || own.Root.Tier != skills.TierOrg) {
			t.Errorf("%s: the skill that is nested is gone", test.name)
		}
		if len(snapshot.Shadowed) == 0 {
			t.Errorf("%s: nothing is shadowed", test.name)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		tree        map[string]string
		allow       []string // below the base
		roots       []string
		want        []string // "path dir description" of skills
		diagnostics []string
	}{
		{name: "to a sibling in the root", roots: []string{"r"}, tree: map[string]string{"r/a/SKILL.md": document("a", "d"), "r/b": "-> a"}, want: []string{"a a d"}},
		{name: "real directory wins over an earlier root's link", roots: []string{"r", "s"}, tree: map[string]string{"s/a/SKILL.md": document("a", "d"), "r/a": "-> ../s/a"}, want: []string{"a a d"}},
		{name: "out of every root", roots: []string{"r"}, tree: map[string]string{"s/a/SKILL.md": document("a", "d"), "r/a": "-> ../s/a", "r/b/SKILL.md": document("b", "d")},
			want: []string{"b b d"}, diagnostics: []string{"skill-scan-outside-root a"}},
		{name: "into an allowed root", roots: []string{"r"}, allow: []string{"s"}, tree: map[string]string{"s/a/SKILL.md": document("a", "d"), "r/x/a": "-> ../../s/a"}, want: []string{"x/a x/a d"}},
		{name: "allowed root beside", roots: []string{"r"}, allow: []string{"s"}, tree: map[string]string{"s2/a/SKILL.md": document("a", "d"), "s/x": "", "r/a": "-> ../s2/a"},
			diagnostics: []string{"skill-scan-outside-root a"}},
		{name: "loop", roots: []string{"r"}, tree: map[string]string{"r/a/SKILL.md": document("a", "d"), "r/loop": "-> .", "r/d/up": "-> ..", "r/self": "-> self"},
			want: []string{"a a d"}, diagnostics: []string{"unreadable-directory self"}},
		{name: "loop through an allowed root", roots: []string{"r"}, allow: []string{"s"}, tree: map[string]string{"s/a/SKILL.md": document("a", "d"), "s/back": "-> ../r", "s/again": "-> .", "r/s": "-> ../s"},
			want: []string{"s/a s/a d"}},
		{name: "dangling", roots: []string{"r"}, tree: map[string]string{"r/a": "-> nowhere"}, diagnostics: []string{"unreadable-directory a"}},
		{name: "to a file", roots: []string{"r"}, tree: map[string]string{"r/file": "x", "r/l": "-> file"}},
		{name: "SKILL.md within the skill", roots: []string{"r"}, tree: map[string]string{"r/a/docs/main.md": document("a", "d"), "r/a/SKILL.md": "-> docs/main.md"}, want: []string{"a a d"}},
		{name: "SKILL.md out of the skill", roots: []string{"r"}, tree: map[string]string{"r/main.md": document("a", "d"), "r/a/SKILL.md": "-> ../main.md"}, diagnostics: []string{"skill-scan-outside-root a/SKILL.md"}},
		{name: "SKILL.md is /etc/passwd", roots: []string{"r"}, tree: map[string]string{"r/a/SKILL.md": "-> /etc/passwd"}, diagnostics: []string{"skill-scan-outside-root a/SKILL.md"}},
		{name: "links in a skill are no way to skills", roots: []string{"r"}, tree: map[string]string{"s/b/SKILL.md": document("b", "d"), "r/a/SKILL.md": document("a", "d"), "r/a/b": "-> ../../s/b"}, want: []string{"a a d"}},
		{name: "a root twice", roots: []string{"r", "l"}, tree: map[string]string{"r/a/SKILL.md": document("a", "d"), "l": "-> r"}, want: []string{"a a d"}},
		{name: "a root in another", roots: []string{"r", "r/x"}, tree: map[string]string{"r/x/a/SKILL.md": document("a", "d")}, want: []string{"x/a x/a d"}},
		{name: "into a skipped directory", roots: []string{"r"}, tree: map[string]string{"r/node_modules/a/SKILL.md": document("a", "d"), "r/a": "-> node_modules/a"}, want: []string{"a a d"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			writeTree(t, base, test.tree)
			opts := &skills.ScanOptions{}
			for _, dir := range test.allow {
				opts.AllowRoots = append(opts.AllowRoots, filepath.Join(base, dir))
			}
			var roots []skills.Root
			for _, dir := range test.roots {
				roots = append(roots, skills.Root{Dir: filepath.Join(base, dir), Tier: skills.TierUser})
			}
			snapshot := scan(t, opts, roots...)
			got := []string{}
			for _, sk := range snapshot.Skills {
				got = append(got, sk.Path+" "+sk.Dir+" "+sk.Description())
				if content, err := sk.Read(t.Context(), sk.File, skills.MaxSkillFile); err != nil || !content.Matches {
					t.Errorf("Read(%s) = %v, %v", sk.Path, content, err)
				}
				if _, err := os.Lstat(filepath.Join(sk.Root.Dir, sk.Dir)); err != nil {
					t.Errorf("the skill's directory: %v", err)
				}
			}
			if diff := cmp.Diff(append([]string{}, test.want...), got); diff != "" {
				t.Errorf("skills (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]string{}, test.diagnostics...), codes(snapshot.Diagnostics)); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
		})
	}
}

// A link in an untrusted root gives neither it nor its target more trust.
func TestLinkKeepsTierOfTarget(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{"third/a/SKILL.md": document("a", "d"), "user/a": "-> ../third/a"})
	snapshot := scan(t, nil, skills.Root{Dir: filepath.Join(base, "user"), Tier: skills.TierUser}, skills.Root{Dir: filepath.Join(base, "third"), Tier: skills.TierThirdParty})
	if len(snapshot.Skills) != 1 || snapshot.Skills[0].Root.Tier != skills.TierThirdParty {
		t.Errorf("tier %s of %d skills, want one of tier third-party", snapshot.Skills[0].Root.Tier, len(snapshot.Skills))
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{
		"org/office/pdf/SKILL.md": document("pdf", "org"), "user/x/pdf/SKILL.md": document("pdf", "user"), "user/y/pdf/SKILL.md": document("pdf", "user"),
		"user/x/csv/SKILL.md": document("csv", "x"), "user/y/csv/SKILL.md": document("csv", "y"),
		"user/solo/SKILL.md": document("other-name", "solo"), "user/taken/SKILL.md": document("csv", "mismatch"),
		"user/shy/SKILL.md": "---\nname: shy\ndescription: d\ndisable-model-invocation: true\n---\n",
	})
	snapshot := scan(t, nil, skills.Root{Dir: filepath.Join(base, "user"), Tier: skills.TierUser}, skills.Root{Dir: filepath.Join(base, "org"), Tier: skills.TierOrg})
	for query, want := range map[string]string{"pdf": "office/pdf", "x/pdf": "x/pdf", "other-name": "solo", "solo": "solo", "shy": "shy", "taken": "taken",
		"x:pdf": "x/pdf", "office:pdf": "office/pdf"} {
		if sk, err := snapshot.Lookup(query); err != nil || sk.Path != want {
			t.Errorf("Lookup(%q) = %v, %v; want %s", query, sk, err, want)
		}
	}
	_, err := snapshot.Lookup("csv")
	if ambiguous, ok := errors.AsType[*skills.AmbiguousError](err); !ok || !cmp.Equal(ambiguous.Paths, []string{"x/csv", "y/csv"}) {
		t.Errorf("Lookup(csv) = %v, want the two paths", err)
	}
	for query, want := range map[string]string{"office/pfd": "office/pdf", "sol": "other-name", "zzzzzz": "", "": ""} {
		_, err := snapshot.Lookup(query)
		missing, ok := errors.AsType[*skills.NotFoundError](err)
		if !ok || query != "sol" && missing.Suggestion != want || missing.Total != 7 || len(missing.Nearest) != 7 {
			t.Errorf("Lookup(%q) = %+v, want the suggestion %q of 7 skills", query, err, want)
		}
	}
}

// A less trusted skill can neither take the name of a more trusted one nor block it, not even with its
// path; as a URI the path is always its own.
func TestNameOfTheMoreTrusted(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{"org/tools/pdf/SKILL.md": document("pdf", "from org"), "other/pdf/SKILL.md": document("pdf", "from another")})
	for _, test := range []struct {
		tier skills.Tier // of the skill whose path is the name
		want string
	}{{skills.TierThirdParty, "tools/pdf"}, {skills.TierOrg, "pdf"}, {skills.TierBuiltin, "pdf"}} {
		snapshot := scan(t, nil, skills.Root{Dir: filepath.Join(base, "org"), Tier: skills.TierOrg}, skills.Root{Dir: filepath.Join(base, "other"), Tier: test.tier})
		sk, err := snapshot.Lookup("pdf")
		if err != nil || sk.Path != test.want {
			t.Errorf("%s: Lookup(pdf) = %v, %v; want %s", test.tier, sk, err, test.want)
		}
		if sk, err := snapshot.Lookup("skill://pdf"); err != nil || sk.Path != "pdf" {
			t.Errorf("%s: Lookup(skill://pdf) = %v, %v", test.tier, sk, err)
		}
		if sk, err := snapshot.Lookup("tools/pdf"); err != nil || sk.Path != "tools/pdf" {
			t.Errorf("%s: Lookup(tools/pdf) = %v, %v", test.tier, sk, err)
		}
		said := slices.ContainsFunc(snapshot.Diagnostics, func(d skills.Diagnostic) bool {
			return d.Code == skills.CodeDuplicateName && d.Severity == skills.Warning && d.Path == "pdf"
		})
		if said != (test.want != "pdf") {
			t.Errorf("%s: diagnostics %v", test.tier, snapshot.Diagnostics)
		}
	}
	var missing *skills.NotFoundError
	if _, err := scan(t, nil, skills.Root{Dir: base}).Lookup("skill://nothing"); !errors.As(err, &missing) {
		t.Errorf("Lookup of a URI of nothing = %v", err)
	}
}

// The diagnostic of a name that several skills have gives paths that mean one of them.
func TestNameOfSeveral(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{"a/pdf/SKILL.md": document("pdf", "one"), "b/pdf/SKILL.md": document("pdf", "two"), "c/pdf/SKILL.md": document("pdf", "three")})
	snapshot := scan(t, nil, skills.Root{Dir: base})
	at := slices.IndexFunc(snapshot.Diagnostics, func(d skills.Diagnostic) bool { return d.Code == skills.CodeDuplicateName })
	if at < 0 || snapshot.Diagnostics[at].Detail != "3 skills have this name; use their paths, such as a/pdf and b/pdf" {
		t.Errorf("diagnostics %v", snapshot.Diagnostics)
	}
}
