package skills_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/skills"
)

// attackPlant writes a tree: path -> content. A content that begins with "->" is a link to what follows.
func attackPlant(tb testing.TB, dir string, files map[string]string) {
	tb.Helper()
	for name, content := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			tb.Fatal(err)
		}
		target, isLink := strings.CutPrefix(content, "->")
		err := error(nil)
		if isLink {
			err = os.Symlink(filepath.FromSlash(target), name)
		} else {
			err = os.WriteFile(name, []byte(content), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// attackManifest is a well-formed SKILL.md.
func attackManifest(name string) string {
	return "---\nname: " + name + "\ndescription: What " + name + " is for.\n---\nBody of " + name + ".\n"
}

func attackScan(tb testing.TB, opts *skills.ScanOptions, roots ...skills.Root) *skills.Snapshot {
	tb.Helper()
	snapshot, err := skills.Scan(tb.Context(), roots, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return snapshot
}

func attackPaths(all []*skills.Skill) []string {
	out := []string{}
	for _, sk := range all {
		out = append(out, sk.Path)
	}
	return out
}

func attackCodes(all []skills.Diagnostic) []skills.Code {
	out := []skills.Code{}
	for _, d := range all {
		out = append(out, d.Code)
	}
	return out
}

func attackBomb() string {
	var b strings.Builder
	b.WriteString("---\nname: bad\ndescription: Bomb.\na0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 12 {
		from, to := string(rune('a'+i)), string(rune('b'+i))
		b.WriteString(to + "0: &" + to + "0 [" + strings.Repeat("*"+from+"0,", 9) + "]\n")
	}
	return b.String() + "---\nx\n"
}

func attackKeys(size int) string {
	var b strings.Builder
	b.WriteString("---\nname: bad\ndescription: Keys.\n")
	for i := 0; b.Len() < size; i++ {
		b.WriteString("k" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + time.Duration(i).String() + ": 1\n")
	}
	return b.String() + "---\nx\n"
}

// TestAttackManifest puts one hostile SKILL.md beside a good skill: it never hurts the other, and is
// skipped with an error or served with something that says what happened.
func TestAttackManifest(t *testing.T) {
	tests := []struct {
		name, content string
		loaded        bool
		code          skills.Code
	}{
		{"panics the decoder", "---\n{{},<<}\n---\nx\n", false, skills.CodeInvalidFrontmatter},
		{"alias bomb", attackBomb(), false, skills.CodeInvalidFrontmatter},
		{"self reference", "---\nname: bad\ndescription: A.\na: &a [*a]\n---\nx\n", false, skills.CodeInvalidFrontmatter},
		{"merge key", "---\nname: bad\ndescription: A.\n<<: {a: b}\n---\nx\n", false, skills.CodeInvalidFrontmatter},
		{"foreign tag", "---\nname: bad\ndescription: A.\na: !!python/object x\n---\nx\n", false, skills.CodeInvalidFrontmatter},
		{"many keys", attackKeys(60 << 10), true, ""},
		{"1 MiB of keys", attackKeys(900 << 10), false, skills.CodeInvalidFrontmatter},
		{"deep", "---\nname: bad\ndescription: A.\na: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "\n---\nx\n", false, skills.CodeInvalidFrontmatter},
		{"deep without end", "---\nname: bad\ndescription: A.\na: " + strings.Repeat("[", 20_000) + "\n---\nx\n", false, skills.CodeInvalidFrontmatter},
		{"slow to repair", "---\nname: bad\ndescription: A.\n" + strings.Repeat("a: b: c\n", 7_000) + "---\nx\n", false, skills.CodeInvalidFrontmatter},
		{"NUL", "---\nname: bad\ndescription: A\x00.\n---\nx\n", false, skills.CodeInvalidEncoding},
		{"not UTF-8", "---\nname: bad\ndescription: A\xff.\n---\nx\n", false, skills.CodeInvalidEncoding},
		{"empty", "", false, skills.CodeMissingDescription},
		{"only a fence", "---", false, skills.CodeInvalidFrontmatter},
		{"never closed", "---\nname: bad\n", false, skills.CodeInvalidFrontmatter},
		{"a list", "---\n- name\n- description\n---\nx\n", false, skills.CodeInvalidFrontmatter},
		{"too large", attackManifest("bad") + strings.Repeat("x", skills.MaxSkillFile), false, skills.CodeScanLimit},
		{"largest", attackManifest("bad") + strings.Repeat("x", skills.MaxSkillFile-len(attackManifest("bad"))), true, ""},
		{"two documents", "---\nname: bad\ndescription: A.\n---\n---\nname: good\n---\n", true, ""},
		{"forged name", "---\nname: \"good\\nadmin\"\ndescription: A.\n---\nx\n", true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			attackPlant(t, dir, map[string]string{"good/SKILL.md": attackManifest("good"), "bad/SKILL.md": tt.content})
			snapshot := attackScan(t, nil, skills.Root{Dir: dir})
			want := []string{"good"}
			if tt.loaded {
				want = []string{"bad", "good"}
			}
			if got := attackPaths(snapshot.Skills); !slices.Equal(got, want) {
				t.Fatalf("Scan found %q, want %q: %+v", got, want, snapshot.Diagnostics)
			}
			if tt.code != "" && !slices.Contains(attackCodes(snapshot.Diagnostics), tt.code) {
				t.Errorf("diagnostics %+v, want %s", snapshot.Diagnostics, tt.code)
			}
			for _, sk := range snapshot.Skills {
				if n := len(sk.Diagnostics); n > 30 {
					t.Errorf("%s has %d diagnostics", sk.Path, n)
				}
			}
			sk, err := snapshot.Lookup("good")
			if err != nil || sk.Path != "good" {
				t.Fatalf("Lookup(good) = %v, %v", sk, err)
			}
			if _, err := sk.Index(t.Context()); err != nil {
				t.Errorf("Index: %v", err)
			}
			for _, d := range snapshot.Diagnostics {
				if strings.ContainsAny(d.Detail+d.Path, "\n\x00\x1b") {
					t.Errorf("diagnostic %+v is more than a line", d)
				}
			}
		})
	}
}

// TestAttackLinks holds links that want to reach what is not theirs.
func TestAttackLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: symbolic links without privilege")
	}
	outside := t.TempDir()
	attackPlant(t, outside, map[string]string{"secret.txt": "SECRET", "skill/SKILL.md": attackManifest("stolen")})
	dir := t.TempDir()
	attackPlant(t, dir, map[string]string{
		"good/SKILL.md": attackManifest("good"), "good/real.md": "real", "good/references/guide.md": "guide",
		"good/passwd": "->/etc/passwd", "good/secret": "->" + outside + "/secret.txt", "good/up": "->../other/SKILL.md",
		"good/inside.md": "->references/guide.md", "good/references/back": "->..", "good/self": "->self", "good/a": "->b", "good/b": "->a",
		"good/dangling": "->nowhere", "good/dir": "->references", "good/zero": "->/dev/zero",
		"other/SKILL.md":  attackManifest("other"),
		"linked/SKILL.md": "->/etc/passwd", "escape": "->" + outside + "/skill", "loop": "->.", "upward": "->..", "alias": "->good",
		"inlink/SKILL.md": "->text.md", "inlink/text.md": attackManifest("inlink"),
	})
	snapshot := attackScan(t, nil, skills.Root{Dir: dir})
	if got, want := attackPaths(snapshot.Skills), []string{"good", "inlink", "other"}; !slices.Equal(got, want) {
		t.Fatalf("Scan found %q, want %q", got, want)
	}
	sk := snapshot.Skill("good")
	index, err := sk.Index(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range index.Resources {
		got = append(got, r.Path)
	}
	if want := []string{"dir/guide.md", "inside.md", "real.md", "references/guide.md"}; !slices.Equal(got, want) {
		t.Errorf("resources %q, want %q", got, want)
	}
	if a, b := index.Resource("inside.md"), index.Resource("references/guide.md"); a == nil || a.Digest != b.Digest {
		t.Errorf("a link inside is %+v, want the file it names", a)
	}
	outsiders := 0
	for _, code := range attackCodes(index.Diagnostics) {
		if code == skills.CodeResourceOutside {
			outsiders++
		}
	}
	if outsiders != 4 {
		t.Errorf("%d links said to lead outside, want 4: %+v", outsiders, index.Diagnostics)
	}
	if err := sk.Verify(t.Context()); err != nil {
		t.Errorf("Verify of an untouched tree: %v", err)
	}
	for _, name := range []string{"passwd", "secret", "up", "zero", "self", "dangling"} {
		if content, err := sk.Read(t.Context(), name, 1<<20); !errors.Is(err, skills.ErrNotIndexed) {
			t.Errorf("Read(%q) = %v, %v; want ErrNotIndexed", name, content, err)
		}
	}
	// A root that is allowed makes the same link a skill.
	snapshot = attackScan(t, &skills.ScanOptions{AllowRoots: []string{outside}}, skills.Root{Dir: dir})
	if sk := snapshot.Skill("escape"); sk == nil || sk.Name() != "stolen" {
		t.Errorf("skill behind an allowed link: %+v", sk)
	}
}

// TestAttackSwap exchanges what was scanned for links that lead outside.
func TestAttackSwap(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: symbolic links without privilege")
	}
	outside := t.TempDir()
	attackPlant(t, outside, map[string]string{"SKILL.md": attackManifest("good"), "a.md": "SECRET", "sub/b.md": "SECRET"})
	tests := []struct {
		name  string
		spoil func(t *testing.T, skill string)
		read  string
	}{
		{"a file", func(t *testing.T, skill string) {
			attackRelink(t, filepath.Join(skill, "a.md"), filepath.Join(outside, "a.md"))
		}, "a.md"},
		{"a directory", func(t *testing.T, skill string) {
			attackRelink(t, filepath.Join(skill, "sub"), filepath.Join(outside, "sub"))
		}, "sub/b.md"},
		{"the skill", func(t *testing.T, skill string) { attackRelink(t, skill, outside) }, "a.md"},
		{"the skill, for SKILL.md", func(t *testing.T, skill string) { attackRelink(t, skill, outside) }, "SKILL.md"},
		{"SKILL.md", func(t *testing.T, skill string) {
			attackRelink(t, filepath.Join(skill, "SKILL.md"), filepath.Join(outside, "SKILL.md"))
		}, "SKILL.md"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			attackPlant(t, dir, map[string]string{"good/SKILL.md": attackManifest("good"), "good/a.md": "a", "good/sub/b.md": "b"})
			registry := skills.NewRegistry([]skills.Root{{Dir: dir}}, nil)
			if _, err := registry.Rescan(t.Context()); err != nil {
				t.Fatal(err)
			}
			sk := registry.Snapshot().Skill("good")
			if _, err := sk.Index(t.Context()); err != nil {
				t.Fatal(err)
			}
			tt.spoil(t, filepath.Join(dir, "good"))
			if content, err := sk.Read(t.Context(), tt.read, 1<<20); err == nil {
				t.Errorf("Read(%q) = %q, want an error", tt.read, content.Data)
			} else if strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), outside) {
				t.Errorf("Read(%q): the error names a place of this machine: %v", tt.read, err)
			}
			if _, ok := errors.AsType[*skills.DriftError](sk.Verify(t.Context())); !ok {
				t.Errorf("Verify = %v, want *DriftError", sk.Verify(t.Context()))
			}
			if fresh, err := registry.RescanSkill(t.Context(), sk); err == nil {
				if content, err := fresh.Read(t.Context(), tt.read, 1<<20); err == nil {
					t.Errorf("Read(%q) after a rescan = %q", tt.read, content.Data)
				}
			}
		})
	}
}

func attackRelink(t *testing.T, name, target string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}
