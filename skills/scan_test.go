package skills_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

func document(name, description string) string {
	return "---\nname: " + name + "\ndescription: " + description + "\n---\nBody of " + name + ".\n"
}

// writeTree makes files, links ("-> target") and directories ("/") below a directory.
func writeTree(tb testing.TB, dir string, tree map[string]string) {
	tb.Helper()
	for name, content := range tree {
		file := filepath.Join(dir, filepath.FromSlash(name))
		target, isLink := strings.CutPrefix(content, "-> ")
		switch {
		case isLink:
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				tb.Fatal(err)
			}
			if err := os.Symlink(target, file); err != nil {
				tb.Fatal(err)
			}
		case content == "/":
			if err := os.MkdirAll(file, 0o755); err != nil {
				tb.Fatal(err)
			}
		default:
			writeFile(tb, file, content)
		}
	}
}

func scan(tb testing.TB, opts *skills.ScanOptions, roots ...skills.Root) *skills.Snapshot {
	tb.Helper()
	snapshot, err := skills.Scan(context.Background(), roots, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return snapshot
}

func paths(all []*skills.Skill) []string {
	out := []string{}
	for _, sk := range all {
		out = append(out, sk.Path)
	}
	return out
}

// codes are "code path" of diagnostics.
func codes(diagnostics []skills.Diagnostic) []string {
	out := []string{}
	for _, d := range diagnostics {
		out = append(out, strings.TrimSpace(string(d.Code)+" "+d.Path))
	}
	slices.Sort(out)
	return out
}

func TestScanFinds(t *testing.T) {
	t.Parallel()
	good := document
	tests := []struct {
		name        string
		tree        map[string]string
		prefix      string
		opts        *skills.ScanOptions
		want        []string
		diagnostics []string
	}{
		{name: "empty root", tree: map[string]string{"x": "/"}},
		{name: "one", tree: map[string]string{"pdf/SKILL.md": good("pdf", "d")}, want: []string{"pdf"}},
		{name: "below directories", tree: map[string]string{"a/b/pdf/SKILL.md": good("pdf", "d")}, want: []string{"a/b/pdf"}},
		{name: "prefix", prefix: "acme/x", tree: map[string]string{"pdf/SKILL.md": good("pdf", "d")}, want: []string{"acme/x/pdf"}},
		{name: "lower case", tree: map[string]string{"pdf/skill.md": good("pdf", "d")}, want: []string{"pdf"}},
		{name: "nested", tree: map[string]string{"a/SKILL.md": good("a", "d"), "a/sub/b/SKILL.md": good("b", "d"), "a/sub/b/c/skill.md": good("c", "d")},
			want: []string{"a", "a/sub/b", "a/sub/b/c"}},
		{name: "skipped names", tree: map[string]string{"node_modules/a/SKILL.md": good("a", "d"), "a/.git/b/SKILL.md": good("b", "d"), "a/SKILL.md": good("a", "d"),
			".hub/c/SKILL.md": good("c", "d"), "old~/SKILL.md": good("old", "d"), "#x#/SKILL.md": good("x", "d"), ".a.swp/SKILL.md": good("a", "d")}, want: []string{"a"}},
		{name: "files of a skill", tree: map[string]string{"app/SKILL.md": good("app", "d"),
			"app/node_modules/t/SKILL.md": good("t", "d"), "app/vendor/x/SKILL.md": good("x", "d"), "app/.venv/lib/python3/site-packages/p/SKILL.md": good("p", "d"),
			"app/sub/venv/q/SKILL.md": good("q", "d"), "app/dist/app/SKILL.md": good("app", "d"), "app/build/y/SKILL.md": good("y", "d"), "app/target/y/SKILL.md": good("y", "d"),
			"app/assets/template/SKILL.md": good("x", "d"), "app/templates/new/SKILL.md": "---\nname: [\n", "app/examples/demo/SKILL.md": good("demo", "d"),
			"app/references/sample/SKILL.md": good("sample", "d"), "app/tests/fixtures/bad/SKILL.md": "---\n", "app/sub/SKILL.md": good("sub", "d"), "app/sub/test/x/SKILL.md": good("x", "d"),
			"app/example/SKILL.md": good("example", "d")}, want: []string{"app", "app/sub"}},
		{name: "the same names outside of skills", tree: map[string]string{"examples/a/SKILL.md": good("a", "d"), "dist/b/SKILL.md": good("b", "d"), "tests/SKILL.md": good("tests", "d"),
			".venv/lib/c/SKILL.md": good("c", "d"), "venv/c/SKILL.md": good("c", "d"), "lib/site-packages/c/SKILL.md": good("c", "d")}, want: []string{"dist/b", "examples/a", "tests"}},
		{name: "of a code host", tree: map[string]string{".github/skills/a/SKILL.md": good("a", "d"), ".github/plugins/p/skills/b/SKILL.md": good("b", "d"), ".github/plugin/c/SKILL.md": good("c", "d"),
			".github/workflows/d/SKILL.md": good("d", "d"), ".github/SKILL.md": good("e", "d"), "s/SKILL.md": good("s", "d"), "s/.github/skills/f/SKILL.md": good("f", "d")},
			want: []string{".github/plugin/c", ".github/plugins/p/skills/b", ".github/skills/a", "s"}},
		{name: "hidden directories are searched", tree: map[string]string{".claude/skills/a/SKILL.md": good("a", "d")}, want: []string{".claude/skills/a"}},
		{name: "broken beside good", tree: map[string]string{"a/SKILL.md": good("a", "d"), "b/SKILL.md": "---\nname: {\n---\nx\n", "c/SKILL.md": "---\nname: c\n---\n# only a heading\n"},
			want: []string{"a"}, diagnostics: []string{"invalid-frontmatter b/SKILL.md", "missing-description c/SKILL.md"}},
		{name: "broken skill keeps nested ones", tree: map[string]string{"a/SKILL.md": "---\n{{},<<}\n---\n", "a/b/SKILL.md": good("b", "d")},
			want: []string{"a/b"}, diagnostics: []string{"invalid-frontmatter a/SKILL.md"}},
		{name: "SKILL.md is a directory", tree: map[string]string{"a/SKILL.md": "/", "a/skill.md": good("a", "d"), "b/SKILL.md/x": "y", "b/c/SKILL.md": good("c", "d")},
			want: []string{"a", "b/c"}, diagnostics: []string{"unreadable-skill a/SKILL.md", "unreadable-skill b/SKILL.md"}},
		{name: "depth", opts: &skills.ScanOptions{MaxDepth: 2}, tree: map[string]string{"1/2/SKILL.md": good("2", "d"), "1/x/3/SKILL.md": good("3", "d"), "1/2/n/SKILL.md": good("n", "d")},
			want: []string{"1/2"}, diagnostics: []string{"max-depth-exceeded 1/x/3"}},
		{name: "directories", opts: &skills.ScanOptions{MaxDirs: 3}, tree: map[string]string{"a/SKILL.md": good("a", "d"), "b/SKILL.md": good("b", "d"), "c/SKILL.md": good("c", "d")},
			want: []string{"a", "b"}, diagnostics: []string{"scan-limit-exceeded DIR"}},
		{name: "directories in skills are free", opts: &skills.ScanOptions{MaxDirs: 2}, tree: map[string]string{"a/SKILL.md": good("a", "d"), "a/1/x": "", "a/2/x": "", "a/3/n/SKILL.md": good("n", "d")},
			want: []string{"a", "a/3/n"}},
		{name: "too large", tree: map[string]string{"a/SKILL.md": good("a", "d") + strings.Repeat("x", skills.MaxSkillFile)}, diagnostics: []string{"scan-limit-exceeded a/SKILL.md"}},
		{name: "not text", tree: map[string]string{"a/SKILL.md": good("a", "d\x00"), "b/SKILL.md": good("b", "\xff")},
			diagnostics: []string{"invalid-encoding a/SKILL.md", "invalid-encoding b/SKILL.md"}},
		{name: "equal names", tree: map[string]string{"x/pdf/SKILL.md": good("pdf", "d"), "y/pdf/SKILL.md": good("pdf", "d")}, want: []string{"x/pdf", "y/pdf"},
			diagnostics: []string{"duplicate-skill-name x/pdf"}},
		{name: "name that no path can hold", tree: map[string]string{"a\nb/SKILL.md": good("a", "d"), `c\d/SKILL.md`: good("c", "d")}, diagnostics: []string{"invalid-path", "invalid-path"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeTree(t, dir, test.tree)
			snapshot := scan(t, test.opts, skills.Root{Dir: dir, Prefix: test.prefix, Tier: skills.TierUser})
			if diff := cmp.Diff(append([]string{}, test.want...), paths(snapshot.Skills)); diff != "" {
				t.Errorf("skills (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]string{}, test.diagnostics...), below(dir, codes(snapshot.Diagnostics))); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScanSkill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content := document("pdf", "Reads PDF files")
	writeTree(t, dir, map[string]string{"a/pdf/SKILL.md": content})
	sk := scan(t, nil, skills.Root{Dir: dir, Prefix: "acme", Tier: skills.TierOrg}).Skills[0]
	if sk.Path != "acme/a/pdf" || sk.Dir != "a/pdf" || sk.File != "SKILL.md" || sk.Name() != "pdf" || sk.Description() != "Reads PDF files" {
		t.Errorf("skill = %q %q %q %q %q", sk.Path, sk.Dir, sk.File, sk.Name(), sk.Description())
	}
	if sk.Digest != digest.FromString(content) || sk.Size != int64(len(content)) {
		t.Errorf("digest %s of %d bytes, want that of the %d raw bytes", sk.Digest, sk.Size, len(content))
	}
	if sk.Root.Tier != skills.TierOrg || time.Since(sk.LastModified) > time.Hour {
		t.Errorf("tier %s, modified %s", sk.Root.Tier, sk.LastModified)
	}
	if want := (skills.Form{Strict: true, Publishable: true}); sk.Form != want || len(sk.Diagnostics) != 0 {
		t.Errorf("form %+v, diagnostics %v; want %+v and none", sk.Form, sk.Diagnostics, want)
	}
}

func TestScanRootIsSkill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pdf")
	writeTree(t, dir, map[string]string{"SKILL.md": document("pdf", "d"), "sub/x/SKILL.md": document("x", "d")})
	for _, test := range []struct {
		prefix string
		want   []string
	}{{"", []string{"pdf", "pdf/sub/x"}}, {"acme", []string{"acme/pdf", "acme/pdf/sub/x"}}} {
		snapshot := scan(t, nil, skills.Root{Dir: dir, Prefix: test.prefix})
		if diff := cmp.Diff(test.want, paths(snapshot.Skills)); diff != "" {
			t.Errorf("prefix %q (-want +got):\n%s", test.prefix, diff)
		}
		if sk := snapshot.Skills[0]; sk.Dir != "." || !sk.Form.Publishable {
			t.Errorf("dir %q, form %+v", sk.Dir, sk.Form)
		}
	}
}

func TestScanFS(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{
		"pdf/SKILL.md":         {Data: []byte(document("pdf", "d"))},
		"pdf/scripts/x.sh":     {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"pdf/sub/n/SKILL.md":   {Data: []byte(document("n", "d"))},
		"node_modules/x/z.txt": {},
	}
	root := skills.Root{Dir: "builtin", FS: fsys, Tier: skills.TierBuiltin}
	registry := skills.NewRegistry([]skills.Root{root}, nil)
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	snapshot := registry.Snapshot()
	if diff := cmp.Diff([]string{"pdf", "pdf/sub/n"}, paths(snapshot.Skills)); diff != "" {
		t.Fatalf("skills (-want +got):\n%s", diff)
	}
	index, err := snapshot.Skills[0].Index(t.Context())
	if err != nil || len(index.Resources) != 2 || index.Resources[0].Script == nil {
		t.Fatalf("Index = %+v, %v", index, err)
	}
	content, err := snapshot.Skills[0].Read(t.Context(), "scripts/x.sh", 100)
	if err != nil || !content.Matches || string(content.Data) != "#!/bin/sh\n" {
		t.Errorf("Read = %+v, %v", content, err)
	}
	if _, err := registry.RescanSkill(t.Context(), snapshot.Skills[0]); err != nil {
		t.Errorf("RescanSkill: %v", err)
	}
}

func TestScanMissingRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"a/SKILL.md": document("a", "d"), "file": ""})
	missing := filepath.Join(dir, "missing")
	roots := []skills.Root{{Dir: missing}, {Dir: filepath.Join(dir, "file")}, {Dir: dir}}
	snapshot := scan(t, nil, roots...)
	if diff := cmp.Diff([]string{"a"}, paths(snapshot.Skills)); diff != "" {
		t.Errorf("skills (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"unreadable-root " + filepath.Join(dir, "file"), "unreadable-root " + missing}, codes(snapshot.Diagnostics)); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	if _, err := skills.Scan(t.Context(), roots, &skills.ScanOptions{StrictRoots: true}); !errors.Is(err, skills.ErrNotFound) {
		t.Errorf("strict Scan = %v, want ErrNotFound", err)
	}
}

func TestScanCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := skills.Scan(ctx, []skills.Root{{Dir: t.TempDir()}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Scan = %v, want context.Canceled", err)
	}
}

func TestScanIsDeterministic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := map[string]string{}
	for _, name := range strings.Fields("a b c d e f g h i j k l m n o p") {
		tree[name+"/x/SKILL.md"] = document("x", "d")
		tree[name+"/bad/SKILL.md"] = "---\nname: [\n---\n"
		tree["links/"+name] = "-> ../" + name
	}
	writeTree(t, dir, tree)
	first := scan(t, nil, skills.Root{Dir: dir})
	for range 10 {
		again := scan(t, nil, skills.Root{Dir: dir})
		if !slices.Equal(paths(first.Skills), paths(again.Skills)) || !slices.Equal(first.Diagnostics, again.Diagnostics) {
			t.Fatal("two scans of one tree differ")
		}
	}
}

// below writes DIR for the directory that was scanned.
func below(dir string, texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = strings.ReplaceAll(text, dir, "DIR")
	}
	return out
}
