// Package imports finds, before a run, the modules that a script imports from outside of its standard
// library, and the package that provides each.
//
// # Trust
//
// Scripts are untrusted text. Python's own parser reads them, in a program that the caller runs in the
// sandbox with the interpreter and the packages of the run; no part of them is executed, and the answer is
// parsed as untrusted too. Scripts for Node are parsed here.
//
// The name of a package is never derived from the name of a module: anyone may register a package under a
// name in an import. A package is suggested only if the skill names it, or the table of this package. The
// table takes precedence, since its entries were reviewed.
package imports

import (
	_ "embed" // the program
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// Kind describes when a module is needed.
type Kind string

// The kinds, most certain first.
const (
	Hard     Kind = "hard"     // whenever the script runs
	Required Kind = "required" // the same, but the script exits with its own message
	Guarded  Kind = "guarded"  // the script works without it
	Lazy     Kind = "lazy"     // only by a part of the script
)

// A Module is a module that a script imports, neither its own nor of the standard library.
type Module struct {
	Name  string `json:"name"`
	Kind  Kind   `json:"kind"`
	There bool   `json:"there"` // found by the interpreter

	// Libraries are shared libraries that the file of the module requires and that the script would not find.
	// Libraries that a module loads later are not included.
	Libraries []string `json:"libraries"`
}

// Needed reports whether the script cannot run without the module, which is missing.
func (m *Module) Needed() bool { return !m.There && m.certain() }

// Unloadable reports whether the script cannot run without the module, which is found but cannot be loaded
// without its Libraries.
func (m *Module) Unloadable() bool { return m.There && len(m.Libraries) > 0 && m.certain() }

func (m *Module) certain() bool { return m.Kind == Hard || m.Kind == Required }

//go:embed python.py
var pythonProgram string

// MaxFile is the maximum size of a source in bytes, and MaxFiles the maximum number of sources of a skill.
const (
	MaxFile  = 1 << 20
	MaxFiles = 1000
)

// Python returns the command and standard input that analyze scripts of a skill. interpreter is an absolute
// path, files are the skill's sources by path.
func Python(interpreter string, scripts []string, files map[string][]byte) (argv []string, stdin []byte,
	err error) {
	stdin, err = json.Marshal(struct {
		Scripts []string          `json:"scripts"`
		Files   map[string][]byte `json:"files"`
	}{scripts, files})
	// Isolated mode keeps modules in the working directory from taking the place of the standard library.
	return []string{interpreter, "-I", "-B", "-c", pythonProgram}, stdin, err
}

// maxModules is the maximum number of modules of one script, maxLibraries the maximum number of libraries of
// one module.
const maxModules, maxLibraries = 200, 5

var (
	moduleName  = pattern.New(`^[A-Za-z_]\w{0,79}$`)
	libraryName = pattern.New(`^\w[\w.+-]{0,79}\.so(\.[0-9]{1,8}){0,4}$`)
)

// Imported is all that one script imports.
type Imported struct {
	Modules []Module `json:"modules"`
	Files   []string `json:"files"` // paths of other files of its skill, by it or by one of them, sorted
	// Unread are those files, and the script, whose imports could not be determined, sorted.
	Unread []string `json:"unread"`
}

// ParsePython parses the output of the command of Python: the imports of each of n scripts. The skill
// may lack some of the files.
func ParsePython(stdout []byte, n int) ([]Imported, error) {
	var answers []Imported
	if err := json.Unmarshal(stdout, &answers); err != nil {
		return nil, err
	}
	if len(answers) != n {
		return nil, fmt.Errorf("%d answers about %d scripts", len(answers), n)
	}
	for i, answer := range answers {
		kept := answer.Modules[:0]
		for _, m := range answer.Modules {
			switch m.Kind {
			case Hard, Required, Guarded, Lazy:
			default:
				return nil, fmt.Errorf("unknown kind %.20q of a module", m.Kind)
			}
			// Names in other letters exist, but no known package has one.
			if moduleName().MatchString(m.Name) && len(kept) < maxModules {
				m.Libraries = slices.DeleteFunc(m.Libraries, func(name string) bool {
					return !libraryName().MatchString(name)
				})
				m.Libraries = m.Libraries[:min(len(m.Libraries), maxLibraries)]
				kept = append(kept, m)
			}
		}
		answers[i].Modules = kept
	}
	return answers, nil
}
