package e2e

import (
	"archive/zip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archive writes a zip archive of paths and contents, in the place of one that is there.
func archive(t *testing.T, path string, files map[string]string) {
	t.Helper()
	part, err := os.Create(path + ".part")
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(part)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		entry, err := w.Create(name)
		if err == nil {
			_, err = io.WriteString(entry, files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := part.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part.Name(), path); err != nil {
		t.Fatal(err)
	}
}

// demoArchive is the demo skill, with one nested in it, as an archive of its own.
func demoArchive(t *testing.T) (path string, files map[string]string) {
	t.Helper()
	files = demoSkill()
	files["demo/inner/SKILL.md"] = "---\nname: inner\ndescription: A skill within another.\n---\n# Inner\n"
	path = filepath.Join(t.TempDir(), "skills.zip")
	archive(t, path, files)
	return path, files
}

// text is the text of the first content of resources/read.
func (p *process) text(uri string) string {
	p.t.Helper()
	a := p.ask("resources/read", `{"uri":`+quote(uri)+`}`)
	if a.Error != nil {
		return a.Error.Message
	}
	var result struct{ Contents []struct{ Text string } }
	if err := json.Unmarshal(a.Result, &result); err != nil || len(result.Contents) == 0 {
		p.t.Fatalf("resources/read %s = %s, %v", uri, a.Result, err)
	}
	return result.Contents[0].Text
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("e2e: a string that is no JSON")
	}
	return string(b)
}

// An archive is served like a directory: catalogue, skills, files, resources, scripts.
func TestArchive(t *testing.T) {
	t.Parallel()
	path, files := demoArchive(t)
	p := serve(t, allowRun(path, "ok.sh")...)
	p.initialize()
	loaded := p.tool("load_skill", map[string]any{"name": "demo"})
	for _, want := range []string{"----- skill demo ", "# Demo", "- scripts/ok.sh (runnable)\n", "- inner/SKILL.md"} {
		if !strings.Contains(loaded.text(), want) {
			t.Errorf("load_skill lacks %q:\n%s", want, loaded.text())
		}
	}
	if inner := p.tool("load_skill", map[string]any{"name": "demo/inner"}); inner.IsError || !strings.Contains(inner.text(), "# Inner") {
		t.Errorf("load_skill demo/inner = %s", inner.text())
	}
	if tools := p.ask("tools/list", "{}"); !strings.Contains(string(tools.Result), "A skill for tests.") || !strings.Contains(string(tools.Result), "A skill within another.") {
		t.Errorf("the catalogue lacks a skill of the archive: %s", tools.Result)
	}
	if notes := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"}); notes.text() != files["demo/references/notes.md"] {
		t.Errorf("read_skill_resource = %q", notes.text())
	}
	if list := p.ask("resources/list", "{}"); !strings.Contains(string(list.Result), `"skill://demo/SKILL.md"`) {
		t.Errorf("resources/list = %s", list.Result)
	}
	for uri, want := range map[string]string{"skill://demo/SKILL.md": files["demo/SKILL.md"], "skill://demo/references/notes.md": files["demo/references/notes.md"]} {
		if got := p.text(uri); got != want {
			t.Errorf("resources/read %s = %q", uri, got)
		}
	}
	if outside := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "../demo/SKILL.md"}); !strings.Contains(outside.text(), `"resource_path_invalid"`) {
		t.Errorf("a path out of the skill = %s", outside.text())
	}
	needSandbox(t, p)
	ran := p.script("ok.sh", "a b")
	if ran.IsError || !strings.Contains(ran.text(), "stdout:\nran-ok a b\n") {
		t.Errorf("run_skill_script = %s", ran.text())
	}
	if denied := p.script("other.sh"); !strings.Contains(denied.text(), `"script_not_allowlisted"`) {
		t.Errorf("a script that is not allowlisted = %s", denied.text())
	}
	p.end()
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside the archive lie %v, %v", entries, err)
	}
}

// After an archive was replaced, a read says so, a load gives the other text, and a run is refused
// however often the skill is loaded again.
func TestArchiveReplaced(t *testing.T) {
	t.Parallel()
	path, files := demoArchive(t)
	p := serve(t, allowRun(path, "ok.sh")...).loaded()
	needSandbox(t, p)
	files["demo/scripts/ok.sh"] = "#!/bin/bash\necho ran-evil\n"
	files["demo/references/notes.md"] = "Other notes.\n"
	archive(t, path, files)
	notes := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"})
	if first, rest, _ := strings.Cut(notes.text(), "\n"); !strings.HasPrefix(first, "[changed since it was loaded: sha256:") || rest != "Other notes.\n" {
		t.Errorf("read_skill_resource = %q", notes.text())
	}
	ran := p.script("ok.sh")
	if !ran.IsError || !strings.Contains(ran.text(), `"script_snapshot_mismatch"`) || strings.Contains(ran.text(), "ran-evil") {
		t.Errorf("run_skill_script = %s", ran.text())
	}
	files["demo/SKILL.md"] = "---\nname: demo\ndescription: A skill for tests.\n---\n# Another text\n"
	archive(t, path, files)
	if again := p.tool("load_skill", map[string]any{"name": "demo"}); again.IsError || !strings.Contains(again.text(), "# Another text") {
		t.Errorf("load_skill after a change = %s", again.text())
	}
	if ran := p.script("ok.sh"); !ran.IsError || strings.Contains(ran.text(), "ran-evil") {
		t.Errorf("a script that was approved with another content runs after the skill was loaded again: %s", ran.text())
	}
	if err := os.WriteFile(path, []byte("no archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"})
	if !broken.IsError || strings.Contains(broken.text(), filepath.Dir(path)) {
		t.Errorf("a read from a broken archive = %s", broken.text())
	}
}

// A directory and archives side by side: the earlier root wins, the other skill of that path is
// shadowed, prefixes keep both.
func TestArchivePrecedence(t *testing.T) {
	t.Parallel()
	path, files := demoArchive(t)
	dir := tree(t, map[string]string{
		"demo/SKILL.md": "---\nname: demo\ndescription: From the directory.\n---\n# Directory\n", "other/SKILL.md": "---\nname: other\ndescription: Another.\n---\n# Other\n",
	})
	for _, test := range []struct {
		name  string
		roots []string
		want  map[string]string // path of a skill and the root it is from
	}{
		{"archive first", []string{path, dir}, map[string]string{"demo": path, "demo/inner": path, "other": dir}},
		{"directory first", []string{dir, path}, map[string]string{"demo": dir, "other": dir}},
		{"more trusted archive", []string{"user=" + dir, "org=" + path}, map[string]string{"demo": path, "demo/inner": path, "other": dir}},
		{"prefix", []string{dir, "user:acme/zip=" + path}, map[string]string{"demo": dir, "other": dir, "acme/zip/demo": path, "acme/zip/demo/inner": path}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := []string{"list", "--json", "--state", t.TempDir()}
			for _, root := range test.roots {
				args = append(args, "--skills-root", root)
			}
			out := stdoutOf(t, args...)
			var rows []struct {
				Path, Root string
				Resources  []struct{ Path string }
			}
			if err := json.Unmarshal(out, &rows); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, row := range rows {
				got[row.Path] = row.Root
			}
			if len(got) != len(test.want) {
				t.Errorf("skills = %v, want %v", got, test.want)
			}
			for skill, root := range test.want {
				if got[skill] != root {
					t.Errorf("%s is from %q, want %q", skill, got[skill], root)
				}
			}
		})
	}
	p := serve(t, "--skills-root", dir, "--skills-root", "user:acme="+path)
	p.initialize()
	if got := p.text("skill://demo/SKILL.md"); !strings.Contains(got, "# Directory") {
		t.Errorf("skill://demo/SKILL.md = %q", got)
	}
	if got := p.text("skill://acme/demo/SKILL.md"); got != files["demo/SKILL.md"] {
		t.Errorf("skill://acme/demo/SKILL.md = %q", got)
	}
}

// An archive that breaks the rules is refused whole and the reason told; other roots are served.
func TestArchiveRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad, missing := filepath.Join(dir, "bad.zip"), filepath.Join(dir, "missing.ZIP")
	archive(t, bad, map[string]string{"demo/SKILL.md": "---\nname: demo\ndescription: In a bad archive.\n---\n", "../../etc/cron.d/x": "", "demo/skill.md": ""})
	good, _ := demoArchive(t)
	args := []string{"--skills-root", bad, "--skills-root", missing, "--skills-root", good}
	list := exec.Command(binary, append([]string{"list"}, args...)...)
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	if list.ProcessState.ExitCode() != 1 || strings.Contains(string(out), "In a bad archive.") || !strings.Contains(string(out), "A skill for tests.") {
		t.Errorf("list = %s, %v", out, err)
	}
	for _, want := range []string{bad + ": ", `not a usable zip archive: "../../etc/cron.d/x" is refused`, `"demo/skill.md" has a name that differs`, missing + ": ", "file does not exist"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("list says %q, not %q", stderr.String(), want)
		}
	}
	strict, err := exec.Command(binary, append([]string{"list", "--strict-roots"}, args...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(strict), "not a usable zip archive") {
		t.Errorf("list --strict-roots = %s, %v", strict, err)
	}
	doctor, _ := exec.Command(binary, append([]string{"doctor", "--state", t.TempDir()}, args...)...).CombinedOutput()
	for _, want := range []string{"ok skills: " + good + " (user): 2 skills", bad + ": ", "not a usable zip archive"} {
		if !strings.Contains(string(doctor), want) {
			t.Errorf("doctor lacks %q:\n%s", want, doctor)
		}
	}
	p := serve(t, args...)
	p.initialize()
	if loaded := p.tool("load_skill", map[string]any{"name": "demo"}); loaded.IsError || !strings.Contains(loaded.text(), "# Demo") {
		t.Errorf("load_skill = %s", loaded.text())
	}
}

// An archive with a SKILL.md at its top is one skill, named by the archive. One that lies in a
// directory with skills is a file like others.
func TestArchiveOfOneSkill(t *testing.T) {
	dir := tree(t, map[string]string{"host/SKILL.md": "---\nname: host\ndescription: Has an archive.\n---\n"})
	path := filepath.Join(dir, "host", "pdf.zip")
	archive(t, path, map[string]string{"SKILL.md": "---\nname: pdf\ndescription: Reads PDF.\n---\n# PDF\n"})
	out, err := exec.Command(binary, "list", "--skills-root", "org="+path).Output()
	if err != nil || !strings.Contains(string(out), "✓ pdf ") {
		t.Errorf("list of the archive = %s, %v", out, err)
	}
	out, err = exec.Command(binary, "list", "--skills-root", dir).Output()
	if err != nil || !strings.Contains(string(out), "✓ host ") || strings.Contains(string(out), "pdf") {
		t.Errorf("list of the directory = %s, %v", out, err)
	}
}
