package environments

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/environment/making"
	"github.com/skillsd/skillsd/sandbox/environment/rootfs"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// RootOf converts a root file system on the command line to the form in the configuration: relative to the
// configuration's directory, if it is below it.
func (c *Command) RootOf(spec string) (string, error) {
	source, err := rootfs.ParseSource(spec)
	if err != nil {
		return "", exit.Flag("root", err)
	}
	path, err := c.Process.LockPath()
	if err != nil {
		return "", err
	}
	source.Dir, err = filepath.Abs(source.Dir)
	if err != nil {
		return "", err
	}
	if near, below := fsys.Below(filepath.Dir(path), source.Dir); below {
		source.Dir = near
	}
	return source.String(), nil
}

// source returns the root file system in the configuration.
func (c *Command) source(spec string) (rootfs.Source, error) {
	source, err := rootfs.ParseSource(spec)
	if err != nil {
		return source, err
	}
	if below, home := strings.CutPrefix(source.Dir, "~/"); home {
		dir, err := os.UserHomeDir()
		source.Dir = filepath.Join(dir, below)
		return source, err
	}
	if !filepath.IsAbs(source.Dir) {
		path, err := c.Process.LockPath()
		source.Dir = filepath.Join(filepath.Dir(path), source.Dir)
		return source, err
	}
	return source, nil
}

// ordered returns names, or all environments if names is empty, with root file systems first.
func (c *Command) ordered(names []string) []string {
	all := c.Process.Cfg.Keys.Environments
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(all))
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(x, y string) int { return len(all[x].Base) - len(all[y].Base) })
	return names
}

// makeLocked resolves and makes an environment, after it has shown the packages and asked the user.
func (c *Command) makeLocked(
	ctx context.Context, maker *making.Maker, name string, key config.EnvironmentKey, lock *environment.Lock,
) (*environment.Locked, error) {
	if key.Root != "" {
		locked := &environment.Locked{Root: &environment.LockedRoot{From: key.Root}}
		question := "Make environment " + name + " of the root file system " + key.Root + "?"
		if err := c.Confirm(ctx, question); err != nil {
			return nil, err
		}
		made, err := c.makeTree(ctx, maker, lock, locked)
		if err != nil {
			return locked, err
		}
		c.printRootNotes(made.Notes)
		return locked, err
	}
	maker, closeMaker, err := on(ctx, maker, lock, key.Base)
	if err != nil {
		return nil, err
	}
	defer closeMaker()
	locked, err := maker.Resolve(ctx, key.Python, key.Node)
	if err != nil {
		return nil, err
	}
	err = c.printChange(lock.Environments[name], locked)
	if err != nil {
		return nil, err
	}
	if used := c.usedBy(name); len(used) > 0 {
		c.Notef("skillsd: warning: these scripts have environment %s, and will run with these packages: %s",
			name, report.Printable(strings.Join(used, ", ")))
	}
	more := lock.Environments[name] != nil ||
		slices.ContainsFunc(locked.Packages(), func(p environment.Package) bool { return len(p.By) > 0 })
	if !c.agreed || more {
		err = c.Confirm(ctx, "Make environment "+name+" of these packages?")
	}
	if err != nil {
		return nil, err
	}
	made, err := maker.Make(ctx, locked)
	if err != nil {
		return locked, err
	}
	c.printNotes(made.Notes)
	return locked, err
}

// on returns the maker of packages for the root file system of the environment base, or maker itself if base
// is empty. The caller closes it.
func on(ctx context.Context, maker *making.Maker, lock *environment.Lock, base string) (
	_ *making.Maker, closeMaker func(), err error,
) {
	if base == "" {
		return maker, func() {}, nil
	}
	root := lock.Environments[base]
	if root == nil || root.Root == nil {
		return nil, nil, exit.Errorf(exit.Failure, "skillsd env sync "+base,
			"the root file system %s is not locked", base)
	}
	return maker.On(ctx, base, root)
}

// makeTree makes the tree of a locked environment.
func (c *Command) makeTree(
	ctx context.Context, maker *making.Maker, lock *environment.Lock, locked *environment.Locked,
) (*making.Made, error) {
	if locked.Root != nil {
		source, err := c.source(locked.Root.From)
		if err != nil {
			return nil, err
		}
		return maker.MakeRoot(ctx, source, locked)
	}
	base := ""
	if locked.Base != nil {
		base = locked.Base.Name
	}
	maker, closeMaker, err := on(ctx, maker, lock, base)
	if err != nil {
		return nil, err
	}
	defer closeMaker()
	return maker.Make(ctx, locked)
}

// printRootNotes prints how many files of a root file system were changed, by kind of change.
func (c *Command) printRootNotes(notes []environment.Note) {
	by := map[string][]string{}
	for _, n := range notes {
		by[n.What] = append(by[n.What], n.Path)
	}
	for _, what := range slices.Sorted(maps.Keys(by)) {
		const shown = 3
		paths := by[what]
		text := strings.Join(paths[:min(len(paths), shown)], ", ")
		if more := len(paths) - shown; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		c.Notef("skillsd: note: root file system: %s: %s", what, report.Printable(text))
	}
}

// Programs returns a list of interpreters in words.
func Programs(programs []environment.Program) string {
	var list []string
	for _, p := range programs {
		list = append(list, strings.TrimSpace(p.Name+" "+p.Version))
	}
	return strings.Join(list, ", ")
}
