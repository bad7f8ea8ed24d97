package e2e

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxLineColumns = 110
	tabColumns     = 4
)

// TestLines keeps lines short enough to be read in a review. How long a function, a file or a package may be is
// left to judgement.
func TestLines(t *testing.T) {
	for _, f := range sourceFiles(t) {
		for i, line := range strings.Split(f.text, "\n") {
			if n := columns(line); n > maxLineColumns {
				t.Errorf("%s:%d has %d columns, more than %d", f.path, i+1, n, maxLineColumns)
			}
		}
	}
}

// columns is how wide an editor shows a line.
func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// turns are turns of language that make a comment hard to read, with how many lines of 1,000 may have one: each of
// these words has a right use too.
var turns = []struct {
	name    string
	pattern *regexp.Regexp
	most    float64
}{
	{"a thing that says", regexp.MustCompile(`\bsays?\b`), 2},
	{"a person for a state", regexp.MustCompile(`\b(nobody|whoever|somebody)\b`), 2},
	{"counts, for is valid", regexp.MustCompile(`\bcounts?\b`), 4},
	{"as it is", regexp.MustCompile(`\bas (it|they) (is|are|was|were)\b`), 1.5},
	{"which has", regexp.MustCompile(`\b(which|that) has\b`), 3},
	{"of which", regexp.MustCompile(`\bof (which|whom|whose)\b`), 1},
	{"those of", regexp.MustCompile(`\b(those|that) of\b`), 1},
	{"is none", regexp.MustCompile(`\b(is|are) none\b|if there is none`), 1},
}

// clause matches the start of a sentence with a clause as its subject.
var clause = regexp.MustCompile(`^\s*// (What|Who|Whoever|Of|Whose|Whatever) `)

// TestLanguage counts turns of language in the comments of the product.
func TestLanguage(t *testing.T) {
	comments, found := 0, make([]int, len(turns))
	for _, f := range sourceFiles(t) {
		lines := strings.Split(f.text, "\n")
		for i, line := range lines {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") || strings.Contains(line, "//go:") {
				continue
			}
			comments++
			for n, turn := range turns {
				if turn.pattern.MatchString(line) {
					found[n]++
				}
			}
			match := clause.FindStringSubmatch(line)
			if match == nil || i > 0 && strings.HasPrefix(strings.TrimSpace(lines[i-1]), "//") {
				continue
			}
			next := i
			for strings.HasPrefix(strings.TrimSpace(lines[next]), "//") {
				next++
			}
			// The comment of a declaration starts with its name.
			if !regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(lines[next]) {
				t.Errorf("%s:%d starts with %s: %s", f.path, i+1, match[1], strings.TrimSpace(line))
			}
		}
	}
	for n, turn := range turns {
		if rate := 1000 * float64(found[n]) / float64(comments); rate > turn.most {
			t.Errorf("%s: %.1f of 1,000 lines of comments, more than %v", turn.name, rate, turn.most)
		}
	}
}

// TestPackageComments wants a comment in every package that says what it is.
func TestPackageComments(t *testing.T) {
	commented := map[string]bool{}
	for _, f := range sourceFiles(t) {
		dir := path.Dir(f.path)
		commented[dir] = commented[dir] || f.syntax.Doc != nil
		if f.syntax.Doc == nil {
			continue
		}
		want := "Package " + f.syntax.Name.Name + " "
		if f.syntax.Name.Name == "main" {
			want = "Command " + path.Base(dir) + " "
		}
		if text := f.syntax.Doc.Text(); !strings.HasPrefix(text, want) {
			t.Errorf("%s: the package comment starts %.30q, want %q", f.path, text, want)
		}
	}
	for dir, given := range commented {
		if !given {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

// wellKnown are methods whose meaning an interface of the standard library has settled.
var wellKnown = []string{"Error", "Is", "Unwrap", "String", "MarshalText", "UnmarshalText"}

// TestExportedNames wants every exported name documented; functions, methods and types by a
// sentence that starts with the name.
func TestExportedNames(t *testing.T) {
	for _, f := range sourceFiles(t) {
		report := func(pos token.Pos, name, problem string) {
			t.Errorf("%s:%d: %s %s", f.path, f.set.Position(pos).Line, name, problem)
		}
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				known := d.Recv != nil && slices.Contains(wellKnown, d.Name.Name)
				if d.Name.IsExported() && exportedReceiver(d) && !known {
					checkSentence(d.Pos(), d.Name.Name, d.Doc, report)
				}
			case *ast.GenDecl:
				checkDecl(d, report)
			}
		}
	}
}

// checkDecl checks the names of a type, const or var declaration. A comment on a group of constants
// or variables speaks for all of them.
func checkDecl(d *ast.GenDecl, report func(pos token.Pos, name, problem string)) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			doc := s.Doc
			if doc == nil && len(d.Specs) == 1 {
				doc = d.Doc
			}
			if s.Name.IsExported() {
				checkSentence(s.Pos(), s.Name.Name, doc, report)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					report(name.Pos(), name.Name, "is exported and not documented")
				}
			}
		}
	}
}

// checkSentence wants a comment that starts with the name, an article before it or not.
func checkSentence(pos token.Pos, name string, doc *ast.CommentGroup, report func(token.Pos, string, string)) {
	if doc == nil {
		report(pos, name, "is exported and not documented")
		return
	}
	words := strings.Fields(doc.Text())
	if len(words) > 1 && (words[0] == "A" || words[0] == "An" || words[0] == "The") {
		words = words[1:]
	}
	if len(words) == 0 || strings.TrimRight(words[0], ",:") != name {
		report(pos, name, "has a comment that does not start with its name")
	}
}

// exportedReceiver reports whether a function is none's method, or one of an exported type.
func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return true
	}
	typ := fn.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// TestNothingPostponed finds notes to self: what is not done belongs in an issue.
func TestNothingPostponed(t *testing.T) {
	for _, f := range sourceFiles(t) {
		for _, group := range f.syntax.Comments {
			for _, c := range group.List {
				for _, mark := range []string{"TODO", "FIXME"} {
					if strings.Contains(c.Text, mark) {
						t.Errorf("%s:%d: %s in a comment", f.path, f.set.Position(c.Pos()).Line, mark)
					}
				}
			}
		}
	}
}
