package environments

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/script/imports"
)

// Imports are the modules that a script imports, with the packages that provide them.
type Imports struct {
	Script      string // SKILL:scripts/PATH
	Interpreter string // path on this machine; empty for Node
	Environment string // the script's environment, or a free name for one
	Given       bool   // the script has that environment
	Needs       []imports.Need
	Files       []string // other files of the skill that the script imports, sorted
	Unread      []string // those files, and the script, whose own imports are unknown, sorted
	Block       []string // packages in the script's metadata block
	Python      string   // required versions of Python; empty: the interpreter matches

	version string // of the interpreter
	ownRoot bool   // the environment has its own root file system
}

// A Looker determines the imports of scripts. The zero value with a Process is ready for use; it caches the
// sandbox.
type Looker struct {
	Process *config.Process
	Sandbox string // backend; "" means auto

	runner sandbox.Runner
	finder *detect.Finder // caches its results
}

// readable are the names of files with package names; maxSources is the maximum that is read of a skill, in
// bytes.
var readable = []string{"requirements.txt", "pyproject.toml", "package.json"}

const maxSources = 32 << 20

// Look determines what the script of an entry imports, and which imports are missing. It returns nil for a
// script that is neither Python nor Node, and for one that runs on the host.
//
// Errors: no sandbox works; the interpreter or the environment of the entry cannot be used; the skill cannot
// be read.
func (l *Looker) Look(ctx context.Context, sk *skills.Skill, entry policy.Entry) (*Imports, error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return nil, err
	}
	r := index.Resource(entry.Path)
	if r == nil || r.Program() == nil || entry.Target == policy.TargetHost {
		return nil, nil
	}
	runtime := r.Program().Runtime
	suffixes := suffixesOf[runtime]
	if suffixes == nil {
		return nil, nil
	}
	texts, err := readSources(ctx, sk, index, entry.Path, suffixes)
	if err != nil {
		return nil, err
	}
	found := &Imports{Script: entry.Skill + ":" + entry.Path, Environment: entry.Environment,
		Given: entry.Environment != ""}
	if found.Environment == "" {
		found.Environment = l.freeName(entry.Skill)
	}
	var imported imports.Imported
	if runtime == script.Node {
		imported, err = l.node(entry, texts.sources)
	} else {
		imported, err = l.pythonOf(ctx, entry, texts, found)
	}
	found.Needs = imports.Needs(imported.Modules, &texts.named, runtime == script.Node)
	for _, name := range imported.Files {
		if _, isSource := texts.sources[name]; isSource {
			found.Files = append(found.Files, name)
		}
	}
	for _, name := range append(texts.unread, imported.Unread...) {
		if name == entry.Path || slices.Contains(found.Files, name) {
			found.Unread = append(found.Unread, name)
		}
	}
	slices.Sort(found.Unread)
	return found, err
}

// suffixesOf are the extensions of the modules that scripts of an interpreter can import.
var suffixesOf = map[script.Runtime][]string{
	script.Node:    {".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".json"},
	script.Python3: {".py"},
}

// texts are the texts of a skill from which the imports of a script are determined.
type texts struct {
	named   imports.Texts     // in which packages may be named
	sources map[string][]byte // the script, and the modules that it can import; empty if unread
	unread  []string          // sources that are too large or unreadable
}

// readSources reads the script at a path of a skill, the sources with some suffixes, and the files that
// name packages.
//
// Errors: the error of ctx. Unreadable files that are no sources are left out.
func readSources(
	ctx context.Context, sk *skills.Skill, index *skills.Index, at string, suffixes []string,
) (*texts, error) {
	t := &texts{named: imports.Texts{Files: map[string][]byte{}}, sources: map[string][]byte{}}
	// The script and the instructions are first, so that many other sources cannot use up the limits.
	names := []string{at, sk.File}
	for i := range index.Resources {
		name := index.Resources[i].Path
		isRead := slices.Contains(suffixes, path.Ext(name)) || slices.Contains(readable, path.Base(name))
		if isRead && name != at {
			names = append(names, name)
		}
	}
	left := int64(maxSources)
	for n, name := range names {
		isSource := name == at || slices.Contains(suffixes, path.Ext(name))
		var content *skills.Content
		err := errTooMany
		if n < imports.MaxFiles {
			content, err = sk.Read(ctx, name, min(imports.MaxFile, left))
		}
		// A canceled read must not pass for an unreadable source.
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			if isSource {
				// An import of it must still be found as a file of the skill, not as a missing package.
				t.sources[name] = []byte{}
				t.unread = append(t.unread, name)
			}
			continue
		}
		left -= content.Size
		if isSource {
			t.sources[name] = content.Data
		}
		t.named.Files[name] = content.Data
	}
	t.named.Script, t.named.Skill = t.named.Files[at], t.named.Files[sk.File]
	t.named.Named = sk.Frontmatter.Dependencies()
	return t, nil
}

// errTooMany is the reason why a source of a skill with many is not read.
var errTooMany = errors.New("the skill has more sources than are read")

// pythonOf returns the imports of a script for Python. It sets in found the packages in the script's metadata
// block, and the versions of Python that this requires if the interpreter has another.
func (l *Looker) pythonOf(
	ctx context.Context, entry policy.Entry, t *texts, found *Imports,
) (imports.Imported, error) {
	own, err := imports.Block(t.named.Script)
	if err != nil {
		return imports.Imported{}, fmt.Errorf("the script's own block of metadata: %w", err)
	}
	found.Block, _ = own.Specs()
	imported, err := l.python(ctx, entry, t.sources, found)
	if !own.Accepts(found.version) {
		found.Python = own.Python
	}
	return imported, err
}

// Offer returns the command that makes an environment of the packages that the frontmatter of a skill names,
// for the script of an entry if it has none. It returns "" if the skill names none that pip can install.
func (l *Looker) Offer(sk *skills.Skill, entries []policy.Entry) string {
	named := imports.Metadata{Dependencies: sk.Frontmatter.Dependencies()}
	specs, _ := named.Specs()
	if len(specs) == 0 {
		return ""
	}
	words := append([]string{"skillsd", "env", "add", l.freeName(sk.Path)}, specs...)
	for _, e := range entries {
		if e.Skill == sk.Path && e.Environment == "" && e.Target != policy.TargetHost {
			words = append(words, "--allow", e.Skill+":"+e.Path)
		}
	}
	return report.ShellLine(words...)
}

// freeName returns a name for a new environment of a skill. It must not be used by scripts of another skill,
// which would get its packages.
func (l *Looker) freeName(skill string) string {
	base := strings.ReplaceAll(skill, "/", "-")
	if !environment.ValidName(base) || len(base) > 60 {
		base = fmt.Sprintf("packages-%x", sha256.Sum256([]byte(skill)))[:len("packages-")+8]
	}
	keys := l.Process.Cfg.Keys
	for n, name := 2, base; ; n++ {
		_, taken := keys.Environments[name]
		uses, others := false, false
		for _, key := range keys.Allow {
			if e, err := key.Entry(); err == nil && e.Environment == name {
				uses, others = uses || e.Skill == skill, others || e.Skill != skill
			}
		}
		if !taken || uses && !others {
			return name
		}
		name = fmt.Sprintf("%s-%d", base, n)
	}
}

// node returns the imports of a script for Node. Without an environment it finds no package.
func (l *Looker) node(entry policy.Entry, sources map[string][]byte) (imports.Imported, error) {
	var none imports.Imported
	var have []environment.Package
	if entry.Environment != "" {
		lock, err := l.Process.ReadLock()
		if err != nil {
			return none, err
		}
		if lock != nil {
			if locked := lock.Environments[entry.Environment]; locked != nil && locked.Node != nil {
				have = locked.Node.Packages
			}
		}
	}
	return imports.Node(entry.Path, sources, func(name string) bool {
		return slices.ContainsFunc(have, func(p environment.Package) bool {
			return p.Path == "node_modules/"+name
		})
	}), nil
}

// python asks the run's interpreter, in the sandbox and with the packages of the run.
func (l *Looker) python(
	ctx context.Context, entry policy.Entry, sources map[string][]byte, found *Imports,
) (imports.Imported, error) {
	var none imports.Imported
	in, err := l.usablePython(ctx, entry)
	if err != nil {
		return none, err
	}
	cmd := &sandbox.Cmd{Interpreter: in, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"},
		Limits: sandbox.Limits{Timeout: 20 * time.Second, Output: 4 << 20}}
	found.Interpreter, found.version = in.Path, in.Version
	if entry.Environment != "" {
		all, err := l.environments()
		if err != nil {
			return none, err
		}
		defer all.Store.Close()
		given, err := all.Give(ctx, entry.Environment, "", in)
		if err != nil {
			return none, err
		}
		defer given.Close()
		cmd.Interpreter, cmd.Packages, cmd.Root = given.Interpreter, given.Mounts, given.Root
		found.ownRoot = given.Root != nil
	}
	dir, err := os.MkdirTemp("", "skillsd-imports-")
	if err != nil {
		return none, err
	}
	defer os.RemoveAll(dir)
	// The directory is empty: with the skill mounted, Python would import modules of the skill into the
	// program that analyzes it.
	cmd.Tree, err = os.Open(dir)
	if err != nil {
		return none, err
	}
	defer cmd.Tree.Close()
	cmd.Argv, cmd.Stdin, err = imports.Python(cmd.Interpreter.Path, []string{entry.Path}, sources)
	if err != nil {
		return none, err
	}
	result, err := l.runner.Run(ctx, cmd)
	if err != nil {
		return none, err
	}
	// The answer is about untrusted sources, which could make it too long; a part of it would hide imports.
	if result.Outcome != sandbox.Exited || result.ExitCode != 0 || result.Stdout.Truncated {
		return none, fmt.Errorf("python3 did not say what the script imports: %s, exit code %d",
			result.Outcome, result.ExitCode)
	}
	answers, err := imports.ParsePython(result.Stdout.Head, 1)
	if err != nil {
		return none, fmt.Errorf("python3 did not say what the script imports: %w", err)
	}
	return answers[0], nil
}

// usablePython opens the sandbox if it is not open, and returns the Python of a run.
//
// Errors: no sandbox works; *exit.Error if there is no Python.
func (l *Looker) usablePython(ctx context.Context, entry policy.Entry) (*sandbox.Interpreter, error) {
	if l.runner == nil {
		var err error
		l.runner, err = Sandbox(ctx, l.Process, l.Sandbox)
		if err != nil {
			return nil, err
		}
	}
	in, err := l.Interpreter(ctx, entry, script.Python3)
	if err == nil && in == nil {
		err = exit.Errorf(exit.Failure, "install python3 from your distribution",
			"there is no usable python3")
	}
	return in, err
}

// Interpreter returns the interpreter for a script of an entry: from the root file system of its environment,
// if that has one, else of this machine; or nil.
//
// Errors: *packages.Refusal; the lock or the environment cannot be read.
func (l *Looker) Interpreter(
	ctx context.Context, entry policy.Entry, runtime script.Runtime,
) (*sandbox.Interpreter, error) {
	if l.finder == nil {
		l.finder = l.Process.Interpreters()
	}
	find := func(ctx context.Context, name string) (*sandbox.Interpreter, error) {
		// For entries in the sandbox SearchPath is empty.
		return l.finder.FindOnHost(ctx, name, entry.SearchPath)
	}
	if entry.Environment == "" {
		return find(ctx, string(runtime))
	}
	all, err := l.environments()
	if err != nil {
		return nil, err
	}
	defer all.Store.Close()
	return all.Finder(entry.Environment, find)(ctx, string(runtime))
}

// Lacking returns why a script cannot run with what [Looker.Interpreter] returned for its runtime, and what
// to do; or "" if it can.
func Lacking(runtime script.Runtime, found *sandbox.Interpreter, err error) (problem, hint string) {
	hint = "install " + string(runtime) + " from your distribution"
	if refusal, ok := errors.AsType[*packages.Refusal](err); ok {
		return refusal.Message, strings.Replace(refusal.Remedy, "the user can ", "", 1)
	}
	if err != nil {
		return string(runtime) + " cannot be used: " + err.Error(), hint
	}
	if found == nil {
		return string(runtime) + " is not installed", hint
	}
	return "", ""
}

// environments returns the environments for runs. The caller closes their Store.
func (l *Looker) environments() (*packages.Environments, error) {
	lock, err := l.Process.ReadLock()
	if err != nil {
		return nil, err
	}
	store, err := openStore(l.Process)
	if err != nil {
		return nil, err
	}
	return &packages.Environments{Store: store, Lock: lock,
		Python: func(ctx context.Context) (*sandbox.Interpreter, error) {
			return l.finder.Find(ctx, string(script.Python3))
		}}, nil
}

// missing returns the modules that the script needs and does not find. i may be nil.
func (i *Imports) missing() (needs []imports.Need) {
	if i != nil {
		for _, n := range i.Needs {
			if n.Needed() {
				needs = append(needs, n)
			}
		}
	}
	return needs
}

// unloadable returns the modules that exist but cannot be loaded, and the libraries that they lack.
func (i *Imports) unloadable() (modules, libraries []string) {
	if i != nil {
		for _, n := range i.Needs {
			if n.Unloadable() {
				modules, libraries = append(modules, n.Name), append(libraries, n.Libraries...)
			}
		}
	}
	slices.Sort(libraries)
	return modules, slices.Compact(libraries)
}

// Text describes what is missing, in one line; "" for nothing. i may be nil.
func (i *Imports) Text() string {
	var names, unknown []string
	for _, n := range i.missing() {
		names = append(names, n.Name)
		if n.Spec == "" {
			unknown = append(unknown, n.Name)
		}
	}
	python := ""
	if i != nil && i.Python != "" {
		python = "asks for Python " + i.Python + ", and " + i.Interpreter + " is " + i.version
	}
	loads, libraries := i.unloadable()
	if len(loads) > 0 {
		loaded := "imports " + strings.Join(loads, ", ") + ", which needs "
		if len(libraries) == 1 {
			loaded += "a shared library that is"
		} else {
			loaded += "shared libraries that are"
		}
		python = strings.Trim(python+"; "+loaded+" not there: "+strings.Join(libraries, ", "), "; ")
	}
	if len(names) == 0 {
		return python
	}
	if python != "" {
		python += "; "
	}
	text := python + "imports " + strings.Join(names, ", ") + ", which "
	switch {
	case i.Given:
		text += "environment " + i.Environment + " lacks"
	case i.Interpreter != "":
		text += i.Interpreter + " lacks"
	case len(names) == 1:
		text += "is not part of Node"
	default:
		text += "are not part of Node"
	}
	if len(unknown) > 0 {
		text += "; no package is known for " + strings.Join(unknown, ", ")
	}
	return text
}

// Asked returns the packages for an environment of the script: of missing modules, and of modules that the
// machine's interpreter has and an environment would hide. It is empty if no missing module has a known
// package, and if the script needs another version of Python.
func (i *Imports) Asked() (words []string) {
	known := false
	for _, n := range i.Needs {
		known = known || n.Needed() && n.Spec != ""
		if n.Spec == "" || !n.There && !n.Needed() {
			continue
		}
		if i.Interpreter == "" {
			n.Spec = "npm:" + n.Spec
		}
		words = append(words, n.Spec)
	}
	if i.Python != "" || len(i.missing()) == 0 || !known && len(i.Block) == 0 {
		return nil
	}
	return merged(words, i.Block, pythonName)
}

// Hint returns the command that provides what the script lacks. It names only packages with a trusted source.
func (i *Imports) Hint() string {
	asked := i.Asked()
	if i.Python != "" {
		return "name another interpreter in the configuration, interpreters: {python: PATH}; see " +
			"`skillsd help env`"
	}
	_, libraries := i.unloadable()
	switch {
	case len(i.missing()) > 0 || len(libraries) == 0:
	case i.ownRoot:
		return "make the root file system again with a package that has " + strings.Join(libraries, ", ")
	default:
		return "install the package of your distribution that has " + strings.Join(libraries, ", ") +
			", or another package of the module that brings it along"
	}
	if len(asked) == 0 {
		return "packages come from `skillsd env add`; see `skillsd help env`"
	}
	words := append([]string{"skillsd", "env", "add", i.Environment}, asked...)
	return report.ShellLine(append(words, "--allow", i.Script)...)
}

// Rows returns the modules for printing. i may be nil.
func (i *Imports) Rows() []report.ImportRow {
	rows := []report.ImportRow{}
	if i != nil {
		for _, n := range i.Needs {
			rows = append(rows, report.ImportRow{Module: n.Name, Kind: string(n.Kind), There: n.There,
				Libraries: n.Libraries, Package: n.Spec, Source: string(n.Source)})
		}
	}
	return rows
}
