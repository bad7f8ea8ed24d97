package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/e2e/nightly"
)

const (
	modulePath = "github.com/skillsd/skillsd"
	mcpGoPath  = "github.com/mark3labs/mcp-go"
	natsPath   = "github.com/nats-io/nats.go"
	// natsServerPath is for tests: it would make the binary half as large again, and start a timer in each.
	natsServerPath = "github.com/nats-io/nats-server"
)

// importRules says which of our packages a package may import. "*" stands for every one. What is
// not in the table may not exist.
var importRules = map[string][]string{
	"provenance": {},
	// The shapes of one client; the other packages of records look at them, and provenance does not.
	"provenance/cfharness": {"provenance"},
	// What people read of a record is folded once.
	"provenance/story":     {"provenance", "provenance/cfharness"},
	"provenance/evals":     {"provenance", "provenance/cfharness", "provenance/story"},
	"provenance/filestore": {"provenance", "provenance/cfharness", "skills/content"},
	// It verifies a session as a filestore does.
	"provenance/jetstream":             {"provenance", "provenance/cfharness", "provenance/filestore"},
	"provenance/jetstream/clustertest": {},
	"provenance/telemetry":             {"provenance", "provenance/cfharness", "provenance/story"},
	"provenance/storetest":             {"provenance", "provenance/cfharness"},
	"provenance/schema":                {"provenance", "provenance/cfharness"},
	"provenance/redact":                {"provenance"},

	"sandbox":               {},
	"sandbox/staged":        {"sandbox"},
	"sandbox/native":        {"sandbox", "sandbox/staged", "sandbox/native/pidone"},
	"sandbox/native/pidone": {"sandbox"},
	// Another program makes the sandbox, with native's helper in it and its supervision around it.
	"sandbox/bwrap":       {"sandbox", "sandbox/native", "sandbox/native/pidone"},
	"sandbox/runsc":       {"sandbox", "sandbox/native", "sandbox/native/pidone"},
	"sandbox/egress":      {"sandbox", "skills/address"},
	"sandbox/host":        {"sandbox"},
	"sandbox/remote":      {"sandbox"},
	"sandbox/environment": {"skills/archive", "skills/content"},
	// Making one resolves in a sandbox, and fetches through its proxy.
	"sandbox/environment/making": {"sandbox", "sandbox/egress", "sandbox/environment",
		"sandbox/environment/rootfs", "skills/script"},
	// A root file system is read from an image, and mounted.
	"sandbox/environment/rootfs": {"sandbox", "sandbox/environment", "skills/archive"},
	"sandbox/sandboxtest":        {"sandbox"},
	// Choosing a backend needs to know them, and finding interpreters the table of those there are.
	"sandbox/detect": {"sandbox", "sandbox/native", "sandbox/bwrap", "sandbox/runsc", "skills/script"},

	// The proxy of scripts, fetches of sources and the search for signals follow the same rules about hosts.
	"skills/address":     {},
	"skills/frontmatter": {},
	"skills/signal":      {"skills/address"},

	"skills/script":         {},
	"skills/script/imports": {},
	// Files by digest: the stores of skills, of environments and of records compare the same marks.
	"skills/content": {},
	"skills/store":   {"skills/content"},
	fsysPath:         {},
	patternPath:      {},
	"skills": {"skills/frontmatter", "skills/script", "skills/signal", "skills/store",
		fsysPath},
	"skills/policy":  {"skills", "skills/script"},
	"skills/search":  {"skills"},
	"skills/catalog": {"skills", fsysPath},
	"skills/watch":   {"skills"},
	// Sources of skills and environments of packages read archives of strangers by the same rules.
	"skills/archive":          {"skills"},
	"skills/source":           {"skills", "skills/archive"},
	"skills/source/web":       {"skills/address"},
	"skills/source/discovery": {"skills"},
	"skills/source/oci":       {"skills/address", "skills/archive", "skills/source/discovery", "skills/source/web"},
	"skills/source/signed":    {},
	"skills/source/plugin":    {"skills", patternPath},
	// Only tests import it.
	"skills/source/signed/sigstoretest": {},
	"skills/source/served":              {"skills", "skills/archive"},
	"skills/source/sourcetest": {"skills", "skills/install", "skills/store", "skills/source/discovery",
		"skills/source/oci", "skills/source/web", "skills/source/signed"},
	"skills/compare": {"skills/address", "skills", "skills/script", patternPath},
	"skills/install": {"skills", "skills/archive", "skills/compare", "skills/policy", "skills/script", "skills/store",
		"skills/source", "skills/source/discovery", "skills/source/oci", "skills/source/plugin", "skills/source/served",
		"skills/source/signed", "skills/source/web"},

	// Limits are rules about principals and numbers, and know no protocol.
	"mcpserver/admit":    {},
	"mcpserver/wire":     {"mcpserver/admit"},
	"mcpserver/httpauth": {"skills/policy"},
	// A provider for tests.
	"mcpserver/httpauth/oidctest": {},
	"mcpserver/picture":           {},
	"mcpserver/tasks":             {"mcpserver/admit", "mcpserver/wire"},
	"mcpserver/session": {
		"mcpserver/admit", "mcpserver/picture", "mcpserver/session/approval",
		"mcpserver/session/earlier", "mcpserver/session/elsewhere", "mcpserver/session/fault",
		"mcpserver/session/packages",
		"mcpserver/session/snapshot",
		"skills", "skills/frontmatter", "skills/policy", "skills/script", "skills/store",
		"sandbox", "sandbox/egress", "provenance", "provenance/cfharness", "provenance/redact",
		"provenance/schema",
	},
	"mcpserver/session/approval":  {},
	"mcpserver/session/earlier":   {"skills", "provenance", "provenance/cfharness", "skills/policy"},
	"mcpserver/session/packages":  {"provenance", "provenance/cfharness", "sandbox", "sandbox/environment", "sandbox/environment/rootfs", "skills/script"},
	"mcpserver/session/snapshot":  {"skills", "skills/policy", "skills/script", "sandbox", "provenance", "provenance/cfharness"},
	"mcpserver/session/fault":     {"mcpserver/session/packages", "provenance", "sandbox", "skills", "skills/policy"},
	"mcpserver/session/elsewhere": {"mcpserver/session/earlier", "provenance", "provenance/cfharness", "sandbox", "skills/policy"},
	"mcpserver": {"mcpserver/picture", "mcpserver/session", "mcpserver/session/elsewhere", "mcpserver/session/fault",
		"mcpserver/tasks", "mcpserver/wire", "mcpserver/httpauth", "skills", "skills/policy",
		"skills/script", "skills/search", "skills/catalog", "provenance", "provenance/cfharness", "provenance/redact",
		"provenance/telemetry"},

	// A program of its own: its library would make skillsd larger and slower to start.
	"cmd/skillsd-sigstore": {"skills/source/signed"},
	"cmd/skillsd":          {"*"},
	"cmd/skillsd/exit":     {},
	"cmd/skillsd/environments": {"skills", "skills/script/imports", "mcpserver/session/packages", "cmd/skillsd/config", "cmd/skillsd/exit", "cmd/skillsd/report", "sandbox", "sandbox/detect",
		"sandbox/environment", "sandbox/environment/making", "sandbox/environment/rootfs", "sandbox/native", "skills/policy", "skills/script", "skills/store"},
	"cmd/skillsd/exporters": {"provenance/redact"},
	"cmd/skillsd/garbage":   {},
	"cmd/skillsd/owners":    {"skills"},
	"cmd/skillsd/config":    {"*"},
	"cmd/skillsd/serve":     {"*"},
	"cmd/skillsd/serve/cluster": {"cmd/skillsd/config", "cmd/skillsd/exit", "mcpserver", "mcpserver/session/approval",
		"mcpserver/session/elsewhere", "sandbox/remote", "provenance", "provenance/filestore", "provenance/jetstream",
		// Skills that replicas and workers install are published there.
		"skills", "skills/install", "skills/store"},
	"cmd/skillsd/doctor": {"*"},
	"cmd/skillsd/report": {"cmd/skillsd/exit", "skills/script", "provenance", "provenance/cfharness", "provenance/story", "skills", "skills/compare", "skills/frontmatter", "skills/install", "skills/policy",
		"skills/search"},
	"cmd/skillsd/sessions": {"cmd/skillsd/config", "cmd/skillsd/exit", "cmd/skillsd/report", "cmd/skillsd/serve", "cmd/skillsd/serve/cluster",
		"mcpserver", "mcpserver/session", "sandbox", "sandbox/staged",
		"provenance", "provenance/cfharness", "provenance/evals", "provenance/filestore", "provenance/story", "skills/store"},
	"cmd/skillsd/page": {"cmd/skillsd/config", "cmd/skillsd/doctor", "cmd/skillsd/exit", "cmd/skillsd/report", "cmd/skillsd/serve",
		"cmd/skillsd/serve/cluster", "cmd/skillsd/sessions", "mcpserver/httpauth", "mcpserver/session/approval",
		"provenance", "provenance/story",
		"skills", "skills/store/fsys"},
	"cmd/skillsd/installing": {"cmd/skillsd/config", "cmd/skillsd/exit", "cmd/skillsd/report", "cmd/skillsd/serve", "cmd/skillsd/serve/cluster", "skills", "skills/archive", "skills/install", "skills/policy",
		"skills/source/oci", "skills/store"},
	"cmd/skillsd/authoring": {"cmd/skillsd/config", "cmd/skillsd/exit", "cmd/skillsd/installing", "cmd/skillsd/report",
		"skills", "skills/frontmatter", "skills/install", "skills/source/discovery", "skills/source/oci", "skills/source/plugin", "skills/source/web"},
	"cmd/skillsd/clients": {"cmd/skillsd/exit", "cmd/skillsd/report", "skills/store/fsys"},
	"e2e":                 {"*"},
	"e2e/browser":         {},
	"e2e/cfharness":       {},
	"e2e/conformance":     {"*"},
	"e2e/demo":            {"*"},
	"e2e/floor":           {},
	// Tests of every package leave to the night what takes long.
	"e2e/nightly":  {},
	"e2e/release":  {},
	"e2e/testtree": {},
	"e2e/screens":  {"e2e/browser"},
}

// fsysPath is a leaf that every package may import: files are opened, read, written and synced in one
// place.
const fsysPath = "skills/store/fsys"

// patternPath is the other one: an expression is compiled when it is first used.
const patternPath = "skills/pattern"

// initAllocations are the packages whose initialization allocates much, which every start of the program pays
// for, and how often they may.
var initAllocations = map[string]int{
	"github.com/prometheus/procfs":        1_000,
	"github.com/opencontainers/go-digest": 900,
	"encoding/gob":                        400,   // the official SDK imports it
	"oras.land/oras-go/v2/registry":       2_000, // compiles the expressions of names
}

// TestInits finds packages that do much before main: expressions and tables are made when they are first used.
// Until the end of such a short command no garbage is collected.
func TestInits(t *testing.T) {
	const most = 350 // allocations of any other package
	cmd := exec.Command(binary, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1,gctrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(trace.String()) {
		words := strings.Fields(line) // init PACKAGE @N ms, N ms clock, N bytes, N allocs
		if len(words) > 0 && words[0] == "gc" {
			t.Errorf("garbage was collected: %s", line)
		}
		if len(words) < 10 || words[0] != "init" {
			continue
		}
		seen++
		allocations, err := strconv.Atoi(words[len(words)-2])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if bound := cmp.Or(initAllocations[words[1]], most); allocations > bound {
			t.Errorf("the initialization of %s allocates %d times, more than %d", words[1], allocations, bound)
		}
	}
	if seen == 0 {
		t.Errorf("no initialization was traced: %s", &trace)
	}
}

// mcpGoUsers are the only packages that may import mcp-go themselves, tests included.
var mcpGoUsers = []string{"mcpserver", "mcpserver/tasks", "mcpserver/wire", "e2e", "e2e/conformance", "e2e/demo", "e2e/floor"}

// sigstorePath is the library of skillsd-sigstore.
const sigstorePath = "github.com/sigstore"

// grpcPath is for skillsd-sigstore and tests: with its gateway it took a tenth of a start of skillsd.
const grpcPath = "google.golang.org/grpc"

// natsUsers are the only packages that may import NATS themselves, tests included.
var natsUsers = map[string][]string{
	natsPath:       {"provenance/jetstream", "provenance/jetstream/clustertest", "cmd/skillsd/serve/cluster", "sandbox/remote"},
	natsServerPath: {"provenance/jetstream/clustertest"},
}

// farFrom lists what a package may not even reach through others.
var farFrom = map[string][]string{
	"cmd/skillsd":       {natsServerPath, sigstorePath, grpcPath},
	"mcpserver/session": {mcpGoPath, "net/http"},
	"skills":            {mcpGoPath, "net/http", "os/exec"},
	"skills/policy":     {mcpGoPath, "net/http", "os/exec"},
	"provenance":        {mcpGoPath, "net/http", "os/exec"},
	"sandbox":           {mcpGoPath, "net/http"},
}

// cmdOnly are the names that belong to the command line: what the process was given and how it ends.
var cmdOnly = map[string][]string{
	"os": {"Args", "Environ", "Getenv", "LookupEnv", "ExpandEnv", "Setenv", "Unsetenv", "Clearenv",
		"Stdin", "Stdout", "Stderr", "Exit"},
	"log/slog":               {"Default", "SetDefault"},
	"github.com/spf13/cobra": {"*"},
}

// cmdOnlyExceptions are the files that may use such a name all the same. Each entry must be needed.
var cmdOnlyExceptions = map[string][]string{
	// Only tests import it; the variable turns "cannot isolate here" from a skip into a failure.
	"sandbox/sandboxtest/need.go": {"os.Getenv"},
	// Only tests import it; it starts its own program once more, to be killed.
	"sandbox/sandboxtest/killed_linux.go":             {"os.Args", "os.Environ", "os.Getenv"},
	"provenance/jetstream/clustertest/clustertest.go": {"os.Environ", "os.Getenv"},
	// As these; it starts its tests once more, in namespaces of their own.
	"provenance/jetstream/clustertest/network_linux.go": {"os.Args", "os.Environ", "os.Getenv"},
	// Only tests import it; the variable adds the tests and sizes that take long.
	// Its two commands are mostly their help and their flags.
	"cmd/skillsd/sessions/move.go": {"github.com/spf13/cobra"},
}

// goPackage is the part of `go list -json` that the rules look at.
type goPackage struct {
	ImportPath                               string
	Imports, TestImports, XTestImports, Deps []string
}

// rel is the package's path below the module.
func (p *goPackage) rel() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, modulePath), "/")
}

// TestImportRules holds every package to its row, on each system we build for: a file that one
// system leaves out may import nothing else than the others.
func TestImportRules(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			t.Parallel()
			for _, p := range ourPackages(t, goos) {
				for _, problem := range importProblems(p) {
					t.Error(problem)
				}
			}
		})
	}
}

// importProblems says what p imports that it may not.
func importProblems(p *goPackage) []string {
	rel := p.rel()
	allowed, known := importRules[rel]
	if !known {
		return []string{fmt.Sprintf("package %s has no row in the table of import rules", rel)}
	}
	var problems []string
	for _, imp := range p.Imports {
		ours, ok := strings.CutPrefix(imp, modulePath+"/")
		if ok && ours != fsysPath && ours != patternPath && !slices.Contains(allowed, "*") && !slices.Contains(allowed, ours) {
			problems = append(problems, fmt.Sprintf("%s imports %s; it may import %q", rel, ours, allowed))
		}
	}
	for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		if below(imp, mcpGoPath) && !slices.Contains(mcpGoUsers, rel) {
			problems = append(problems, fmt.Sprintf("%s imports %s; only %q may", rel, imp, mcpGoUsers))
		}
		for name, users := range natsUsers {
			if below(imp, name) && !slices.Contains(users, rel) {
				problems = append(problems, fmt.Sprintf("%s imports %s; only %q may", rel, imp, users))
			}
		}
	}
	for _, dep := range p.Deps {
		for _, far := range farFrom[rel] {
			if below(dep, far) {
				problems = append(problems, fmt.Sprintf("%s reaches %s through its imports", rel, dep))
			}
		}
	}
	return problems
}

// TestMethods wants the linker to leave out methods that nothing calls. It keeps all that are exported once a
// method may be called by a name that it does not know, as templates do.
func TestMethods(t *testing.T) {
	nightly.Only(t) // links the program once more
	t.Parallel()
	built := filepath.Join(t.TempDir(), "skillsd")
	link := exec.Command("go", "build", tags, "-ldflags=-dumpdep", "-o", built, "../cmd/skillsd")
	out, err := link.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	if !strings.Contains(string(out), "main.main -> ") {
		t.Errorf("the linker does not say what it keeps:\n%.2000s", out)
	}
	if at := strings.Index(string(out), " <ReflectMethod>"); at >= 0 {
		caller := string(out[:at])
		t.Errorf("%s calls methods by name, so all stay in the binary", caller[strings.LastIndex(caller, "\n")+1:])
	}
}

// TestPackageTree holds the tree to its rooms: no other top-level directory, no drawer for leftovers.
func TestPackageTree(t *testing.T) {
	tops := []string{"cmd", "mcpserver", "skills", "sandbox", "provenance", "e2e"}
	drawers := []string{"internal", "pkg", "util", "utils", "common", "types", "helpers", "models", "misc"}
	for _, p := range ourPackages(t, "linux") {
		segments := strings.Split(p.rel(), "/")
		if !slices.Contains(tops, segments[0]) {
			t.Errorf("package %q lies in none of %q", p.rel(), tops)
		}
		for _, s := range segments {
			if slices.Contains(drawers, s) {
				t.Errorf("package %s: %s says nothing about what it holds", p.rel(), s)
			}
		}
	}
}

// TestProcessNames keeps flags, environment, standard streams and exit codes in cmd. Tests and e2e
// are programs of their own.
func TestProcessNames(t *testing.T) {
	used := map[string][]string{}
	for _, f := range sourceFiles(t) {
		if path.Dir(f.path) == "cmd/skillsd" || path.Dir(f.path) == "cmd/skillsd-sigstore" || below(f.path, "e2e") {
			continue
		}
		for _, use := range cmdOnlyUses(f.syntax) {
			used[f.path] = append(used[f.path], use.name)
			if !slices.Contains(cmdOnlyExceptions[f.path], use.name) {
				t.Errorf("%s:%d uses %s, which belongs to cmd", f.path, f.set.Position(use.pos).Line, use.name)
			}
		}
	}
	for file, names := range cmdOnlyExceptions {
		for _, name := range names {
			if !slices.Contains(used[file], name) {
				t.Errorf("%s does not use %s: drop the exception", file, name)
			}
		}
	}
}

// use is one mention of a name of another package.
type use struct {
	name string
	pos  token.Pos
}

// cmdOnlyUses finds the names of cmdOnly in a file, under whatever name it imports their package.
func cmdOnlyUses(file *ast.File) []use {
	var uses []use
	locals := map[string]string{} // name in the file -> import path
	for _, spec := range file.Imports {
		imp := strings.Trim(spec.Path.Value, `"`)
		names, watched := cmdOnly[imp]
		if !watched {
			continue
		}
		local := path.Base(imp)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if slices.Contains(names, "*") || local == "." {
			uses = append(uses, use{imp, spec.Pos()})
			continue
		}
		locals[local] = imp
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if ok && slices.Contains(cmdOnly[locals[id.Name]], sel.Sel.Name) {
			uses = append(uses, use{path.Base(locals[id.Name]) + "." + sel.Sel.Name, sel.Pos()})
		}
		return true
	})
	return uses
}

// ourPackages lists the packages of the module with everything they reach, as goos sees them.
func ourPackages(t *testing.T, goos string) []*goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list",
		"-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v\n%s", goos, err, stderr.String())
	}
	var packages []*goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &goPackage{}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list for %s: %v", goos, err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 10 {
		t.Fatalf("go list for %s named %d packages of ours", goos, len(packages))
	}
	return packages
}

// below reports whether a slash path is dir or lies under it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// sourceFile is one Go file that is no test, of whatever system.
type sourceFile struct {
	path   string // slash-separated, below the module
	text   string
	set    *token.FileSet
	syntax *ast.File
}

// sourceFiles parses every Go file of the module that is no test, in the order of their paths.
func sourceFiles(t *testing.T) []sourceFile {
	t.Helper()
	var files []sourceFile
	err := filepath.WalkDir("..", func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != ".." && (base == "testdata" || base == "bin" || strings.HasPrefix(base, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f := sourceFile{path: strings.TrimPrefix(filepath.ToSlash(name), "../"), set: token.NewFileSet(), text: string(text)}
		f.syntax, err = parser.ParseFile(f.set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found %d Go files", len(files))
	}
	return files
}

// ARCHITECTURE.md names every package, and no file or directory that is not there.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("../.github/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.FieldsFunc(string(text), func(r rune) bool {
		return !(r == '_' || r == '-' || r == '.' || r == '/' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	})
	named := map[string]bool{}
	for _, word := range words {
		word = strings.Trim(word, "./")
		for part := range strings.SplitSeq(word, "/") {
			named[part] = true
		}
		if !strings.HasSuffix(word, ".go") || !strings.Contains(word, "/") {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", word)); err != nil {
			t.Errorf("it names %s, which is not there", word)
		}
	}
	for name := range importRules {
		if !named[path.Base(name)] {
			t.Errorf("it does not name the package %s", name)
		}
	}
	table, _, _ := strings.Cut(string(text), "\n## How a call")
	rows := ownerRow.FindAllStringSubmatch(table, -1)
	if len(rows) < 30 {
		t.Errorf("the table of packages has %d rows", len(rows))
	}
	for _, row := range rows {
		for _, name := range ownerNames(row[1]) {
			if files, _ := filepath.Glob(filepath.Join("..", name, "*.go")); len(files) == 0 {
				t.Errorf("its table has the package %s, which is not there", name)
			}
		}
	}
}

// ownerRow matches a row of the table of packages.
var ownerRow = regexp.MustCompile("(?m)^\\| (`[^|]+) \\|")

// ownerNames returns the packages of the first cell of such a row: `a/b`, `c` and `d/{e,f}` are a/b, a/c, d/e and d/f.
func ownerNames(cell string) (names []string) {
	above := ""
	for name := range strings.SplitSeq(cell, "`, `") {
		name = strings.Trim(name, "` ")
		if !strings.Contains(name, "/") && above != "" {
			name = above + "/" + name
		}
		head, rest, several := strings.Cut(name, "/{")
		if !several {
			above = path.Dir(name)
			names = append(names, name)
			continue
		}
		for last := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
			names = append(names, head+"/"+last)
		}
	}
	return names
}

// changeRow matches a row of the table of changes: its files, and the example.
var changeRow = regexp.MustCompile("(?m)^\\| [^|]+ \\| ((?:`[a-z/_]+\\.go` ?)+) \\| `([^`]+)` \\|$")

// What ARCHITECTURE says that a change takes is what the example of the change took.
func TestChanges(t *testing.T) {
	text, err := os.ReadFile("../.github/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := changeRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) != 47 {
		t.Fatalf("the tables have %d changes, want 47", len(rows))
	}
	files := map[string]string{}
	for _, dir := range []string{"cmd", "mcpserver", "skills", "sandbox", "provenance"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			data, err := os.ReadFile(name)
			files[strings.TrimPrefix(filepath.ToSlash(name), "../")] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range rows {
		want := strings.Fields(strings.ReplaceAll(row[1], "`", ""))
		word := regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(row[2]) + `(\W|$)`)
		var got []string
		for name, content := range files {
			if strings.Contains(content, row[2]) && word.MatchString(content) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s is in %q, the table names %q", row[2], got, want)
		}
	}
}

// TestLongTests wants each test that the Makefile names as LONG in its packages LONGS and in no other: elsewhere a
// test of that name would be left out with the race detector and not be run without it. The packages FEW exist.
func TestLongTests(t *testing.T) {
	data, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "\\\n", " ")
	words := func(variable string) []string {
		found := regexp.MustCompile(`(?m)^` + variable + ` *= (.*)$`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("the Makefile has no %s", variable)
		}
		return strings.Fields(found[1])
	}
	for _, dir := range words("FEW") {
		if _, err := os.Stat(filepath.Join("..", dir)); err != nil {
			t.Errorf("FEW of the Makefile: %v", err)
		}
	}
	names := words("LONG")
	dirs := words("LONGS")
	long := regexp.MustCompile(`(?m)^func Test(` + strings.Join(names, "|") + `)\(`)
	seen := map[string]bool{}
	err = filepath.WalkDir("..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		data, err := os.ReadFile(file)
		dir := "./" + strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../")
		for _, found := range long.FindAllSubmatch(data, -1) {
			name := string(found[1])
			seen[name] = true
			if !slices.Contains(dirs, dir) {
				t.Errorf("Test%s of %s has the name of a LONG test, and %s is not in LONGS", name, file, dir)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("LONG names Test%s, which does not exist", name)
		}
	}
}
