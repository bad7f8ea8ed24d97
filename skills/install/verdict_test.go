package install

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// verdicts returns the assessments of the skills in an archive, by name.
func verdicts(t *testing.T, archive string) map[string]Assessment {
	t.Helper()
	all, err := txtar.ParseFile(filepath.Join("testdata", "verdicts", archive))
	if err != nil {
		t.Fatal(err)
	}
	escape := regexp.MustCompile(`\\u\{([0-9a-f]+)\}`)
	dir := t.TempDir()
	for _, f := range all.Files {
		text := escape.ReplaceAllStringFunc(string(f.Data), func(s string) string {
			r, err := strconv.ParseInt(s[3:len(s)-1], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return string(rune(r))
		})
		name, file, _ := strings.Cut(f.Name, "/")
		if file == "SKILL.md" && !strings.HasPrefix(text, "---\n") {
			text = "---\nname: " + name + "\ndescription: Does " + name + ".\n---\n" + text
		}
		at := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := skills.Scan(t.Context(), []skills.Root{{Dir: dir}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Assessment{}
	for _, f := range all.Files {
		name, _, _ := strings.Cut(path.Clean(f.Name), "/")
		if _, known := found[name]; known {
			continue
		}
		found[name], err = assessment(t.Context(), name, nil, snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if snapshot.Skill(name) == nil {
			t.Errorf("%s does not load: %v", name, snapshot.Diagnostics)
		}
	}
	return found
}

// TestVerdictOfAttacks: nearly all attacks of known kinds wait for a look.
func TestVerdictOfAttacks(t *testing.T) {
	t.Parallel()
	const missed = 1
	all := verdicts(t, "attacks.txtar")
	var clean []string
	for name, found := range all {
		if found.Verdict == "" || found.Verdict == policy.Clean {
			clean = append(clean, name)
		}
	}
	slices.Sort(clean)
	t.Logf("%d of %d attacks are clean: %v", len(clean), len(all), clean)
	if len(clean) > missed || len(all) < 140 {
		t.Errorf("%d of %d attacks are clean: %v", len(clean), len(all), clean)
	}
}

// TestVerdictOfGoodSkills: what public skills say without harm is served without a question.
func TestVerdictOfGoodSkills(t *testing.T) {
	t.Parallel()
	for name, found := range verdicts(t, "good.txtar") {
		if found.Verdict != "" {
			t.Errorf("%s: %s: %s", name, found.Verdict, found.Why)
		}
	}
}
