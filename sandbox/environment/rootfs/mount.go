package rootfs

import (
	"context"
	"errors"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/environment"
)

// Mount returns the root file system in a tree, for a command. [Unmount] closes its directories.
func Mount(tree *environment.Tree) (*sandbox.Root, error) {
	dirs, links := tree.Top()
	root := &sandbox.Root{Links: links}
	for _, name := range dirs {
		dir, err := tree.OpenDir(name)
		if err != nil {
			return nil, errors.Join(err, Unmount(root))
		}
		root.Dirs = append(root.Dirs, sandbox.Mount{Dir: dir, At: "/" + name})
	}
	return root, nil
}

// Unmount closes the directories of a root file system, which may be nil.
func Unmount(root *sandbox.Root) (err error) {
	if root == nil {
		return nil
	}
	for _, m := range root.Dirs {
		err = errors.Join(err, m.Dir.Close())
	}
	return err
}

// Interpreter returns an interpreter of the root file system in a tree by its name, or nil. Its digest is
// from the tree, its version from the lock.
func Interpreter(tree *environment.Tree, locked *environment.LockedRoot, name string) *sandbox.Interpreter {
	program := locked.Program(name)
	if program == nil {
		return nil
	}
	file, ok := tree.Lookup(program.Path)
	if !ok || file.Kind != environment.Exec {
		return nil
	}
	return &sandbox.Interpreter{Name: name, Path: program.Path, Version: program.Version,
		Digest: file.Digest.String()}
}

// Runner runs commands on a root file system.
type Runner struct {
	sandbox.Runner
	Root *sandbox.Root
}

// Run runs a command on the root file system, instead of the command's own.
func (r Runner) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	on := *cmd
	on.Root = r.Root
	return r.Runner.Run(ctx, &on)
}
