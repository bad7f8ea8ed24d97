package skills_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/skillsd/skillsd/skills"
)

// TestEveryCode produces every code of the list: testdata/codes has an archive for each, named after
// it. The comment of an archive has lines "key: value": "root" gives a root below the archive's
// directory and its tier, "option" a field of ScanOptions, "want" a diagnostic as severity, path
// and line. All diagnostics of the code must be wanted, and all wanted must be there.
func TestEveryCode(t *testing.T) {
	t.Parallel()
	declared := declaredCodes(t)
	var codes []string
	for _, code := range declared {
		codes = append(codes, string(code))
	}
	files, err := filepath.Glob("testdata/codes/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if code := strings.TrimSuffix(filepath.Base(file), ".txtar"); !slices.Contains(codes, code) {
			t.Errorf("%s is about no declared code", file)
		}
	}
	for _, code := range codes {
		if code == string(skills.CodeCacheWrong) {
			continue // TestScanKeptWrong: no tree of files makes a cache wrong
		}
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile("testdata/codes/" + code + ".txtar")
			if err != nil {
				t.Fatalf("no archive produces it: %v", err)
			}
			c := parseCodeCase(t, archive)
			got := c.diagnostics(t, skills.Code(code))
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, got); diff != "" || len(got) == 0 {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
		})
	}
}

// codeCase is an archive in its directory.
type codeCase struct {
	dir   string
	roots []skills.Root
	opts  skills.ScanOptions
	want  []string
}

func parseCodeCase(t *testing.T, archive *txtar.Archive) *codeCase {
	t.Helper()
	c := &codeCase{dir: t.TempDir()}
	plantArchive(t, c.dir, archive)
	for line := range strings.Lines(string(archive.Comment)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch key {
		case "root":
			tier, dir, _ := strings.Cut(value, "=")
			parsed, err := skills.ParseTier(tier)
			if err != nil {
				t.Fatal(err)
			}
			c.roots = append(c.roots, skills.Root{Dir: filepath.Join(c.dir, dir), Tier: parsed})
		case "option":
			c.option(t, value)
		case "want":
			c.want = append(c.want, value)
		}
	}
	if c.roots == nil {
		c.roots = []skills.Root{{Dir: c.dir, Tier: skills.TierUser}}
	}
	return c
}

func (c *codeCase) option(t *testing.T, value string) {
	t.Helper()
	name, argument, _ := strings.Cut(value, " ")
	n, _ := strconv.Atoi(argument)
	switch name {
	case "MaxDepth":
		c.opts.MaxDepth = n
	case "MaxDirs":
		c.opts.MaxDirs = n
	case "MaxFiles":
		c.opts.MaxFiles = n
	case "MaxTree":
		c.opts.MaxTree = int64(n)
	case "AllowRoot":
		c.opts.AllowRoots = append(c.opts.AllowRoots, filepath.Join(c.dir, argument))
	case "StrictSkills":
		c.opts.StrictSkills = true
	case "Disabled":
		c.opts.Disabled = append(c.opts.Disabled, argument)
	case "NoCommand":
		c.opts.HasCommand = func(name string) bool { return name != argument }
	default:
		t.Fatalf("unknown option %q", name)
	}
}

// diagnostics returns those of a code, of the snapshot and of every skill and its index, each as
// severity, path and line. Places of this machine are shortened, and no diagnostic of a skill may
// have one.
func (c *codeCase) diagnostics(t *testing.T, code skills.Code) []string {
	t.Helper()
	snapshot, err := skills.Scan(context.Background(), c.roots, &c.opts)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	add := func(all []skills.Diagnostic, ofSkill bool) {
		for _, d := range all {
			if d.Detail == "" || strings.ContainsAny(d.Detail+d.Path, "\n\r\x1b\x00") {
				t.Errorf("%+v is not one line", d)
			}
			if ofSkill && strings.Contains(d.Detail+d.Path, c.dir) {
				t.Errorf("%+v names a place of this machine", d)
			}
			if strings.Contains(d.Detail, "SECRET") {
				t.Errorf("%+v has text of the skill", d)
			}
			if d.Code == code {
				got = append(got, fmt.Sprintf("%s %s %d", d.Severity, strings.ReplaceAll(d.Path, c.dir, "$DIR"), d.Line))
			}
		}
	}
	add(snapshot.Diagnostics, false)
	for _, sk := range slices.Concat(snapshot.Skills, snapshot.Shadowed, snapshot.Withheld) {
		add(sk.Diagnostics, true)
		index, err := sk.Index(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		add(index.Diagnostics, true)
	}
	slices.Sort(got)
	return got
}

// plantArchive writes the files of an archive below a directory. A content "-> x" is a link to x,
// "/" a directory, "size n" a sparse file of n bytes; otherwise \xNN stands for a byte, and \uNNNN
// for a character, that an archive should not hold as it is.
func plantArchive(t *testing.T, dir string, archive *txtar.Archive) {
	t.Helper()
	for _, file := range archive.Files {
		name := filepath.Join(dir, filepath.FromSlash(unescape(t, file.Name)))
		if runtime.GOOS == "windows" && strings.ContainsAny(unescape(t, file.Name), ":?*<>|\"\n\x1b") {
			t.Skip("missing capability: file names that Windows reserves")
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(name); err == nil {
			t.Skip("missing capability: a file system that keeps names apart by case and form")
		}
		content := string(file.Data)
		kind, argument, _ := strings.Cut(strings.TrimSpace(content), " ")
		var err error
		switch {
		case kind == "->":
			if runtime.GOOS == "windows" {
				t.Skip("missing capability: symbolic links without privilege")
			}
			err = os.Symlink(filepath.FromSlash(argument), name)
		case kind == "/":
			err = os.MkdirAll(name, 0o755)
		case kind == "size":
			err = os.WriteFile(name, nil, 0o644)
			if err == nil {
				size, _ := strconv.ParseInt(argument, 10, 64)
				err = os.Truncate(name, size)
			}
		default:
			err = os.WriteFile(name, []byte(unescape(t, content)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unescape(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	for len(text) > 0 {
		if !strings.HasPrefix(text, `\x`) && !strings.HasPrefix(text, `\u`) && !strings.HasPrefix(text, `\U`) {
			out.WriteByte(text[0])
			text = text[1:]
			continue
		}
		r, isRune, rest, err := strconv.UnquoteChar(text, 0)
		if err != nil {
			t.Fatal(err)
		}
		text = rest
		if isRune {
			out.WriteRune(r)
		} else {
			out.WriteByte(byte(r))
		}
	}
	return out.String()
}
