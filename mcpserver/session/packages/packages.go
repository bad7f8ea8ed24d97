// Package packages gives runs the environments that their entries name: checked, as mounts, and as the
// interpreter that finds them.
package packages

import (
	"context"
	"errors"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/environment/rootfs"
	"github.com/skillsd/skillsd/skills/script"
)

// The codes of refusals.
const (
	InterpreterMissing = "interpreter_not_found"
	NotMade            = "environment_not_made"
	Changed            = "environment_changed"
	InterpreterChanged = "environment_interpreter_changed"
	Unsupported        = "environment_unsupported"
)

// Refusal is why a run does not get its environment. Message and Remedy are public; Err is for the log.
type Refusal struct {
	Code, Message, Remedy string
	Err                   error
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

// Unwrap returns the private cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Environments are the environments of a server, as its lock was when it started.
type Environments struct {
	Store *environment.Store // nil without environments
	Lock  *environment.Lock  // nil without environments
	// Python returns the interpreter that environments are made for, nil for none.
	Python func(ctx context.Context) (*sandbox.Interpreter, error)
}

// Given is what a run is given.
type Given struct {
	Mounts      []sandbox.Mount
	Root        *sandbox.Root        // nil: the host's
	Interpreter *sandbox.Interpreter // replaces the interpreter of a script without an environment
	Base        *sandbox.Interpreter // that one
	Path        string               // the PATH of the script
	// of the interpreter, without which the script does not find the packages
	Flags  []string
	Record cfharness.Environment
}

// Close closes the directories. It may be called for nil.
func (g *Given) Close() {
	if g != nil {
		for _, m := range g.Mounts {
			_ = m.Dir.Close()
		}
		_ = rootfs.Unmount(g.Root)
	}
}

const remedy = "the user makes it with `skillsd env sync`; do without this script until then"

// refuse returns a refusal. "{name}" in message is the environment.
func refuse(code, name, message string, err error) error {
	return &Refusal{Code: code, Message: strings.ReplaceAll(message, "{name}", name), Remedy: remedy,
		Err: err}
}

// locked returns what is locked of an environment, and the environment whose root file system it has, nil for
// the host's.
func (e *Environments) locked(name string) (locked, base *environment.Locked, err error) {
	if e == nil || e.Store == nil || e.Lock == nil || e.Lock.Environments[name] == nil {
		return nil, nil, refuse(NotMade, name, "the script's environment {name} is not locked and not made",
			nil)
	}
	locked = e.Lock.Environments[name]
	base, err = e.Lock.RootOf(locked)
	if err != nil {
		return nil, nil, refuse(NotMade, name,
			"the root file system of the script's environment {name} is not the one that it was locked for",
			err)
	}
	if !environment.Fits(locked) {
		return nil, nil, refuse(Unsupported, name, "the script's environment {name} is locked for "+
			locked.Platform+", the server runs on "+environment.Platform(), nil)
	}
	return locked, base, nil
}

// Finder returns how the interpreters of an environment's root file system are found, otherwise if it has the
// host's. Errors of what it returns: *Refusal, also if the root file system has no such interpreter.
func (e *Environments) Finder(name string, otherwise Find) Find {
	_, base, err := e.locked(name)
	if err == nil && base == nil {
		return otherwise
	}
	return func(ctx context.Context, program string) (*sandbox.Interpreter, error) {
		if err != nil {
			return nil, err
		}
		tree, err := e.Store.Tree(ctx, base.Digest, "")
		if err != nil {
			return nil, e.unusable(name, base.Digest, "", err)
		}
		if in := rootfs.Interpreter(tree, base.Root, program); in != nil {
			return in, nil
		}
		return nil, &Refusal{Code: InterpreterMissing,
			Message: "the root file system of the script's environment " + name + " has no " + program +
				" that runs here",
			Remedy: "the user can take one that has it, with `skillsd env add --root`"}
	}
}

// Find returns the interpreter of a name, or nil.
type Find = func(ctx context.Context, name string) (*sandbox.Interpreter, error)

// unusable returns the refusal of an environment whose tree cannot be used, or the error itself.
func (e *Environments) unusable(name string, sum, variant digest.Digest, err error) error {
	_, changed := errors.AsType[*environment.ChangedError](err)
	switch {
	case errors.Is(err, environment.ErrNotMade) && variant != "" && e.Store.Made(sum):
		return refuse(InterpreterChanged, name,
			"the script's environment {name} was made for another Python than the server's", err)
	case errors.Is(err, environment.ErrNotMade):
		return refuse(NotMade, name, "the script's environment {name} is not made", err)
	case changed:
		return refuse(Changed, name, "files of the script's environment {name} are not what they "+
			"were made as",
			err)
	}
	return err
}

// check returns a tree, checked for a run.
func (e *Environments) check(ctx context.Context, name string, sum, variant digest.Digest) (
	tree *environment.Tree, checked environment.Checked, err error) {
	tree, err = e.Store.Tree(ctx, sum, variant)
	if err != nil {
		return nil, checked, e.unusable(name, sum, variant, err)
	}
	checked, err = tree.Check(ctx)
	if err != nil {
		return nil, checked, e.unusable(name, sum, variant, err)
	}
	return tree, checked, nil
}

// Give returns the environment called name for a run of a script with an interpreter, which its Finder found:
// checked. systemPath is the PATH of a script without one. The caller closes what it gets.
//
// Errors: *Refusal; errors of ctx and of the system.
func (e *Environments) Give(
	ctx context.Context, name, systemPath string, in *sandbox.Interpreter,
) (_ *Given, err error) {
	locked, base, err := e.locked(name)
	if err != nil {
		return nil, err
	}
	g := &Given{Interpreter: in, Base: in, Path: systemPath,
		Record: cfharness.Environment{Name: name, Digest: locked.Digest}}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	if base != nil {
		if err := e.giveRoot(ctx, g, base); err != nil {
			return nil, err
		}
	}
	if locked.Root != nil {
		return g, nil
	}
	var variant digest.Digest
	if locked.Python != nil {
		variant, err = e.givePython(ctx, g, locked)
		if err != nil {
			return nil, err
		}
	}
	tree, checked, err := e.check(ctx, name, locked.Digest, variant)
	if err != nil {
		return nil, err
	}
	top, err := tree.Open()
	if err != nil {
		return nil, e.unusable(name, locked.Digest, variant, err)
	}
	g.Mounts = []sandbox.Mount{{Dir: top, At: sandbox.EnvDir}}
	// With two trees, the record has the older of the times at which all files of one were last checked.
	if at := provenance.Stamp(checked.At); base == nil || at.Before(g.Record.FullAt.Time) {
		g.Record.Checked, g.Record.FullAt = checked.How, at
	}
	if locked.Node == nil {
		return g, nil
	}
	modules, err := tree.OpenDir("node_modules")
	if err != nil {
		return nil, err
	}
	g.Mounts = append(g.Mounts, sandbox.Mount{Dir: modules, At: sandbox.NodeModulesDir})
	return g, g.addNode(locked.Node)
}

// giveRoot mounts the root file system of an environment.
func (e *Environments) giveRoot(ctx context.Context, g *Given, base *environment.Locked) error {
	tree, checked, err := e.check(ctx, g.Record.Name, base.Digest, "")
	if err != nil {
		return err
	}
	g.Root, err = rootfs.Mount(tree)
	if err != nil {
		return err
	}
	g.Record.Root = base.Digest
	g.Record.Checked, g.Record.FullAt = checked.How, provenance.Stamp(checked.At)
	return nil
}

// givePython puts the script's interpreter into the virtual environment of the packages, and returns the
// variant of their tree for the Python that is found.
func (e *Environments) givePython(
	ctx context.Context, g *Given, locked *environment.Locked,
) (variant digest.Digest, err error) {
	name := g.Record.Name
	python, err := e.Finder(name, func(ctx context.Context, _ string) (*sandbox.Interpreter, error) {
		return e.Python(ctx)
	})(ctx, string(script.Python3))
	if err != nil {
		return "", err
	}
	if python == nil || python.Venv != nil || environment.Minor(python.Version) != locked.Python.For {
		return "", refuse(InterpreterChanged, name, "the script's environment {name} is for Python "+
			locked.Python.For+", which is not the server's", nil)
	}
	g.Interpreter = within(g.Base, python)
	g.Path = sandbox.EnvDir + "/bin:" + g.Path
	g.Record.Packages += len(locked.Python.Packages)
	return locked.Variant(python.Path, python.Version, python.Digest), nil
}

// addNode lets the interpreter find the packages of npm, which are mounted.
func (g *Given) addNode(locked *environment.LockedNode) error {
	if g.Base.Name == string(script.Deno) {
		if major, _, _ := strings.Cut(g.Base.Version, "."); major == "0" || major == "1" {
			return refuse(Unsupported, g.Record.Name, "the script's environment {name} has packages of npm, "+
				"which Deno finds from version 2 on; the server has "+g.Base.Version, nil)
		}
		g.Flags = []string{"--node-modules-dir=manual"}
	}
	g.Record.Packages += len(locked.Packages)
	// Last in PATH, since a package chooses the names of its programs.
	g.Path += ":" + sandbox.NodeModulesDir + "/.bin"
	return nil
}

// within returns the interpreter of a script in a virtual environment of python, which the script finds by
// PATH if it is of another runtime.
func within(in, python *sandbox.Interpreter) *sandbox.Interpreter {
	inside := in.With(python)
	if in.Name == string(script.Python3) {
		inside.Path = environment.Interpreter
	}
	return inside
}
