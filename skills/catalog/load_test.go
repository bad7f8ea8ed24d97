package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
)

// writeSkills makes a root with a few skills of every state.
func writeSkills(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, more := range map[string]string{
		"pdf": "", "csv": "", "notes": "", "secret": "disable-model-invocation: true\n", "off": "", "needs": "metadata:\n  requires: no-such-command\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		text := "---\nname: " + name + "\ndescription: What " + name + " is for.\n" + more + "---\nBody\n"
		if err := os.WriteFile(filepath.Join(dir, name, "SKILL.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadAndRender(t *testing.T) {
	dir := writeSkills(t)
	scan := &skills.ScanOptions{Disabled: []string{"off"}, Pinned: []string{"notes"}, NameOnly: []string{"csv"}, HasCommand: func(string) bool { return false }}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	at := func(sk *skills.Skill) string { return "/" + sk.Dir }
	tests := []struct {
		name string
		opts catalog.Options
		want string
	}{
		{"choices of the scan", catalog.Options{}, catalog.DefaultLead + "\nnotes: What notes is for. (DIR/notes/SKILL.md)\ncsv (DIR/csv/SKILL.md)\npdf: What pdf is for. (DIR/pdf/SKILL.md)"},
		{"own choices", catalog.Options{Pinned: []string{"pdf"}, NameOnly: []string{"notes"}, Location: at, Lead: "Skills:"}, "Skills:\nnotes (/notes)\npdf: What pdf is for. (/pdf)\ncsv (/csv)"},
		{"budget", catalog.Options{Budget: 58, Tail: catalog.SearchTail, Location: at}, "notes: What notes is for. (/notes)\ncsv (/csv)\npdf (/pdf)"},
		{"xml", catalog.Options{
			Format: catalog.FormatXML, Budget: 170, Location: func(sk *skills.Skill) string { return "/at/" + sk.Dir },
			NameOnly: []string{"notes", "pdf"}, Tail: catalog.SearchTail,
		}, "<available_skills>\n<skill>\n<name>\nnotes\n</name>\n<location>\n/at/notes\n</location>\n</skill>\n<more>2 more: use search_skills</more>\n</available_skills>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := catalog.LoadAndRender(t.Context(), []skills.Root{{Dir: dir, Tier: skills.TierUser}}, scan, tt.opts)
			if want := strings.ReplaceAll(tt.want, "DIR", real); err != nil || got != want {
				t.Errorf("LoadAndRender = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestLoadAndRenderErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := catalog.LoadAndRender(ctx, []skills.Root{{Dir: writeSkills(t)}}, nil, catalog.Options{}); !errors.Is(err, context.Canceled) || text != "" {
		t.Errorf("LoadAndRender of a cancelled context = %q, %v", text, err)
	}
	missing := []skills.Root{{Dir: filepath.Join(t.TempDir(), "missing")}}
	if text, err := catalog.LoadAndRender(t.Context(), missing, nil, catalog.Options{}); err != nil || text != "" {
		t.Errorf("LoadAndRender of a missing root = %q, %v", text, err)
	}
	strict := &skills.ScanOptions{StrictRoots: true}
	if _, err := catalog.LoadAndRender(t.Context(), missing, strict, catalog.Options{}); err == nil {
		t.Error("LoadAndRender of a missing root succeeds with StrictRoots")
	}
}

// TestDefaultBudget makes sure that the zero value renders something, and not without a limit.
func TestDefaultBudget(t *testing.T) {
	dir := t.TempDir()
	for i := range 60 {
		name := fmt.Sprintf("long-%02d", i)
		text := "---\nname: " + name + "\ndescription: " + strings.Repeat("word ", 200) + "\n---\nBody\n"
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "SKILL.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := catalog.LoadAndRender(t.Context(), []skills.Root{{Dir: dir}}, nil, catalog.Options{})
	if n := length(got); err != nil || n > catalog.DefaultBudget || n < catalog.DefaultBudget-500 {
		t.Errorf("LoadAndRender has %d characters, %v, want about %d", n, err, catalog.DefaultBudget)
	}
}
