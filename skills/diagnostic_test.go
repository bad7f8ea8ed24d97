package skills_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// declaredCodes returns the codes that are declared, by the names of their constants.
func declaredCodes(t *testing.T) map[string]skills.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "diagnostic.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]skills.Code{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Code" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		all[spec.Names[0].Name] = skills.Code(text)
		return true
	})
	if len(all) < 20 {
		t.Fatalf("diagnostic.go declares %d codes, want them all to be found", len(all))
	}
	return all
}

// Every diagnostic says what to do about it.
func TestEveryCodeHasAFix(t *testing.T) {
	seen := map[string]string{}
	for name, code := range declaredCodes(t) {
		fix := code.Fix()
		if fix == "" || strings.ContainsAny(fix, "\n") || strings.HasSuffix(fix, ".") || len(fix) > 130 {
			t.Errorf("%s.Fix() = %q, want one phrase of at most 130 bytes", name, fix)
		}
		if other, taken := seen[fix]; taken && fix != "" {
			t.Errorf("%s and %s have the same fix %q", name, other, fix)
		}
		seen[fix] = name
	}
	if fix := skills.Code("no-such-code").Fix(); fix != "" {
		t.Errorf("Fix of an unknown code = %q, want none", fix)
	}
}
