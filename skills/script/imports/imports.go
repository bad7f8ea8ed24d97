// Package imports finds out, before a run, which modules a script imports that are not part of its language,
// and which package has each of them.
//
// # Trust
//
// Scripts are a stranger's text. Python's own parser reads them, by a program that the caller runs in the
// sandbox with the interpreter and the packages of the run; nothing of them is executed, and the answer is
// parsed as a stranger's too. Scripts for Node are read here.
//
// The name of a package is never derived from the name of a module: anybody may register a name that scripts
// import by another. A package is named only if the skill names it, or the table of this package; in the
// table it takes precedence, since it was looked at.
package imports

import (
	_ "embed" // the program
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// Kind is when a module is needed.
type Kind string

// The kinds, the most certain first.
const (
	Hard     Kind = "hard"     // whenever the script runs
	Required Kind = "required" // the same; the script ends with words of its own
	Guarded  Kind = "guarded"  // the script goes without it
	Lazy     Kind = "lazy"     // by a part of the script only
)

// A Module is one that a script imports, neither its own nor of the standard library.
type Module struct {
	Name  string `json:"name"`
	Kind  Kind   `json:"kind"`
	There bool   `json:"there"` // the interpreter finds it

	// Libraries are shared libraries that the module needs to be loaded, as its file says, and that a script
	// would not find. A library that a module loads later is not among them.
	Libraries []string `json:"libraries"`
}

// Needed reports whether the script does not run without the module, which is not there.
func (m *Module) Needed() bool { return !m.There && m.certain() }

// Unloadable reports whether the script does not run without the module, which is there and cannot be loaded
// without its Libraries.
func (m *Module) Unloadable() bool { return m.There && len(m.Libraries) > 0 && m.certain() }

func (m *Module) certain() bool { return m.Kind == Hard || m.Kind == Required }

//go:embed python.py
var pythonProgram string

// MaxFile and MaxFiles bound the sources that are looked at: one, in bytes, and all of a skill.
const (
	MaxFile  = 1 << 20
	MaxFiles = 1000
)

// Python returns the command that looks at scripts of a skill with an interpreter, an absolute path, and its
// standard input. files are the skill's sources, by their paths.
func Python(interpreter string, scripts []string, files map[string][]byte) (argv []string, stdin []byte,
	err error) {
	stdin, err = json.Marshal(struct {
		Scripts []string          `json:"scripts"`
		Files   map[string][]byte `json:"files"`
	}{scripts, files})
	return []string{interpreter, "-I", "-B", "-c", pythonProgram}, stdin, err
}

// maxModules bounds the modules of one script, maxLibraries the libraries of one module.
const maxModules, maxLibraries = 200, 5

var (
	moduleName  = pattern.New(`^[A-Za-z_]\w{0,79}$`)
	libraryName = pattern.New(`^\w[\w.+-]{0,79}\.so(\.[0-9]{1,8}){0,4}$`)
)

// ParsePython reads what the command of Python wrote: the modules of each of n scripts.
func ParsePython(stdout []byte, n int) ([][]Module, error) {
	var answers [][]Module
	if err := json.Unmarshal(stdout, &answers); err != nil {
		return nil, err
	}
	if len(answers) != n {
		return nil, fmt.Errorf("%d answers about %d scripts", len(answers), n)
	}
	for i, modules := range answers {
		kept := modules[:0]
		for _, m := range modules {
			switch m.Kind {
			case Hard, Required, Guarded, Lazy:
			default:
				return nil, fmt.Errorf("unknown kind %.20q of a module", m.Kind)
			}
			// Names in other letters exist, and no package that is known has one.
			if moduleName().MatchString(m.Name) && len(kept) < maxModules {
				m.Libraries = slices.DeleteFunc(m.Libraries, func(name string) bool {
					return !libraryName().MatchString(name)
				})
				m.Libraries = m.Libraries[:min(len(m.Libraries), maxLibraries)]
				kept = append(kept, m)
			}
		}
		answers[i] = kept
	}
	return answers, nil
}
