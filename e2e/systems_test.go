package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// Every package and its tests have the types that they need on each system, without compiling them for it, which
// `make systems` does at night.
func TestSystems(t *testing.T) {
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, goos := range []string{"darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			found, err := packages.Load(&packages.Config{
				Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
					packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
				Dir: top, Tests: true, Env: append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0"),
				ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
					file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
					if err != nil || strings.HasPrefix(name, top+string(filepath.Separator)) {
						return file, err
					}
					for _, decl := range file.Decls { // of others only the declarations are needed
						if f, ok := decl.(*ast.FuncDecl); ok {
							f.Body = nil
						}
					}
					return file, nil
				},
			}, "./...")
			if err != nil || len(found) == 0 {
				t.Fatalf("%d packages, %v", len(found), err)
			}
			for _, p := range found {
				if strings.HasSuffix(p.ID, ".test") {
					continue // the main package that go test generates
				}
				for _, problem := range p.Errors {
					t.Error(problem)
				}
			}
		})
	}
}
