package skills_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// TestCleanPathRecorded holds CleanPath against the recorded answers of the reference for scripts:
// it gives the same path or refuses, and refuses whatever the reference does, but for what lies
// below another directory.
func TestCleanPathRecorded(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("script/testdata/paths.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		NormalizeScriptPath map[string]json.RawMessage `json:"normalizeScriptPath"`
	}
	if err := json.Unmarshal(raw, &recorded); err != nil || len(recorded.NormalizeScriptPath) < 20 {
		t.Fatalf("%d cases, %v", len(recorded.NormalizeScriptPath), err)
	}
	// What is refused here and resolved there, and the other spelling of what is kept.
	differs := map[string]string{"scripts/x/../a.ts": "", `scripts\a.ts`: "", " scripts/a.ts ": " scripts/a.ts ", "scripts/": "scripts", "   ": "   "}
	for in, answer := range recorded.NormalizeScriptPath {
		var want string
		refused := json.Unmarshal(answer, &want) != nil
		if refused && strings.Contains(string(answer), "must be under scripts/") && !strings.Contains(in, "..") && !strings.Contains(in, `\`) {
			want, refused = in, false
		}
		if other, ok := differs[in]; ok {
			want, refused = other, other == ""
		}
		got, err := skills.CleanPath(in)
		if refused != isPathError(err) || got != want && !refused {
			t.Errorf("CleanPath(%q) = %q, %v; the reference says %s", in, got, err, answer)
		}
	}
}

// FuzzFileName: every name that a directory can list, and that CleanPath accepts, has a URI of its
// own, in a form that no client takes apart.
func FuzzFileName(f *testing.F) {
	for _, seed := range []string{"a", "%2e%2e", "a%2Fb", "%", "é", "e\u0301", "a b", "a?b#c", "C:", "\u202e", "\U000e0041", "~", "a;b=c", "[x]"} {
		f.Add(seed, "b")
	}
	f.Fuzz(func(t *testing.T, name, other string) {
		clean, err := skills.CleanPath(name)
		if err != nil || clean != name {
			return
		}
		outer := &skills.Skill{Path: "x"}
		if strings.Contains(name, "/") || len(name) > 255 {
			return
		}
		uri := outer.URI("d/" + name)
		for i := range len(uri) {
			if c := uri[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"<>\^{|}?#[]`+"`", c) >= 0 {
				t.Fatalf("URI(%q) = %q has %q", name, uri, c)
			}
		}
		if strings.Count(uri, "/") != strings.Count("skill://x/d/n", "/") {
			t.Errorf("URI(%q) = %q has more segments than the path", name, uri)
		}
		if got, err := skills.ParseURI(uri); err != nil || got != "x/d/"+name {
			t.Errorf("ParseURI(%q) = %q, %v; want %q", uri, got, err, "x/d/"+name)
		}
		// The same name for a skill.
		if got, err := skills.ParseURI((&skills.Skill{Path: "d/" + name}).URI("SKILL.md")); err != nil || got != "d/"+name+"/SKILL.md" {
			t.Errorf("a skill named %q is %q, %v", name, got, err)
		}
		if other != name {
			if clean, err := skills.CleanPath(other); err == nil && clean == other && outer.URI("d/"+other) == uri {
				t.Errorf("%q and %q have one URI", name, other)
			}
		}
	})
}

// FuzzLinks makes a tree of directories, skills and links from bytes, each of which stands for a
// name or a step of a target. Whatever the links are, the scan ends, every skill it finds lies in the
// root, and nothing of outside is read.
func FuzzLinks(f *testing.F) {
	if runtime.GOOS == "windows" {
		f.Skip("missing capability: symbolic links without privilege")
	}
	for _, seed := range []string{"", "\x00\x01\x02", "\x10\x21\x32\x43\x54\x65\x76\x87\x98\xa9", strings.Repeat("\x07\x61\x33", 20), "\xff\xfe\xfd\xfc\xfb\xfa"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		base := t.TempDir()
		root := filepath.Join(base, "root")
		writeTree(t, base, map[string]string{"root/good/SKILL.md": document("good", "d"), "root/good/x": "x", "out/SKILL.md": document("out", "SECRET"), "out/x": "SECRET", "out/a/SKILL.md": document("a", "SECRET")})
		growTree(t, root, base, data)
		snapshot, err := skills.Scan(context.Background(), []skills.Root{{Dir: root}}, &skills.ScanOptions{MaxFiles: 200})
		if err != nil {
			t.Fatal(err)
		}
		// Where the root has become a skill itself, the path of the good one begins with its name.
		if snapshot.Skill("good") == nil && snapshot.Skill("root/good") == nil {
			t.Errorf("the good skill is gone: %v", snapshot.Diagnostics)
		}
		for _, sk := range snapshot.Skills {
			if strings.Contains(sk.Description(), "SECRET") {
				t.Errorf("%s was loaded from outside", sk.Path)
			}
			x, err := sk.Index(context.Background())
			if err != nil {
				continue
			}
			for _, file := range x.Files {
				content, err := sk.Read(context.Background(), file.Path, 1<<20)
				if err != nil || strings.Contains(string(content.Data), "SECRET") || !content.Matches {
					t.Errorf("Read(%s) of %s = %+v, %v", file.Path, sk.Path, content, err)
				}
				if back, path, err := snapshot.Resolve(sk.URI(file.Path)); err != nil || back.Path+"/"+path != sk.Path+"/"+file.Path {
					t.Errorf("Resolve(%s) = %v, %q, %v", sk.URI(file.Path), back, path, err)
				}
			}
			if err := sk.Verify(context.Background()); err != nil {
				t.Errorf("Verify of %s = %v", sk.Path, err)
			}
		}
	})
}

// growTree makes an entry of every three bytes: where, what, and, for a link, what it leads to. What
// cannot be made is left out, as is what a link would put outside of base.
func growTree(t *testing.T, root, base string, data []byte) {
	t.Helper()
	within, err := os.OpenRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	defer within.Close()
	names := []string{"a", "b", "c", "good", "references", "a/b", "b/a", "good/a"}
	steps := []string{"..", ".", "a", "b", "c", "good", "SKILL.md", "x", "../..", "../../out", base + "/out", base + "/out/x", root, "/etc/passwd", "nothing", "../root"}
	for ; len(data) >= 3 && len(data) < 300; data = data[3:] {
		where := filepath.Join("root", names[data[0]%8], []string{"", "a", "b", "x", "SKILL.md", "skill.md", "c", "d"}[data[0]>>3%8])
		within.MkdirAll(filepath.Dir(where), 0o755)
		switch data[1] % 4 {
		case 0:
			within.MkdirAll(where, 0o755)
		case 1:
			if file, err := within.OpenFile(where, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
				fmt.Fprint(file, document("s", "d"))
				file.Close()
			}
		default:
			within.Symlink(steps[data[1]>>2%16]+[]string{"", "/" + steps[data[2]%8], "/" + steps[data[2]%16]}[data[2]>>4%3], where)
		}
	}
}
