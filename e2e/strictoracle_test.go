package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// TestStrictOracle compares the strict verdict with a second implementation of its rules, made of
// other parts: the nodes of a YAML library and regular expressions.
func TestStrictOracle(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, samples []sample) {
		valid := 0
		for _, s := range samples {
			// Collections that were flattened have other directories than their authors gave them.
			for _, dir := range []string{s.dir, declaredName(s.data)} {
				got, want := frontmatter.Validate(dir, "SKILL.md", s.data), strictly(dir, s.data)
				if len(want) == 0 {
					valid++
				}
				if rules := rulesOf(got); !slices.Equal(rules, want) {
					t.Errorf("%s in %s breaks %v, the oracle says %v\n%.300q\n%v", s.name, dir, rules, want, s.data, got)
				}
			}
		}
		t.Logf("%d files in two directories each, %d times valid", len(samples), valid)
	}
	t.Run("recorded", func(t *testing.T) { check(t, recorded(t)) })
	t.Run("tame", func(t *testing.T) {
		samples := slices.DeleteFunc(generated(6_000, true), func(s sample) bool { return beyondLibrary.Match(s.data) })
		if len(samples) < 3_000 {
			t.Errorf("%d files are left", len(samples))
		}
		check(t, samples)
	})
	for i, dir := range corpora() {
		t.Run(fmt.Sprintf("corpus %d", i+1), func(t *testing.T) { check(t, collected(t, dir)) })
	}
}

var nameLine = regexp.MustCompile(`(?m)^name:[ \t]*['"]?([^'"\r\n]*)`)

func declaredName(data []byte) string {
	if match := nameLine.FindSubmatch(data); match != nil {
		return strings.TrimSpace(string(match[1]))
	}
	return "x"
}

// beyondLibrary matches what the library of the oracle reads by YAML 1.1, or not at all.
var beyondLibrary = regexp.MustCompile(`\x{2028}|\\ud83d|\\/|\n *\t`)

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
	t.Run("generated", func(t *testing.T) { check(t, generated(6_000, false)) })
	t.Run("tame", func(t *testing.T) { check(t, generated(3_000, true)) })
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

func rulesOf(found []frontmatter.Violation) []string {
	rules := []string{}
	for _, v := range found {
		rules = append(rules, v.Rule)
	}
	return rules
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

// strictly returns the rules a file breaks.
func strictly(dir string, data []byte) []string {
	if !utf8.Valid(data) {
		return []string{"invalid-encoding"}
	}
	content := regexp.MustCompile(`\r\n?`).ReplaceAllString(string(data), "\n")
	if !strings.HasPrefix(content, "---") {
		return []string{"V4"}
	}
	parts := strings.SplitN(content, "---", 3)
	if len(parts) < 3 {
		return []string{"V5"}
	}
	if regexp.MustCompile("[^\t\n\x20-\x7e\u0085\u00a0-\ufffd\U00010000-\U0010ffff]").MatchString(parts[1]) {
		return []string{"invalid-encoding"}
	}
	fields, rule := strictMapping(parts[1])
	if rule != "" {
		return []string{rule}
	}
	rules := []string{}
	broken := func(rule string, is bool) {
		if is {
			rules = append(rules, rule)
		}
	}
	unknown := false
	for key := range fields {
		unknown = unknown || !slices.Contains([]string{"name", "description", "license", "allowed-tools", "metadata", "compatibility"}, key)
	}
	broken("V8", unknown)
	if name := fields["name"]; name == nil || name.Kind != yaml.ScalarNode || strings.TrimSpace(name.Value) == "" {
		rules = append(rules, "V9")
	} else {
		n := norm.NFKC.String(strings.TrimSpace(name.Value))
		broken("V10", len([]rune(n)) > 64)
		broken("V11", strings.ToLower(n) != n)
		broken("V12", strings.Trim(n, "-") != n)
		broken("V13", strings.Contains(n, "--"))
		broken("V14", !regexp.MustCompile(`^[\p{L}\p{N}-]*$`).MatchString(n))
		broken("V15", norm.NFKC.String(dir) != n)
	}
	if d := fields["description"]; d == nil || d.Kind != yaml.ScalarNode || strings.TrimFunc(d.Value, unicode.IsSpace) == "" {
		rules = append(rules, "V16")
	} else {
		broken("V17", len([]rune(d.Value)) > 1024)
	}
	c := fields["compatibility"]
	broken("V18", c != nil && (c.Kind != yaml.ScalarNode || len([]rune(c.Value)) > 500 || c.Style == 0 && c.Value == "="))
	return rules
}

// strictMapping returns the fields of a block, or the rule it breaks.
func strictMapping(block string) (map[string]*yaml.Node, string) {
	var document yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(block))
	if err := decoder.Decode(&document); err != nil {
		if len(bytes.TrimSpace([]byte(regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(block, "")))) == 0 {
			return nil, "V7"
		}
		return nil, "V6"
	}
	if decoder.Decode(new(yaml.Node)) == nil || !blockStyle(&document) {
		return nil, "V6"
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, "V7"
	}
	fields := map[string]*yaml.Node{}
	for i := 0; i < len(top.Content); i += 2 {
		fields[top.Content[i].Value] = top.Content[i+1]
	}
	return fields, ""
}

// blockStyle reports YAML without flow style, anchors, tags, equal keys, keys that are no scalars, and
// mappings side by side at different columns.
func blockStyle(n *yaml.Node) bool {
	if n.Anchor != "" || n.Kind == yaml.AliasNode || n.Style&(yaml.FlowStyle|yaml.TaggedStyle) != 0 {
		return false
	}
	seen := map[string]bool{}
	column := 0
	for i, child := range n.Content {
		if !blockStyle(child) {
			return false
		}
		if n.Kind != yaml.MappingNode {
			continue
		}
		if i%2 == 0 {
			if child.Kind != yaml.ScalarNode || seen[child.Value] {
				return false
			}
			seen[child.Value] = true
		} else if child.Kind == yaml.MappingNode {
			if column != 0 && column != child.Column {
				return false
			}
			column = child.Column
		}
	}
	return true
}
