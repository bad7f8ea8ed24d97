package authoring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills/source/plugin"
)

// tree writes files below a new directory, and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func skill(name string) string { return "---\nname: " + name + "\ndescription: Does it.\n---\nText.\n" }

func TestArchiveName(t *testing.T) {
	for name, want := range map[string]string{
		"x":         "x.tar.gz",
		"x.zip":     "x.tar.gz",
		"x.skill":   "x.tar.gz",
		"x.tgz":     "x.tar.gz",
		"x.tar":     "x.tar.gz",
		"dir/x/":    "dir/x.tar.gz",
		"x.1.2.zip": "x.1.2.tar.gz",
	} {
		if got := ArchiveName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// What is published must be one skill or several of different names, and lies outside of them.
func TestPublish(t *testing.T) {
	one := map[string]string{"SKILL.md": skill("a")}
	two := map[string]string{"a/SKILL.md": skill("a"), "b/SKILL.md": skill("b"), "b/.env": "TOKEN=x"}
	same := map[string]string{"x/a/SKILL.md": skill("a"), "y/a/SKILL.md": skill("a")}
	pack := func(file string) func(*Publisher, string) error {
		return func(p *Publisher, dir string) error {
			_, err := p.Pack(t.Context(), dir, strings.ReplaceAll(file, "DIR", dir))
			return err
		}
	}
	push := func(p *Publisher, dir string) error {
		_, err := p.packAll(t.Context(), dir, &Published{})
		return err
	}
	site := func(name string) func(*Publisher, string) error {
		return func(p *Publisher, dir string) error {
			_, err := p.Site(t.Context(), dir, strings.ReplaceAll(name, "DIR", dir))
			return err
		}
	}
	for _, tt := range []struct {
		name    string
		files   map[string]string
		publish func(*Publisher, string) error
		want    string // a part of the error
		secrets int
	}{
		{"archive", one, pack("x.tar.gz"), "", 0},
		{"named by the skill", one, pack(""), "", 0},
		{"archive within", one, pack("DIR/x.tar.gz"), "so that the next time it would be published too", 0},
		{"archive of two", two, pack("x.tar.gz"), "has 2 skills", 0},
		{"archive of none", map[string]string{"README.md": ""}, pack("x.tar.gz"), "there is no skill", 0},
		{"archive of a broken one", map[string]string{"SKILL.md": "---\nname: [\n---\n"}, pack("x.tar.gz"), "SKILL.md", 0},
		{"registry", two, push, "", 1},
		{"registry with one name twice", same, push, "a is the name of two skills", 0},
		{"site", two, site("site"), "", 1},
		{"site within", two, site("DIR/site"), "so that the next time it would be published too", 0},
		{"site of none", map[string]string{"README.md": ""}, site("site"), "there is no skill", 0},
	} {
		t.Chdir(t.TempDir())
		secrets := 0
		err := tt.publish(&Publisher{Warn: func(string) { secrets++ }}, tree(t, tt.files))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		case secrets != tt.secrets:
			t.Errorf("%s: %d warnings of secrets, want %d", tt.name, secrets, tt.secrets)
		}
	}
}

func TestPackDefault(t *testing.T) {
	t.Chdir(t.TempDir())
	made, err := (&Publisher{}).Pack(t.Context(), tree(t, map[string]string{"SKILL.md": skill("a")}), "")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat("a.tar.gz"); err != nil || info.Size() == 0 || made.File != "a.tar.gz" {
		t.Errorf("file %q, %v", made.File, err)
	}
}

func TestPlugin(t *testing.T) {
	dir := tree(t, map[string]string{"skills/a/SKILL.md": skill("a"), "skills/b/SKILL.md": skill("b")})
	made := &plugin.Published{Name: "p", Version: "1.0.0"}
	files, err := Plugin(t.Context(), dir, made)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	want := &plugin.Published{Name: "p", Version: "1.0.0", Description: "2 skills: Does it.",
		Skills: []string{"skills/a", "skills/b"}}
	if diff := cmp.Diff(want, made); diff != "" || len(files) == 0 {
		t.Errorf("%d files (-want +got):\n%s", len(files), diff)
	}
}
