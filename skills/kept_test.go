package skills_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/skillsd/skillsd/skills"
)

// A root with more frontmatter than is kept loses skills of its own, and none of another root.
func TestFrontmatterOfOneRoot(t *testing.T) {
	const size = 60 << 10
	greedy := fstest.MapFS{}
	file := &fstest.MapFile{Data: []byte("---\nname: x\ndescription: Takes room.\nnote: " + strings.Repeat("x", size) + "\n---\n")}
	for i := range 64<<20/size + 50 {
		greedy[fmt.Sprintf("greedy-%d/SKILL.md", i)] = file
	}
	modest := fstest.MapFS{"modest/SKILL.md": {Data: []byte("---\nname: modest\ndescription: Wants to be there.\n---\n")}}
	snapshot, err := skills.Scan(t.Context(), []skills.Root{
		{Dir: "greedy", FS: greedy, Tier: skills.TierThirdParty}, {Dir: "modest", FS: modest, Tier: skills.TierUser},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if snapshot.Skill("modest") == nil {
		t.Error("a skill of another root is not served")
	}
	left := 0
	for _, d := range snapshot.Diagnostics {
		if d.Code == skills.CodeScanLimit {
			left++
		}
	}
	if left == 0 || len(snapshot.Skills) > len(greedy) {
		t.Errorf("%d skills of %d are served, %d left out", len(snapshot.Skills), len(greedy), left)
	}
}

// Links beyond the limit cost the root they are in, and no other.
func TestLinksOfOneRoot(t *testing.T) {
	top := t.TempDir()
	link := func(target, name string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(target, name)); err != nil {
			t.Skipf("missing capability: symbolic links: %v", err)
		}
	}
	greedy, modest, elsewhere := filepath.Join(top, "greedy"), filepath.Join(top, "modest"), filepath.Join(top, "elsewhere")
	const limit = 5
	for i := range limit + 3 {
		link(".", filepath.Join(greedy, fmt.Sprintf("link-%d", i)))
	}
	link(filepath.Join(elsewhere, "linked"), filepath.Join(modest, "linked"))
	text := []byte("---\nname: linked\ndescription: Wants to be there.\n---\n")
	if err := errors.Join(os.MkdirAll(filepath.Join(elsewhere, "linked"), 0o755), os.WriteFile(filepath.Join(elsewhere, "linked", "SKILL.md"), text, 0o644)); err != nil {
		t.Fatal(err)
	}
	snapshot, err := skills.Scan(t.Context(), []skills.Root{{Dir: greedy, Tier: skills.TierThirdParty}, {Dir: modest, Tier: skills.TierUser}},
		&skills.ScanOptions{MaxDirs: limit, AllowRoots: []string{elsewhere}})
	if err != nil {
		t.Fatal(err)
	}
	if snapshot.Skill("linked") == nil {
		t.Error("a skill that another root links to is not served")
	}
	said := slices.DeleteFunc(slices.Clone(snapshot.Diagnostics), func(d skills.Diagnostic) bool { return d.Code != skills.CodeScanLimit })
	if len(said) != 1 || said[0].Path != greedy {
		t.Errorf("of the limit is said: %+v", said)
	}
}

// Of two links to one directory the one in the more trusted root counts, wherever it stands.
func TestLinksOfTrustedRootsFirst(t *testing.T) {
	top := t.TempDir()
	elsewhere := filepath.Join(top, "elsewhere")
	text := []byte("---\nname: own\ndescription: Is the user's.\n---\n")
	if err := errors.Join(os.MkdirAll(filepath.Join(elsewhere, "own"), 0o755), os.WriteFile(filepath.Join(elsewhere, "own", "SKILL.md"), text, 0o644)); err != nil {
		t.Fatal(err)
	}
	var roots []skills.Root
	for _, r := range []struct {
		name string
		tier skills.Tier
	}{{"taken", skills.TierThirdParty}, {"own", skills.TierUser}} {
		dir := filepath.Join(top, r.tier.String())
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(elsewhere, "own"), filepath.Join(dir, r.name)); err != nil {
			t.Skipf("missing capability: symbolic links: %v", err)
		}
		roots = append(roots, skills.Root{Dir: dir, Tier: r.tier})
	}
	for _, tt := range []struct {
		shadow bool
		want   string
	}{{false, "own user"}, {true, "taken third-party"}} {
		snapshot, err := skills.Scan(t.Context(), roots, &skills.ScanOptions{AllowRoots: []string{elsewhere}, AllowShadow: tt.shadow})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, sk := range snapshot.Skills {
			got = append(got, sk.Path+" "+sk.Root.Tier.String())
		}
		if !slices.Equal(got, []string{tt.want}) {
			t.Errorf("AllowShadow %t: %q, want %q", tt.shadow, got, tt.want)
		}
	}
}

// A directory that is two roots is the more trusted one, however the other one leads there.
func TestRootOfTrustedTier(t *testing.T) {
	top := t.TempDir()
	own, project := filepath.Join(top, "own"), filepath.Join(top, "project")
	text := []byte("---\nname: a\ndescription: Is the user's.\n---\n")
	if err := errors.Join(os.MkdirAll(filepath.Join(own, "a"), 0o755), os.WriteFile(filepath.Join(own, "a", "SKILL.md"), text, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own, project); err != nil {
		t.Skipf("missing capability: symbolic links: %v", err)
	}
	roots := []skills.Root{{Dir: project, Tier: skills.TierThirdParty}, {Dir: own, Tier: skills.TierUser}, {Dir: own, Tier: skills.TierUser, Prefix: "again"}}
	for _, tt := range []struct {
		shadow bool
		want   skills.Tier
	}{{false, skills.TierUser}, {true, skills.TierThirdParty}} {
		snapshot, err := skills.Scan(t.Context(), roots, &skills.ScanOptions{AllowShadow: tt.shadow})
		if err != nil {
			t.Fatal(err)
		}
		if len(snapshot.Skills) != 1 || snapshot.Skills[0].Path != "a" || snapshot.Skills[0].Root.Tier != tt.want || len(snapshot.Diagnostics) > 0 {
			t.Errorf("AllowShadow %t: %d skills, the first of tier %s, and %+v; want one of tier %s", tt.shadow, len(snapshot.Skills), snapshot.Skills[0].Root.Tier, snapshot.Diagnostics, tt.want)
		}
	}
}
