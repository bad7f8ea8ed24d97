package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
)

// yamlPackage is the parser that verifiers use.
const yamlPackage = "yaml@2.9.1"

// collections are packages that hold public skills.
var collections = []string{"ai-labs-claude-skills@2.0.1", "@nextsparkjs/ai-workflow@0.1.0-beta.127", "claude-skills@1.0.2"}

// sample is a SKILL.md, named by where it comes from.
type sample struct {
	name, dir string
	data      []byte
}

// need skips a test that lacks a capability, or fails it where that is asked for.
func need(t *testing.T, capability string) {
	t.Helper()
	if os.Getenv("SKILLSD_REQUIRE_ORACLE") != "" {
		t.Fatalf("this machine lacks %s", capability)
	}
	t.Skipf("this machine lacks %s", capability)
}

// npm runs npm in a directory.
func npm(t *testing.T, dir string, args ...string) {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			need(t, tool)
		}
	}
	cmd := exec.CommandContext(t.Context(), "npm", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("npm %s: %v\n%s", strings.Join(args, " "), err, out)
		need(t, "a registry of npm packages")
	}
}

// generated returns n files of the generator.
func generated(n int, tame bool) []sample {
	g := newGenerator()
	samples := make([]sample, 0, n)
	for i := range n {
		samples = append(samples, sample{fmt.Sprintf("generated %d", i), "x", []byte(g.document(tame))})
	}
	return samples
}

// collected returns the SKILL.md files below a directory that are within the limit of a skill.
func collected(t *testing.T, dir string) []sample {
	t.Helper()
	var samples []sample
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() != "SKILL.md" && d.Name() != "skill.md" {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && len(data) <= skills.MaxSkillFile {
			rel, _ := filepath.Rel(dir, path)
			samples = append(samples, sample{rel, filepath.Base(filepath.Dir(path)), data})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

// corpora returns the directories SKILLSD_CORPUS names.
func corpora() []string {
	return filepath.SplitList(os.Getenv("SKILLSD_CORPUS"))
}

// ask sends every sample to a program that answers each with a line of JSON, in order. It is started
// once for so many samples that memory holds them twice.
func ask[A any](t *testing.T, samples []sample, name string, args ...string) []A {
	t.Helper()
	answers := make([]A, 0, len(samples))
	for chunk := range slices.Chunk(samples, 2_000) {
		var in bytes.Buffer
		encoder := json.NewEncoder(&in)
		for i, s := range chunk {
			if err := encoder.Encode(map[string]any{"id": i, "dir": s.dir, "data": s.data}); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Stdin = &in
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, stderr.String())
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
			var answer A
			if err := decoder.Decode(&answer); err != nil {
				t.Fatal(err)
			}
			answers = append(answers, answer)
		}
	}
	if len(answers) != len(samples) {
		t.Fatalf("%s gave %d answers to %d files", name, len(answers), len(samples))
	}
	return answers
}

// TestFrontmatterOracle compares frontmatter as JSON with what the npm package yaml makes of it, keys
// in order. A file that is read unrepaired must be read alike; one that is refused or repaired is not
// published, so that nobody compares it.
func TestFrontmatterOracle(t *testing.T) {
	nightly.Only(t)
	modules := t.TempDir()
	npm(t, modules, "install", "--prefix", modules, "--ignore-scripts", "--no-audit", "--no-fund", yamlPackage)
	check := func(t *testing.T, samples []sample) {
		type answer struct{ JSON, Error string }
		var refused, repaired, differ int
		answers := ask[answer](t, samples, "node", filepath.Join("testdata", "oracle", "oracle.mjs"), modules)
		for i, s := range samples {
			doc, err := frontmatter.Parse(s.data)
			switch {
			case err != nil:
				refused++
				continue
			case doc.Repaired():
				repaired++
				continue
			}
			if want := answers[i]; want.Error != "" || !reflect.DeepEqual(tokens(t, doc.Fields.JSON), tokens(t, []byte(want.JSON))) {
				differ++
				if differ <= 20 {
					t.Errorf("%s:\n got %s\nwant %s %s\n%.500q", s.name, doc.Fields.JSON, want.JSON, want.Error, s.data)
				}
			}
		}
		t.Logf("%d files: %d refused, %d repaired, %d equal, %d different", len(samples), refused, repaired, len(samples)-refused-repaired-differ, differ)
	}
	t.Run("generated", func(t *testing.T) { check(t, generated(6_000, false)) })
	t.Run("tame", func(t *testing.T) {
		samples := generated(3_000, true)
		check(t, samples)
		read := 0
		for _, s := range samples {
			if doc, err := frontmatter.Parse(s.data); err == nil && !doc.Repaired() {
				read++
			}
		}
		if read < len(samples)*3/4 {
			t.Errorf("%d of %d files without oddities were read as they are", read, len(samples))
		}
	})
	t.Run("published", func(t *testing.T) { check(t, publicSkills(t)) })
	for i, dir := range corpora() {
		t.Run(fmt.Sprintf("corpus %d", i+1), func(t *testing.T) { check(t, collected(t, dir)) })
	}
}

// tokens returns JSON as a list of what it consists of, in order.
func tokens(t *testing.T, raw []byte) []json.Token {
	t.Helper()
	var list []json.Token
	for decoder := json.NewDecoder(bytes.NewReader(raw)); ; {
		token, err := decoder.Token()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s is no JSON: %v", raw, err)
			}
			return list
		}
		list = append(list, token)
	}
}

// publicSkills returns the skills of the collections.
func publicSkills(t *testing.T) []sample {
	t.Helper()
	dir := t.TempDir()
	npm(t, dir, append([]string{"pack", "--ignore-scripts"}, collections...)...)
	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != len(collections) {
		t.Fatalf("npm left %d archives, %v", len(archives), err)
	}
	var samples []sample
	for _, archive := range archives {
		samples = append(samples, archived(t, archive)...)
	}
	if len(samples) < 50 {
		t.Fatalf("the collections %s hold %d skills", strings.Join(collections, ", "), len(samples))
	}
	return samples
}

// archived returns the SKILL.md files of a package.
func archived(t *testing.T, archive string) []sample {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var samples []sample
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return samples
		}
		if err != nil {
			t.Fatal(err)
		}
		if path.Base(header.Name) != "SKILL.md" || header.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(files, skills.MaxSkillFile))
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, sample{header.Name, path.Base(path.Dir(header.Name)), data})
	}
}
