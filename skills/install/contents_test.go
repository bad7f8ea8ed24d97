package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// linked commits files and links, and returns the installation of the skill a from them.
func linked(t *testing.T, files, links map[string]string, req Request) (place string, err error) {
	t.Helper()
	r := newRepo(t)
	r.commit(files)
	for name, to := range links {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(r.dir, name)); err != nil {
			t.Skip("missing capability: symbolic links:", err)
		}
	}
	r.run("add", "--all")
	r.run("commit", "--quiet", "-m", "links")
	m := newMachine(t).withGit(r)
	req.Source = r.url
	err = apply(t.Context(), m.open(), req)
	return filepath.Join(m.state, installedDir, "third-party", "a"), err
}

// A link to a directory that contains the link is not taken: it would contain itself.
func TestLinkToAbove(t *testing.T) {
	place, err := linked(t, map[string]string{"skills/a/SKILL.md": skillText("a"), "skills/b/x.md": "x"},
		map[string]string{"skills/a/up": "../../skills", "skills/a/b": "../b"}, Request{Skills: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(place, "b", "x.md")); err != nil || string(data) != "x" {
		t.Errorf("the linked directory = %q, %v", data, err)
	}
	if _, err := os.Lstat(filepath.Join(place, "up")); err == nil {
		t.Error("the directory above was installed")
	}
}

// A link out of the part that was requested leads to the rest of the repository, also over other links.
func TestLinkOutOfPart(t *testing.T) {
	place, err := linked(t,
		map[string]string{"part/a/SKILL.md": skillText("a"), "shared/x.md": "x", "shared/deep/y.md": "y"},
		map[string]string{"part/a/x.md": "../../alias/x.md", "alias": "shared", "part/a/all": "../../shared",
			"shared/deep/z.md": "../x.md", "part/a/none": "../../shared/none", "part/a/out": "../../../out"},
		Request{Subdir: "part/a"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"x.md": "x", "all/x.md": "x", "all/deep/y.md": "y",
		"all/deep/z.md": "x"} {
		if data, err := os.ReadFile(filepath.Join(place, name)); err != nil || string(data) != want {
			t.Errorf("%s = %q, %v", name, data, err)
		}
	}
	for _, name := range []string{"none", "out"} {
		if _, err := os.Lstat(filepath.Join(place, name)); err == nil {
			t.Errorf("%s was installed", name)
		}
	}
}

// The files that the links of a source lead to are bounded in number and in bytes.
func TestLinkLimits(t *testing.T) {
	for _, used := range []struct {
		files int
		bytes int64
	}{{files: maxTaken - 1}, {bytes: maxTakenBytes - 3}} {
		f := &fetched{}
		f.done.files, f.done.bytes = used.files, used.bytes
		err := errors.Join(f.count(2), f.count(2))
		if _, ok := errors.AsType[*SourceError](err); !ok {
			t.Errorf("two files after %d with %d bytes = %v", used.files, used.bytes, err)
		}
	}
}

// A skill with too many files behind its links is refused: which of them are installed would depend on chance.
func TestLinkToMany(t *testing.T) {
	files := map[string]string{"skills/a/SKILL.md": skillText("a")}
	for n := range maxSkillFiles {
		files[fmt.Sprintf("many/%d", n)] = ""
	}
	_, err := linked(t, files, map[string]string{"skills/a/many": "../../many"}, Request{Skills: []string{"a"}})
	if err == nil || !strings.Contains(err.Error(), "has more than 2000 files") {
		t.Errorf("a link to %d files = %v", maxSkillFiles, err)
	}
}

func TestPathsAfter(t *testing.T) {
	for text, want := range map[string]string{
		"bash ${CLAUDE_PLUGIN_ROOT}/bin/tool.sh --x":                         "bin/tool.sh",
		`"$CLAUDE_PLUGIN_ROOT"/bin/tool.sh`:                                  "bin/tool.sh",
		"See `${PLUGIN_ROOT}/docs/a.md`.":                                    "docs/a.md",
		"Read ${PLUGIN_ROOT}/docs/a.md.":                                     "docs/a.md. docs/a.md",
		"${CLAUDE_PLUGIN_ROOT:-$(pwd)}/bin/x":                                "bin/x",
		`$env:CLAUDE_PLUGIN_ROOT\bin\x.ps1`:                                  "bin/x.ps1",
		`%CLAUDE_PLUGIN_ROOT%\bin\x.cmd`:                                     "bin/x.cmd",
		"${CLAUDE_PLUGIN_ROOT}/skills/*/SKILL.md":                            "skills",
		"$CLAUDE_PLUGIN_ROOT/templates/${lang}.md":                           "templates",
		"$CLAUDE_PLUGIN_ROOT/tem${x}":                                        "",
		"cd $CLAUDE_PLUGIN_ROOT && ls":                                       "",
		"cd ${CLAUDE_PLUGIN_ROOT}/ && ls":                                    "",
		"${CLAUDE_PLUGIN_ROOT}/../../etc/passwd":                             "",
		`os.path.join(os.environ["CLAUDE_PLUGIN_ROOT"], "data", "x.json")`:   "data/x.json data",
		`path.join(process.env.CLAUDE_PLUGIN_ROOT, 'data/x.json')`:           "data/x.json",
		`Path(os.environ.get("CLAUDE_PLUGIN_ROOT", "")) / "lib" / "util.py"`: "lib/util.py lib",
	} {
		var got []string
		for _, choices := range afterRoot([]byte(text)) {
			got = append(got, choices...)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("afterRoot(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzAfterRoot(f *testing.F) {
	f.Add("${CLAUDE_PLUGIN_ROOT}/../x PLUGIN_ROOT\"], \"a\", \"../b\" PLUGIN_ROOT:-}\\\\")
	f.Fuzz(func(t *testing.T, text string) {
		for _, choices := range afterRoot([]byte(text)) {
			for _, name := range choices {
				if slices.Contains(strings.Split(name, "/"), "..") || filepath.IsAbs(name) {
					t.Errorf("afterRoot(%q) = %q", text, name)
				}
			}
		}
	})
}

// The files of its plugin that a skill names are installed with it, and those that these load; no others, not
// more than the limits allow.
func TestNamedInPlugin(t *testing.T) {
	big := strings.Repeat("x", maxNamedBytes/2+1)
	files := map[string]string{
		"p/.claude-plugin/plugin.json": `{"name": "p", "version": "1"}`,
		"p/skills/a/SKILL.md": skillText("a") + "Run ${CLAUDE_PLUGIN_ROOT}/bin/tool.py, read ../../docs/a.md, " +
			"../../../outside.md, ../b/SKILL.md and ${CLAUDE_PLUGIN_ROOT}/big/1, ${CLAUDE_PLUGIN_ROOT}/big/2.\n" +
			"${CLAUDE_PLUGIN_ROOT}/skills/a/scripts/own.sh",
		"p/skills/a/scripts/own.sh": "#!/bin/sh\n",
		"p/skills/b/SKILL.md":       skillText("b"),
		"p/bin/tool.py":             "from util import x\nopen(os.environ['CLAUDE_PLUGIN_ROOT'] + '/data/d.json')\n",
		"p/bin/util.py":             "x = 1\n", "p/bin/other.py": "", "p/data/d.json": "{}", "p/data/e.json": "{}",
		"p/docs/a.md": "See ../docs/b.md.", "p/docs/b.md": "B.", "outside.md": "O.", "p/big/1": big, "p/big/2": big, "p/hooks/h.sh": "",
	}
	dir := write(t, t.TempDir(), files)
	m := newMachine(t)
	if err := apply(t.Context(), m.open(), Request{Source: dir, Plugin: "p"}); err != nil {
		t.Fatal(err)
	}
	lock, err := ReadLock(LockFile(m.state))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, taken := range lock.Find("p/a").Taken {
		got = append(got, strings.TrimPrefix(taken.Path, skills.PluginDir+"/"))
		if taken.From != "p/"+got[len(got)-1] {
			t.Errorf("%s is from %s", taken.Path, taken.From)
		}
	}
	want := []string{".claude-plugin/plugin.json", "big/1", "bin/tool.py", "bin/util.py", "data/d.json", "docs/a.md",
		"skills/a/scripts/own.sh"}
	if !slices.Equal(got, want) {
		t.Errorf("taken = %q, want %q", got, want)
	}
	if lock.Find("p/b").Taken != nil {
		t.Errorf("taken for a skill that names nothing: %v", lock.Find("p/b").Taken)
	}
}

// What is given back, since its whole exceeds the limits of a skill, does not count for the source.
func TestNamedGivenBack(t *testing.T) {
	big := strings.Repeat("x", maxNamedBytes-1)
	files := map[string]string{".claude-plugin/plugin.json": `{"name": "p"}`, "big/1": big, "big/2": big}
	for n := range maxTakenBytes/len(big) + 2 {
		files[fmt.Sprintf("skills/s%d/SKILL.md", n)] = skillText("s") + "Read ${CLAUDE_PLUGIN_ROOT}/big/.\n"
	}
	m := newMachine(t)
	m.install(Request{Source: write(t, t.TempDir(), files), Plugin: "p"})
}

// A signature is about the files of a skill: files of its plugin would be installed under it, unsigned. What its
// links lead to must be signed.
func TestSignedAlone(t *testing.T) {
	ann := newSigner(t)
	own := map[string]string{"SKILL.md": skillText("a") + "Run ${CLAUDE_PLUGIN_ROOT}/bin/tool.sh\n"}
	files := map[string]string{"plugin.json": `{"name": "p"}`, "bin/tool.sh": "#!/bin/sh\n", "shared.md": "Shared.",
		"skills/a/SKILL.md": own["SKILL.md"], "skills/a/skill.oms.sig": ann.model(own)}
	dir := write(t, t.TempDir(), files)
	m := newMachine(t)
	req := Request{Source: dir, Plugin: "p", Access: Access{SignedBy: ann.key}}
	if err := apply(t.Context(), m.open(), req); err != nil {
		t.Fatal(err)
	}
	lock, err := ReadLock(LockFile(m.state))
	if err != nil || len(lock.Skills) != 1 || len(lock.Skills[0].Files) != 2 || lock.Skills[0].Taken != nil {
		t.Errorf("installed %+v, %v", lock.Skills, err)
	}
	if err := os.Symlink("../../shared.md", filepath.Join(dir, "skills/a/shared.md")); err != nil {
		t.Skip("missing capability: symbolic links:", err)
	}
	if err := apply(t.Context(), newMachine(t).open(), req); err == nil {
		t.Error("a file that no signature is about was installed")
	}
}
