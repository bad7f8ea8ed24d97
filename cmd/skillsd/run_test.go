package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/authoring"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// run runs one command line in this process, in an empty environment.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"SKILLSD_STATE": t.TempDir()} // whoever runs the tests may have installed skills
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, Process: config.Process{Env: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}}}
	code = a.main(t.Context(), args)
	return code, out.String(), errs.String()
}

// write makes a file with its directories.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func skillText(name, rest string) string {
	return "---\nname: " + name + "\ndescription: Does " + name + ".\n" + rest + "---\nBody.\n"
}

// More skills than are checked at a time keep their order, and every one is judged.
func TestValidateManyInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const n = 1200
	for i := range n {
		name := fmt.Sprintf("skill-%04d", i)
		rest := ""
		if i%100 == 7 {
			rest = "extra: x\n"
		}
		write(t, filepath.Join(dir, name, "SKILL.md"), skillText(name, rest))
	}
	code, stdout, stderr := run(t, "validate", dir)
	if want := fmt.Sprintf("%d of %d skills strictly valid; %d problems\n", n-n/100, n, n/100); code != exit.Problems || stderr != want {
		t.Errorf("validate = %d, stderr %q, want %d, %q", code, stderr, exit.Problems, want)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for i, line := range lines {
		if want := filepath.ToSlash(dir) + fmt.Sprintf("/skill-%04d/SKILL.md:4: V8: ", i*100+7); !strings.HasPrefix(line, want) {
			t.Errorf("line %d = %q, want it to start %q", i, line, want)
		}
	}
	if len(lines) != n/100 {
		t.Errorf("%d lines, want %d", len(lines), n/100)
	}
}

// An archive is validated in place; a skill at its top has the archive's name.
func TestValidateArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	archive := func(name string, files map[string]string) string {
		var buf bytes.Buffer
		w := zip.NewWriter(&buf)
		for file, text := range files {
			f, err := w.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		write(t, path, buf.String())
		return path
	}
	many := archive("many.zip", map[string]string{"good/SKILL.md": skillText("good", ""), "bad/SKILL.md": skillText("Bad", "")})
	one := archive("one.zip", map[string]string{"SKILL.md": skillText("one", "")})
	none := archive("none.zip", map[string]string{"readme.md": "Nothing here.\n"})
	broken := filepath.Join(dir, "broken.zip")
	write(t, broken, "no archive")
	tests := []struct {
		name, path string
		code       int
		want       string
	}{
		{"several", many, exit.Problems, "many.zip/bad/SKILL.md:2: V11: "},
		{"at the top", one, exit.OK, ""},
		{"none", none, exit.Problems, "none.zip: V3: "},
		{"no archive", broken, exit.Problems, "broken.zip: unreadable-root: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, _ := run(t, "validate", tt.path)
			if code != tt.code || !strings.Contains(stdout, tt.want) || tt.want == "" && stdout != "" {
				t.Errorf("validate %s = %d, %q, want %d, %q", tt.path, code, stdout, tt.code, tt.want)
			}
		})
	}
}

// The strict verdict that list shows is the one that validate gives.
func TestListAgreesWithValidate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good":   skillText("good", "license: MIT\n"),
		"flow":   skillText("flow", "metadata: {a: b}\n"),
		"extra":  skillText("extra", "model: x\n"),
		"other":  skillText("name", ""),
		"bom":    "\ufeff" + skillText("bom", ""),
		"quoted": skillText("\"quoted\"", ""),
	} {
		write(t, filepath.Join(dir, name, "SKILL.md"), text)
	}
	_, stdout, _ := run(t, "list", "--json", "--skills-root", dir)
	var rows []struct {
		Path       string
		Form       skills.Form
		Violations []report.Problem
	}
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ = run(t, "validate", "--json", dir)
	var verdicts []authoring.Verdict
	if err := json.Unmarshal([]byte(stdout), &verdicts); err != nil {
		t.Fatal(err)
	}
	listed, validated, reasons := map[string]bool{}, map[string]bool{}, map[string][]report.Problem{}
	for _, row := range rows {
		listed[row.Path] = row.Form.Strict
		reasons[row.Path] = row.Violations
	}
	for _, v := range verdicts {
		validated[filepath.Base(v.Dir)] = v.Valid
		if diff := cmp.Diff(v.Errors, reasons[filepath.Base(v.Dir)]); diff != "" {
			t.Errorf("%s: violations of list differ from those of validate (-validate +list):\n%s", v.Dir, diff)
		}
	}
	if diff := cmp.Diff(validated, listed); diff != "" || len(listed) != 6 || !listed["good"] || listed["flow"] {
		t.Errorf("strict verdicts of list differ from those of validate (-validate +list):\n%s%v", diff, listed)
	}
}

// Files that cannot be read cost the facts about them, not the list.
func TestListKeepsSkillsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a", "SKILL.md"), skillText("a", ""))
	write(t, filepath.Join(dir, "b", "SKILL.md"), skillText("b", ""))
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "b", "link")); err != nil {
		t.Skip("missing capability: symbolic links:", err)
	}
	code, stdout, stderr := run(t, "list", "--skills-root", dir)
	if code != exit.OK || !strings.Contains(stdout, "✓ a ") || !strings.Contains(stdout, "✓ b ") ||
		!strings.Contains(stderr, "warning: b/link: skill-resource-outside-root: ") || strings.Contains(stderr, "/etc/passwd") {
		t.Errorf("list = %d\n%s%s", code, stdout, stderr)
	}
}
