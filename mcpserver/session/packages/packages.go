// Package packages gives runs the environments that their entries name: checked, as mounts, and as the
// interpreter that finds them.
package packages

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/script"
)

// The codes of refusals.
const (
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
	Store *environment.Store // nil if there is none
	Lock  *environment.Lock  // nil if there is none
	// Python returns the interpreter that environments are made for, nil for none.
	Python func(ctx context.Context) (*sandbox.Interpreter, error)
}

// Given is what a run is given.
type Given struct {
	Mounts      []sandbox.Mount
	Interpreter *sandbox.Interpreter // in the place of the one that the script would have had
	Base        *sandbox.Interpreter // that one
	Path        string               // the PATH of the script
	Record      cfharness.Environment
}

// Close closes the directories. It may be called for nil.
func (g *Given) Close() {
	if g != nil {
		for _, m := range g.Mounts {
			_ = m.Dir.Close()
		}
	}
}

const remedy = "the operator makes it with `skillsd env sync`; do without this script until then"

// Give returns the environment called name for a run of a script with an interpreter, checked. systemPath is
// the PATH of a script without one. The caller closes what it gets.
//
// Errors: *Refusal; errors of ctx and of the system.
func (e *Environments) Give(
	ctx context.Context, name, systemPath string, in *sandbox.Interpreter,
) (*Given, error) {
	refuse := func(code, message string, err error) (*Given, error) {
		message = strings.ReplaceAll(message, "{name}", name)
		return nil, &Refusal{Code: code, Message: message, Remedy: remedy, Err: err}
	}
	if e == nil || e.Store == nil || e.Lock == nil || e.Lock.Environments[name] == nil {
		return refuse(NotMade, "the script's environment {name} is not locked and not made", nil)
	}
	locked := e.Lock.Environments[name]
	if locked.Platform != environment.Platform() {
		return refuse(Unsupported, "the script's environment {name} is locked for "+locked.Platform+
			", the server runs on "+environment.Platform(), nil)
	}
	g := &Given{Interpreter: in, Base: in, Path: systemPath}
	var variant digest.Digest
	if locked.Python != nil {
		python, err := e.Python(ctx)
		switch {
		case err != nil:
			return nil, err
		case python == nil || python.Venv != nil || environment.Minor(python.Version) != locked.Python.For:
			return refuse(InterpreterChanged, "the script's environment {name} is for Python "+
				locked.Python.For+", which is not the server's", nil)
		}
		variant = locked.Variant(python.Path, python.Version, python.Digest)
		g.Interpreter = within(in, python)
		g.Path = sandbox.EnvDir + "/bin:" + systemPath
	}
	tree, err := e.Store.Tree(ctx, locked.Digest, variant)
	var checked environment.Checked
	if err == nil {
		checked, err = tree.Check(ctx)
	}
	var top *os.File
	if err == nil {
		top, err = tree.Open()
	}
	_, changed := errors.AsType[*environment.ChangedError](err)
	switch {
	case err == nil:
	case errors.Is(err, environment.ErrNotMade) && variant != "" && e.Store.Made(locked.Digest):
		return refuse(InterpreterChanged,
			"the script's environment {name} was made for another Python than the server's", err)
	case errors.Is(err, environment.ErrNotMade):
		return refuse(NotMade, "the script's environment {name} is not made", err)
	case changed:
		return refuse(Changed, "files of the script's environment {name} are not what they were made as", err)
	default:
		return nil, err
	}
	g.Mounts = []sandbox.Mount{{Dir: top, At: sandbox.EnvDir}}
	g.Record = cfharness.Environment{Name: name, Digest: locked.Digest, Checked: checked.How,
		FullAt: provenance.Stamp(checked.At)}
	if locked.Python != nil {
		g.Record.Packages += len(locked.Python.Packages)
	}
	if locked.Node != nil {
		g.Record.Packages += len(locked.Node.Packages)
		modules, err := tree.OpenDir("node_modules")
		if err != nil {
			g.Close()
			return nil, err
		}
		g.Mounts = append(g.Mounts, sandbox.Mount{Dir: modules, At: sandbox.NodeModulesDir})
		// Last, since a package may call a program of its own as it likes.
		g.Path += ":" + sandbox.NodeModulesDir + "/.bin"
	}
	return g, nil
}

// within returns the interpreter of a script in a virtual environment of python, which the script finds by
// PATH
// if it is of another runtime.
func within(in, python *sandbox.Interpreter) *sandbox.Interpreter {
	inside := *in
	inside.Mounts, inside.Links = slices.Clone(in.Mounts), map[string]string{}
	for _, dir := range python.Mounts {
		if !slices.Contains(inside.Mounts, dir) {
			inside.Mounts = append(inside.Mounts, dir)
		}
	}
	for _, links := range []map[string]string{in.Links, python.Links} {
		for at, dir := range links {
			inside.Links[at] = dir
		}
	}
	if in.Name == string(script.Python3) {
		inside.Path = environment.Interpreter
	}
	return &inside
}
