package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// TestStrictReference compares the strict verdict with the reference itself, where the Python here
// has it (PYTHONPATH names its sources and those of its YAML library).
func TestStrictReference(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("testdata", "oracle", "reference.py"))
	if err != nil {
		t.Fatal(err)
	}
	if exec.CommandContext(t.Context(), "python3", "-c", "import skills_ref.parser, skills_ref.validator").Run() != nil {
		t.Skip("missing capability: a python3 with skills_ref and strictyaml")
	}
	check := func(t *testing.T, samples []sample) {
		type answer struct{ Errors []string }
		differ, crashes := 0, 0
		for i, a := range ask[answer](t, samples, "python3", script) {
			s := samples[i]
			got := frontmatter.Validate(s.dir, "SKILL.md", s.data)
			if len(a.Errors) > 0 && strings.HasPrefix(a.Errors[0], "crash: ") {
				crashes++
				if len(got) > 0 {
					continue
				}
			}
			if gists, want := gistsOf(got), gistsOfReference(a.Errors); !slices.Equal(gists, want) {
				differ++
				t.Errorf("%s: %q, the reference says %q\n%.300q", s.name, gists, want, s.data)
			}
		}
		t.Logf("%d files, %d different, %d of which the reference dies", len(samples), differ, crashes)
	}
	t.Run("recorded", func(t *testing.T) { check(t, recorded(t)) })
	for i, dir := range corpora() {
		t.Run(fmt.Sprintf("corpus %d", i+1), func(t *testing.T) { check(t, collected(t, dir)) })
	}
}

// recorded returns the cases whose verdicts are recorded.
func recorded(t *testing.T) []sample {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "skills", "frontmatter", "testdata", "skills-ref.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Label, Dir string
		Content    []byte `json:"content_base64"`
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	var samples []sample
	for _, c := range cases {
		samples = append(samples, sample{c.Label, filepath.Base(c.Dir), c.Content})
	}
	return samples
}

// quotedText is what a message repeats of the skill, and what a parser says about YAML.
var quotedText = regexp.MustCompile(`'.*'|(frontmatter): .*|in frontmatter: .*\. Only`)

func gist(message string) string {
	for _, unreadable := range []string{"Invalid YAML", "crash: ", "The file is not UTF-8", "The frontmatter holds"} {
		if strings.HasPrefix(message, unreadable) {
			return "unreadable"
		}
	}
	if strings.HasPrefix(message, "Missing") {
		return message
	}
	return quotedText.ReplaceAllString(strings.ReplaceAll(message, "\n", " "), "$1")
}

func gistsOf(found []frontmatter.Violation) []string {
	gists := []string{}
	for _, v := range found {
		gists = append(gists, gist(v.Message))
	}
	return gists
}

func gistsOfReference(errors []string) []string {
	gists := []string{}
	for _, e := range errors {
		gists = append(gists, gist(e))
	}
	return gists
}
