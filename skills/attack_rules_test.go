package skills_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
)

// TestProjectLinks scans the directories that clients use, full of links to a folder beside them.
func TestProjectLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: symbolic links without privilege")
	}
	t.Parallel()
	project := t.TempDir()
	tree := map[string]string{".claude/skills/own/SKILL.md": document("own", "d"), ".agents/skills/all": "-> ../../skills", "elsewhere/x/SKILL.md": document("x", "d"), "skills/out": "-> ../elsewhere/x"}
	for i := range 5 {
		name := fmt.Sprintf("s%d", i)
		tree["skills/"+name+"/SKILL.md"] = document(name, "d")
		tree["skills/"+name+"/references/r.md"] = "x"
		tree[".claude/skills/"+name] = "-> ../../skills/" + name
		tree[".agents/skills/"+name] = "-> ../../skills/" + name
	}
	writeTree(t, project, tree)
	claude := skills.Root{Dir: filepath.Join(project, ".claude", "skills"), Tier: skills.TierThirdParty}
	agents := skills.Root{Dir: filepath.Join(project, ".agents", "skills"), Prefix: "agents", Tier: skills.TierThirdParty}

	t.Run("allowed", func(t *testing.T) {
		opts := &skills.ScanOptions{AllowRoots: []string{filepath.Join(project, "skills")}}
		snapshot := scan(t, opts, claude, agents)
		if diff := cmp.Diff([]string{"own", "s0", "s1", "s2", "s3", "s4"}, paths(snapshot.Skills)); diff != "" {
			t.Errorf("skills (-want +got):\n%s", diff)
		}
		// What the allowed root itself links to is as far out as anything.
		if diff := cmp.Diff([]string{"skill-scan-outside-root agents/all/out"}, codes(snapshot.Diagnostics)); diff != "" {
			t.Errorf("diagnostics (-want +got):\n%s", diff)
		}
		for _, sk := range snapshot.Skills[1:] {
			if x := index(t, sk); len(x.Files) != 2 || sk.Root.Tier != skills.TierThirdParty || !sk.Form.Publishable {
				t.Errorf("%s: %d files, tier %s, form %+v", sk.Path, len(x.Files), sk.Root.Tier, sk.Form)
			}
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		snapshot := scan(t, nil, claude)
		if diff := cmp.Diff([]string{"own"}, paths(snapshot.Skills)); diff != "" {
			t.Errorf("skills (-want +got):\n%s", diff)
		}
		if len(snapshot.Diagnostics) != 5 {
			t.Fatalf("diagnostics %v, want one for each link", snapshot.Diagnostics)
		}
		for i, d := range snapshot.Diagnostics {
			link := filepath.Join(claude.Dir, fmt.Sprintf("s%d", i))
			if d.Code != skills.CodeOutsideRoot || d.Severity != skills.Warning || !strings.Contains(d.Detail, fmt.Sprintf("%q", link)) || !strings.Contains(d.Detail, "--allow-root") {
				t.Errorf("%+v, want it to name the link %s and what serves it", d, link)
			}
		}
	})
	t.Run("an allowed root that is not there", func(t *testing.T) {
		missing := filepath.Join(project, "missing")
		snapshot := scan(t, &skills.ScanOptions{AllowRoots: []string{missing}}, claude)
		if got := codes(snapshot.Diagnostics); len(snapshot.Skills) != 1 || !slices.Contains(got, "unreadable-root "+missing) {
			t.Errorf("skills %q, diagnostics %v", paths(snapshot.Skills), got)
		}
	})
}

// TestLinkRules are those of links that the table of precedence does not have.
func TestLinkRules(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: symbolic links without privilege")
	}
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{
		"shared/a/SKILL.md": document("a", "d"), "shared/data.md": "x", "allowed": "-> shared",
		"root/a": "-> ../shared/a", "root/group/a": "-> ../a",
		"root/b/SKILL.md": document("b", "d"), "root/b/data.md": "-> ../../shared/data.md", "root/b/dir": "-> ../../shared/a", "root/b/own.md": "-> SKILL.md", "root/b/up": "-> ../c", "root/c/SKILL.md": document("c", "d"),
	})
	opts := &skills.ScanOptions{AllowRoots: []string{filepath.Join(base, "allowed")}}
	snapshot := scan(t, opts, skills.Root{Dir: filepath.Join(base, "root"), Prefix: "p/q"})
	// The allowed root is a link itself; two links to one skill are the first one.
	if diff := cmp.Diff([]string{"p/q/a", "p/q/b", "p/q/c"}, paths(snapshot.Skills)); diff != "" {
		t.Fatalf("skills (-want +got):\n%s", diff)
	}
	if len(snapshot.Diagnostics) != 0 {
		t.Errorf("diagnostics %v", snapshot.Diagnostics)
	}
	// An allowed root lets links lead to skills; a file must lie in its skill.
	x := index(t, snapshot.Skill("p/q/b"))
	if diff := cmp.Diff([]string{"skill-resource-outside-root data.md", "skill-resource-outside-root dir", "skill-resource-outside-root up"}, codes(x.Diagnostics)); diff != "" {
		t.Errorf("diagnostics of the index (-want +got):\n%s", diff)
	}
	if len(x.Resources) != 1 || x.Resources[0].Path != "own.md" {
		t.Errorf("resources %+v", x.Resources)
	}
}

// TestUpperFirst: where a directory has both names, SKILL.md is the skill and the other a file of it.
func TestUpperFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"a/SKILL.md": document("a", "upper")})
	if _, err := os.Lstat(filepath.Join(dir, "a", "skill.md")); err == nil {
		t.Skip("missing capability: a file system that keeps names apart by case")
	}
	writeTree(t, dir, map[string]string{"a/skill.md": document("a", "lower"), "b/Skill.md": document("b", "d"), "b/c/skill.md": document("c", "d"), "e/SKILL.MD": document("e", "odd"),
		"e/skill.md": document("e", "exact"), "f/SKILL.MD": document("f", "d"), "f/Skill.md": "---\n", "g/SKILL.MD/x": "x", "b/h/SKILL.MD": document("h", "d"), "b/i/j/Skill.md": document("j", "d"), "b/k/sKILL.md": document("k", "d")})
	snapshot := scan(t, nil, skills.Root{Dir: dir})
	if diff := cmp.Diff([]string{"a", "b", "b/c", "b/h", "b/i/j", "e", "f"}, paths(snapshot.Skills)); diff != "" {
		t.Fatalf("skills (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{"a": "SKILL.md", "b": "Skill.md", "e": "skill.md", "f": "SKILL.MD", "b/h": "SKILL.MD", "b/i/j": "Skill.md"} {
		sk := snapshot.Skill(path)
		odd := slices.ContainsFunc(sk.Diagnostics, func(d skills.Diagnostic) bool { return d.Code == skills.CodeMisspeltFile })
		if exact := want == "SKILL.md" || want == "skill.md"; sk.File != want || odd == exact || sk.Form.Strict != exact || sk.Form.Publishable != exact {
			t.Errorf("%s: %s has the form %+v and diagnostics %v", path, want, sk.Form, sk.Diagnostics)
		}
	}
	if sk := snapshot.Skill("a"); sk.File != "SKILL.md" || sk.Description() != "upper" || index(t, sk).Resource("skill.md") == nil {
		t.Errorf("%s with %q", sk.File, sk.Description())
	}
}

// TestSkippedNames: what no view has is neither searched for skills, nor a file of one, nor drift.
func TestSkippedNames(t *testing.T) {
	t.Parallel()
	skipped := []string{"__MACOSX", "._a.sh", "._", "Thumbs.db", "thumbs.DB", "Desktop.ini", ".git", ".github", ".hub", ".archive", "node_modules", "__pycache__", ".DS_Store", "a.md~", "~", ".a.md.swp", ".swp", "#a.md#", "##"}
	kept := []string{"_MACOSX", "Thumbs.dbs", ".gitignore", ".githubs", "git", "node_module", "pycache", "DS_Store", "~a", "a.swp", "#", "#a", "a#", ".agents"}
	dir := t.TempDir()
	tree := map[string]string{"s/SKILL.md": document("s", "d")}
	for _, name := range append(slices.Clone(skipped), kept...) {
		tree["dirs/"+name+"/x/SKILL.md"] = document("x", "d")
		tree["s/dirs/"+name+"/f"], tree["s/files/"+name] = "x", "x"
	}
	writeTree(t, dir, tree)
	snapshot := scan(t, nil, skills.Root{Dir: dir})
	sk := snapshot.Skill("s")
	x := index(t, sk)
	if len(snapshot.Skills) != 1+len(kept) || len(x.Resources) != 2*len(kept) {
		t.Errorf("%d skills and %d files, want %d and %d", len(snapshot.Skills), len(x.Resources), 1+len(kept), 2*len(kept))
	}
	for _, name := range kept {
		if snapshot.Skill("dirs/"+name+"/x") == nil || x.Resource("files/"+name) == nil || x.Resource("dirs/"+name+"/f") == nil {
			t.Errorf("%q is left out", name)
		}
	}
	for _, name := range skipped {
		if content, err := sk.Read(t.Context(), "files/"+name, 100); err == nil {
			t.Errorf("Read(%q) = %q", name, content.Data)
		}
		writeFile(t, filepath.Join(dir, "s", "files", name), "changed")
	}
	if err := sk.Verify(t.Context()); err != nil {
		t.Errorf("Verify = %v", err)
	}
}

// TestDefaultLimits: what a limit names is still served, one more is not.
func TestDefaultLimits(t *testing.T) {
	t.Parallel()
	t.Run("depth", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		writeTree(t, dir, map[string]string{
			"1/2/3/4/5/6/7/8/SKILL.md": document("8", "d"), "1/2/3/4/5/6/7/x/9/SKILL.md": document("9", "d"),
			"s/SKILL.md": document("s", "d"), "s/2/3/4/5/6/7/8/SKILL.md": document("8", "d"), "s/2/3/4/5/6/7/x/9/SKILL.md": document("9", "d"),
		})
		snapshot := scan(t, nil, skills.Root{Dir: dir})
		if diff := cmp.Diff([]string{"1/2/3/4/5/6/7/8", "s", "s/2/3/4/5/6/7/8"}, paths(snapshot.Skills)); diff != "" {
			t.Errorf("skills (-want +got):\n%s", diff)
		}
		if got := codes(snapshot.Diagnostics); !slices.Contains(got, "max-depth-exceeded 1/2/3/4/5/6/7/x/9") {
			t.Errorf("diagnostics %v", got)
		}
	})
	t.Run("depth in a skill", func(t *testing.T) {
		t.Parallel()
		deepest := strings.Repeat("d/", 32)
		sk, _ := oneSkill(t, nil, map[string]string{deepest + "x": "x", deepest + "d/x": "x"})
		x := index(t, sk)
		if len(x.Resources) != 1 || x.Resource(deepest+"x") == nil || !slices.Contains(codes(x.Diagnostics), "resource-file-limit-exceeded") {
			t.Errorf("%d resources, diagnostics %v; want the one 32 directories deep", len(x.Resources), x.Diagnostics)
		}
	})
	t.Run("frontmatter", func(t *testing.T) {
		t.Parallel()
		head := "name: a\ndescription: d\nx: "
		for extra, loads := range map[int]bool{0: true, 1: false} {
			fill := strings.Repeat("x", frontmatter.MaxSize-len(head)-1+extra)
			sk := scanOne(t, "---\n"+head+fill+"\n---\nBody.\n")
			if (sk != nil) != loads {
				t.Errorf("%d bytes over the limit: loaded %v", extra, sk != nil)
			}
		}
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		sk, dir := oneSkill(t, nil, map[string]string{"fits.bin": "", "over.bin": ""})
		if err := os.Truncate(filepath.Join(dir, "fits.bin"), skills.MaxFile); err != nil {
			t.Skipf("missing capability: sparse files: %v", err)
		}
		if err := os.Truncate(filepath.Join(dir, "over.bin"), skills.MaxFile+1); err != nil {
			t.Fatal(err)
		}
		x := index(t, sk)
		if x.Resource("fits.bin") == nil || x.Resource("over.bin") != nil || x.Publishable || !slices.Contains(codes(x.Diagnostics), "resource-size-limit-exceeded over.bin") {
			t.Errorf("resources %+v, diagnostics %v", x.Resources, x.Diagnostics)
		}
	})
	for name, test := range map[string]struct {
		files, bytes int // beside SKILL.md, which is counted in
		publishable  bool
	}{"files": {512, 0, true}, "one file more": {513, 0, false}, "bytes": {2, 16 << 20, true}, "one byte more": {2, 16<<20 + 1, false}} {
		t.Run("publication: "+name, func(t *testing.T) {
			t.Parallel()
			tree := map[string]string{}
			for i := range test.files - 2 {
				tree[fmt.Sprintf("f%03d", i)] = ""
			}
			sk, dir := oneSkill(t, nil, tree)
			writeFile(t, filepath.Join(dir, "data.bin"), "")
			if err := os.Truncate(filepath.Join(dir, "data.bin"), max(0, int64(test.bytes)-sk.Size)); err != nil {
				t.Skipf("missing capability: sparse files: %v", err)
			}
			if x := index(t, sk); x.Publishable != test.publishable || len(x.Files) != test.files {
				t.Errorf("publishable %v with %d files, diagnostics %v", x.Publishable, len(x.Files), x.Diagnostics)
			}
		})
	}
}

// scanOne returns the skill of one SKILL.md, nil when it is not served.
func scanOne(t *testing.T, content string) *skills.Skill {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a", "SKILL.md"), content)
	return scan(t, nil, skills.Root{Dir: dir}).Skill("a")
}

// TestDirectoriesInSkills: skills with many directories do not make a scan long, and harm only what is
// nested in them.
func TestDirectoriesInSkills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := map[string]string{}
	for i := range 4 {
		tree[fmt.Sprintf("s%d/SKILL.md", i)] = document(fmt.Sprintf("s%d", i), "d")
		for j := range 30 {
			tree[fmt.Sprintf("s%d/%02d/sub/x", i, j)] = "x"
		}
	}
	writeTree(t, dir, tree)
	snapshot := scan(t, &skills.ScanOptions{MaxDirs: 5}, skills.Root{Dir: dir})
	if diff := cmp.Diff([]string{"s0", "s1", "s2", "s3"}, paths(snapshot.Skills)); diff != "" {
		t.Errorf("skills (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"scan-limit-exceeded"}, codes(snapshot.Diagnostics)); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
}
