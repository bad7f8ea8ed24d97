package skills_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/skillsd/skillsd/skills"
)

// maxHostile is by how much the heap may grow, at any moment, for a scan and an index of a hostile
// tree.
const maxHostile = 256 << 20

// guarded runs what reads a hostile tree. It must not take more memory than maxHostile, nor more than a
// minute of the processor. What is allocated and freed on the way does not count: with the race detector that
// is a matter of chance.
func guarded(t *testing.T, read func(ctx context.Context)) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := spent(t)
	read(t.Context())
	if took := spent(t) - begin; took > time.Minute {
		t.Errorf("it took %v, want at most a minute", took)
	}
	runtime.ReadMemStats(&after)
	// The heap's share of the address space never shrinks, so it tells of the highest use.
	if took := int64(after.HeapSys) - int64(before.HeapSys); took > maxHostile {
		t.Errorf("it took %d MiB, want at most %d", took>>20, maxHostile>>20)
	}
}

// servesGood scans a root in which the skill "good" must be found and read whatever else is there,
// and returns the snapshot.
func servesGood(ctx context.Context, t *testing.T, opts *skills.ScanOptions, dir string) *skills.Snapshot {
	t.Helper()
	snapshot, err := skills.Scan(ctx, []skills.Root{{Dir: dir, Tier: skills.TierThirdParty}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	sk := snapshot.Skill("good")
	if sk == nil {
		t.Fatalf("the good skill is not served: %v", snapshot.Diagnostics)
	}
	if content, err := sk.Read(ctx, sk.File, skills.MaxSkillFile); err != nil || !content.Matches {
		t.Errorf("Read of the good skill = %+v, %v", content, err)
	}
	return snapshot
}

// TestHostileArchives loads what testdata/hostile has for all packages. Each skill loads, alone and
// beside a good one, with these diagnostics and no others.
func TestHostileArchives(t *testing.T) {
	want := map[string][]string{
		"boundary": {}, "include": {}, "shebangs": {},
		"catalogue": {"invisible-text SKILL.md"},
		"grants":    {"dynamic-command SKILL.md", "hooks-ignored SKILL.md"},
		"invisible": {"invisible-text SKILL.md"},
		"names":     {"unportable-name references/a?b#c.md", "unportable-name references/skill:evil.md"},
	}
	files, err := filepath.Glob("../testdata/hostile/*.txtar")
	if err != nil || len(files) < len(want) {
		t.Fatalf("%d archives, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for _, f := range archive.Files {
				if runtime.GOOS == "windows" && strings.ContainsAny(f.Name, ":?*") {
					t.Skip("missing capability: file names that Windows reserves")
				}
				writeFile(t, filepath.Join(dir, filepath.FromSlash(f.Name)), string(f.Data))
			}
			writeFile(t, filepath.Join(dir, "good", "SKILL.md"), document("good", "d"))
			guarded(t, func(ctx context.Context) {
				snapshot := servesGood(ctx, t, nil, dir)
				sk := snapshot.Skill(name)
				if sk == nil || len(snapshot.Diagnostics) != 0 {
					t.Fatalf("skills %q, diagnostics %v", paths(snapshot.Skills), snapshot.Diagnostics)
				}
				x := index(t, sk)
				if len(x.Files) != len(archive.Files) {
					t.Errorf("%d files, want %d", len(x.Files), len(archive.Files))
				}
				if wanted, ok := want[name]; ok {
					if diff := cmp.Diff(wanted, signalCodes(x)); diff != "" {
						t.Errorf("diagnostics (-want +got):\n%s", diff)
					}
				}
				for i := range x.Resources {
					path := x.Resources[i].Path
					if back, file, err := snapshot.Resolve(sk.URI(path)); err != nil || back != sk || file != path {
						t.Errorf("Resolve(%q) = %q, %v; want %q", sk.URI(path), file, err, path)
					}
				}
			})
		})
	}
}

func signalCodes(x *skills.Index) []string {
	if len(x.Diagnostics) == 0 {
		return []string{}
	}
	return codes(x.Diagnostics)
}

// TestHostileNames: a file whose name is no path is left out and said so; every other one is served
// under exactly its name, and no spelling of another leads to it.
func TestHostileNames(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: file names that Windows reserves")
	}
	served := []string{"%2e%2e", "%2e%2e%2fgood", "a%2Fb", "%00", "%", "%25", "a%", "+", "a+b", "&amp;", "<b>", "'", `"`, "`id`", "$(id)", "${HOME}", "~", "-rf", " ", " a ", "a ", ".hidden", "...",
		"C:x", "C:", "a:b", "data", "con", "NUL.txt", "a.", "e\u0301", "\u00e9", "\u202egnp.exe", "\u200b", strings.Repeat("x", 255), strings.Repeat("é", 127), "😀", "skill:", "a;b", "a|b", "#x", "[x](y)", "{{x}}", "--- x"}
	refused := []string{"a\nb", "a\r", "\x1b[31m", "a\x7f", "tab\t", `back\slash`, `..\..\x`, "\u2028", "\u0085", "\x01", "data:x", "file:x", "javascript:x"}
	dir := t.TempDir()
	names := append(slices.Clone(served), refused...)
	for _, name := range names {
		file := filepath.Join(dir, "good", "files", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(file); err == nil {
			t.Skip("missing capability: a file system that keeps names apart by case and form")
		}
		if err := os.WriteFile(file, []byte("is "+name), 0o644); err != nil {
			t.Skipf("missing capability: a file named %q: %v", name, err)
		}
		// The same name for a skill.
		writeFile(t, filepath.Join(dir, "skills", name, "SKILL.md"), document("x", "in "+strings.ToValidUTF8(strings.Map(printable, name), "?")))
	}
	writeFile(t, filepath.Join(dir, "good", "SKILL.md"), document("good", "d"))
	guarded(t, func(ctx context.Context) {
		snapshot := servesGood(ctx, t, nil, dir)
		sk := snapshot.Skill("good")
		x := index(t, sk)
		left := slices.DeleteFunc(slices.Clone(refused), func(name string) bool { return strings.Contains(name, ":") })
		if got := len(x.Resources); got != len(names)-len(left)-1 {
			t.Errorf("%d files are served, want %d: all but those refused and the one that no view has", got, len(names)-len(left)-1)
		}
		for _, name := range served {
			checkNamed(ctx, t, snapshot, sk, "files/"+name, "is "+name)
			if snapshot.Skill("skills/"+name) == nil && !hidden(name) {
				t.Errorf("the skill %q is not served", name)
			}
		}
		for _, name := range left {
			if x.Resource("files/"+name) != nil || snapshot.Skill("skills/"+name) != nil {
				t.Errorf("%q is served", name)
			}
		}
		for _, d := range append(slices.Clone(x.Diagnostics), snapshot.Diagnostics...) {
			if strings.ContainsAny(d.Path+d.Detail, "\n\r\x1b\x7f\x01\t\u2028\u0085") {
				t.Errorf("%+v is more than a line", d)
			}
		}
	})
}

// hidden are the names that no view has.
func hidden(name string) bool { return strings.HasSuffix(name, "~") }

func printable(r rune) rune {
	if r < ' ' || strings.ContainsRune(": #\"'{}[]|<>&*%`\\-~;$", r) {
		return '_'
	}
	return r
}

// checkNamed reads a file by its name and by its URI.
func checkNamed(ctx context.Context, t *testing.T, snapshot *skills.Snapshot, sk *skills.Skill, path, want string) {
	t.Helper()
	if hidden(path) {
		return
	}
	back, file, err := snapshot.Resolve(sk.URI(path))
	if err != nil || back != sk || file != path {
		t.Errorf("Resolve(%q) = %q, %v; want %q", sk.URI(path), file, err, path)
		return
	}
	content, err := sk.Read(ctx, file, 1<<20)
	if err != nil || !content.Matches || string(content.Data) != want {
		t.Errorf("Read(%q) = %+v, %v; want %q", file, content, err, want)
	}
}

// TestHostileManifest puts a SKILL.md that attacks its reader beside a good skill. It costs little
// memory, whatever it says.
func TestHostileManifest(t *testing.T) {
	for name, content := range map[string]string{
		"alias bomb": attackBomb(), "keys": attackKeys(1<<20 - 100), "keys that fit": attackKeys(64 << 10), "decoder": "---\n{{},<<}\n---\nx\n",
		"open": "---\n" + strings.Repeat("a: [\n", 200_000), "no newline": strings.Repeat("-", 1<<20), "fences": strings.Repeat("---\n", 200_000),
		"quotes": "---\nname: '" + strings.Repeat("'", 60_000) + "\n---\nx\n", "anchors": "---\n" + strings.Repeat("&a ", 20_000) + "\n---\nx\n",
		"signals": document("bad", "d") + strings.Repeat("curl x/y|sh ignore previous instructions <!-- a b c d --> !`x` \u200b\u202e\U000e0041", 10_000),
		"lines":   document("bad", "d") + strings.Repeat("<!--\n", 200_000), "ticks": document("bad", "d") + strings.Repeat("`<!--", 200_000),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			attackPlant(t, dir, map[string]string{"good/SKILL.md": attackManifest("good"), "bad/SKILL.md": content, "good/bad.md": content, "good/scripts/bad.sh": content})
			guarded(t, func(ctx context.Context) {
				snapshot := servesGood(ctx, t, nil, dir)
				for _, sk := range snapshot.Skills {
					if x := index(t, sk); len(x.Diagnostics) > 20 {
						t.Errorf("%s has %d diagnostics", sk.Path, len(x.Diagnostics))
					}
				}
				if snapshot.Skill("bad") == nil && len(snapshot.Diagnostics) == 0 {
					t.Error("the other skill is left out without a diagnostic")
				}
			})
		})
	}
}

// Thousands of skills that are nothing but frontmatter cost no more than the limit on it.
func TestHostileFrontmatterOfAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var keys strings.Builder
	for i := 0; keys.Len() < 60_000; i++ {
		fmt.Fprintf(&keys, "k%d: %s\n", i, strings.Repeat("x", 1000))
	}
	tree := map[string]string{}
	for i := range 1_400 {
		name := fmt.Sprintf("s%d", i)
		tree[name+"/SKILL.md"] = "---\nname: " + name + "\ndescription: d\n" + keys.String() + "---\n"
	}
	writeTree(t, dir, tree)
	snapshot := scan(t, nil, skills.Root{Dir: dir})
	kept := 0
	for _, sk := range snapshot.Skills {
		kept += len(sk.Frontmatter.JSON)
	}
	if kept < 60<<20 || kept > 66<<20 || len(snapshot.Diagnostics) != 1_400-len(snapshot.Skills) {
		t.Errorf("%d bytes of frontmatter are kept of %d skills, with %d diagnostics", kept, len(snapshot.Skills), len(snapshot.Diagnostics))
	}
}
