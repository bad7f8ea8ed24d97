// Package environments implements the subcommands of `skillsd env`, which make environments of packages for
// scripts.
package environments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/environment/making"
	"github.com/skillsd/skillsd/sandbox/environment/rootfs"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Command is the common part of the subcommands.
type Command struct {
	Process *config.Process
	Out     io.Writer
	JSON    bool
	// Notef writes a note about a result.
	Notef func(format string, args ...any)
	// Confirm asks the user a question; its error means no.
	Confirm func(ctx context.Context, question string) error
	Sandbox string // backend; empty: auto

	agreed bool // the user has agreed, and is asked again only if more is needed
}

// maker returns the maker of environments. The caller closes it.
func (c *Command) maker(ctx context.Context) (*making.Maker, func(), error) {
	if err := c.Process.CheckDirs(); err != nil {
		return nil, nil, err
	}
	store, err := openStore(c.Process)
	if err != nil {
		return nil, nil, err
	}
	runner, err := Sandbox(ctx, c.Process, c.Sandbox)
	// A wrong range of users in the configuration has its own hint.
	if _, chosen := errors.AsType[*exit.Error](err); err != nil && !chosen {
		err = exit.Errorf(exit.Failure, "see `skillsd doctor`",
			"packages are resolved in a sandbox, and there is none: %w", err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	index := c.Process.Cfg.Keys.Index
	authorities, _ := c.Process.Env("SSL_CERT_FILE")
	// Another command would otherwise remove an unfinished tree as one that no lock names.
	if err := c.lockStore(ctx, store); err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return &making.Maker{
		Runner: runner, Interpreter: c.Process.Interpreters().Find, Store: store,
		Python: index["python"], Node: index["node"], Authorities: authorities,
		Report: func(text string) { c.Notef("skillsd: note: %s", report.Printable(text)) },
	}, func() { _ = store.Close() }, nil
}

// Sandbox returns the sandbox of a backend for commands other than serve; "" means auto.
//
// Errors: *exit.Error for an invalid range of users; errors of [detect.Select].
func Sandbox(ctx context.Context, p *config.Process, backend string) (sandbox.Runner, error) {
	uids, err := p.Cfg.Keys.UIDs()
	if err != nil {
		return nil, err
	}
	path, _ := p.Env("PATH")
	runner, _, err := detect.Select(ctx, backend,
		&detect.Options{Path: path, Writable: p.Writable(), Native: &native.Options{UIDs: uids}})
	return runner, err
}

// fault converts an error of making to one for the command line.
func fault(err error) error {
	if e, ok := errors.AsType[*making.Error](err); ok {
		return exit.Errorf(exit.Failure, e.Remedy, "%s: %s", e.Code, report.Printable(e.Message))
	}
	if e, ok := errors.AsType[*environment.UnsafeError](err); ok {
		return exit.Errorf(exit.Failure, "use another package, or ask its author to fix it",
			"%s: %s", making.UnsafePackage, report.Printable(e.Error()))
	}
	if e, ok := errors.AsType[*rootfs.UnsafeError](err); ok {
		return exit.Errorf(exit.Failure, "make another image of it, or name a directory that it was "+
			"unpacked to",
			"%s: %s", making.UnsafeImage, report.Printable(e.Error()))
	}
	return err
}

// lock returns the lock, which is empty if it does not exist.
func (c *Command) lock() (*environment.Lock, error) {
	lock, err := c.Process.ReadLock()
	if err != nil {
		return nil, exit.Errorf(exit.Failure, "take it from where it was committed, or remove it and run "+
			"`skillsd env update`", "%w", err)
	}
	if lock == nil {
		lock = &environment.Lock{}
	}
	if lock.Environments == nil {
		lock.Environments = map[string]*environment.Locked{}
	}
	return lock, nil
}

// writeLock writes the lock next to the configuration.
func (c *Command) writeLock(lock *environment.Lock) error {
	path, err := c.Process.LockPath()
	if err != nil {
		return err
	}
	return fsys.WriteFile(path, lock.Bytes(), 0o644)
}

// named returns the configuration of an environment.
func (c *Command) named(name string) (config.EnvironmentKey, error) {
	known := c.Process.Cfg.Keys.Environments
	key, ok := known[name]
	if !ok {
		return key, exit.Usagef("see `skillsd env list`", "the configuration has no environment %.80q%s",
			name,
			config.DidYouMean(name, slices.Collect(maps.Keys(known))))
	}
	return key, nil
}

// AddMissing makes an environment with the missing imports of a script, after the user agreed to the
// packages.
func (c *Command) AddMissing(ctx context.Context, found *Imports) error {
	entry, err := policy.ParseEntry(found.Script)
	if err != nil {
		return err
	}
	add, err := Asked(found.Asked(), "", "")
	if err != nil {
		return err
	}
	// The user has seen these packages in the question about the script.
	c.agreed = true
	err = c.Add(ctx, found.Environment, add, []policy.Entry{entry})
	if failed, ok := errors.AsType[*exit.Error](err); ok && failed.Hint != "" {
		// The script is allowed by now, so the user has to repeat only this part.
		failed.Hint += "; then " + found.Hint()
	}
	return err
}

// Add adds packages to an environment, which it creates if needed, resolves all of it again, and assigns it
// to allowed scripts.
func (c *Command) Add(ctx context.Context, name string, add config.EnvironmentKey,
	scripts []policy.Entry) error {
	if !environment.ValidName(name) {
		return exit.Usagef("use lower-case letters, digits and single hyphens",
			"%.80q is not a name of an environment", name)
	}
	if err := making.CheckAsked(add.Python, add.Node); err != nil {
		return exit.Usagef("see `skillsd env add --help`", "%w", err)
	}
	key, err := c.extended(name, add)
	if err != nil {
		return err
	}
	for _, e := range scripts {
		if !slices.ContainsFunc(c.Process.Cfg.Keys.Allow, func(k config.AllowKey) bool {
			known, err := k.Entry()
			return err == nil && known.Skill == e.Skill && known.Path == e.Path
		}) {
			return exit.Errorf(exit.Failure, "skillsd allow "+report.ShellLine(e.Skill+":"+e.Path),
				"%s:%s is not allowed yet", e.Skill, e.Path)
		}
	}
	maker, closeMaker, err := c.maker(ctx)
	if err != nil {
		return err
	}
	defer closeMaker()
	return c.make(ctx, maker, name, key, scripts)
}

// extended returns the definition of an environment with additions.
//
// Errors: *exit.Error for a definition that no environment can have.
func (c *Command) extended(name string, add config.EnvironmentKey) (config.EnvironmentKey, error) {
	all := c.Process.Cfg.Keys.Environments
	key := all[name]
	if add.Root != "" || key.Root != "" {
		if len(add.Python)+len(add.Node)+len(key.Python)+len(key.Node) > 0 || add.Base != "" {
			return key, exit.Usagef("give packages to another environment, with --base "+name,
				"a root file system has no packages")
		}
		key.Root = cmp.Or(add.Root, key.Root)
	}
	key.Base = cmp.Or(add.Base, key.Base)
	// The packages are resolved with the interpreter of the root file system.
	if key.Base != "" && all[key.Base].Root == "" {
		return key, exit.Usagef("make it first: skillsd env add "+report.ShellLine(key.Base)+" --root DIR",
			"--base: environment %.80q has no root file system", key.Base)
	}
	key.Python, key.Node = merged(key.Python, add.Python, pythonName), merged(key.Node, add.Node, nodeName)
	if len(key.Python)+len(key.Node) == 0 && key.Root == "" {
		return key, exit.Usagef("name a package, such as pypdf or npm:docx, or --root DIR",
			"environment %s has no packages", name)
	}
	return key, nil
}

// Update resolves environments again; without names, all in the configuration.
func (c *Command) Update(ctx context.Context, names []string) error {
	maker, closeMaker, err := c.maker(ctx)
	if err != nil {
		return err
	}
	defer closeMaker()
	for _, name := range c.ordered(names) {
		key, err := c.named(name)
		if err != nil {
			return err
		}
		err = c.make(ctx, maker, name, key, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// merged returns the packages of list and add. A package in add replaces one with the same name.
func merged(list, add []string, name func(string) string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(old string) bool {
		return slices.ContainsFunc(add, func(added string) bool { return name(added) == name(old) })
	})
	list = append(list, add...)
	slices.Sort(list)
	return slices.Compact(list)
}

func pythonName(requirement string) string {
	end := strings.IndexAny(requirement, " [(<>=!~;")
	if end < 0 {
		end = len(requirement)
	}
	return environment.CanonicalName(requirement[:end])
}

func nodeName(spec string) string {
	// The first character may be the @ of a scope.
	if at := strings.LastIndexByte(spec, '@'); at > 0 {
		return spec[:at]
	}
	return spec
}

// make resolves and makes an environment, and writes lock and configuration.
func (c *Command) make(
	ctx context.Context, maker *making.Maker, name string, key config.EnvironmentKey, scripts []policy.Entry,
) error {
	lock, err := c.lock()
	if err != nil {
		return err
	}
	// The download and the question to the user come before the lock of the configuration, which other
	// commands wait for.
	locked, err := c.makeLocked(ctx, maker, name, key, lock)
	if err != nil {
		return fault(err)
	}
	var before *environment.Locked
	file, err := c.Process.EditAllow(ctx, func(edit *config.AllowEdit) error {
		// Another command may have written the lock meanwhile.
		lock, err = c.lock()
		if err != nil {
			return err
		}
		// The lock and the configuration change under one file lock, so no other command can write between
		// the two.
		before = lock.Environments[name]
		lock.Environments[name] = locked
		if err := edit.SetEnvironment(name, key); err != nil {
			return err
		}
		for _, e := range scripts {
			if err := edit.UseEnvironment(e.Skill, e.Path, name); err != nil {
				return err
			}
		}
		return c.writeLock(lock)
	})
	if err != nil {
		return err
	}
	// Only a replaced tree can be garbage now.
	if before != nil && before.Digest != locked.Digest {
		c.collect(ctx, maker.Store)
	}
	what := report.Plural(len(locked.Packages()), "package")
	if locked.Root != nil {
		what = "a root file system with " + Programs(locked.Root.Programs)
	}
	fmt.Fprintf(c.Out, "made %s: %s, %s, %s\n", name, what, report.Plural(locked.Files, "file"),
		locked.Digest)
	c.Notef("skillsd: note: written to %s, and to %s in its directory\n"+
		"skillsd: note: servers with this configuration apply it at once", file, environment.LockName)
	if len(scripts) == 0 && len(c.usedBy(name)) == 0 {
		c.Notef("skillsd: hint: no script has it yet: skillsd env add %s --allow SKILL:scripts/PATH, or "+
			"environment: %s in its entry", name, name)
	}
	return nil
}

// printChange prints the packages of an environment, and the differences from the lock.
func (c *Command) printChange(before, after *environment.Locked) error {
	was := map[string]string{}
	for _, p := range before.Packages() {
		was[p.Path+" "+p.Name] = p.Version
	}
	table := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "PACKAGE\tVERSION\tBEFORE\tNEEDED BY\n")
	for _, p := range after.Packages() {
		key := p.Path + " " + p.Name
		earlier := was[key]
		delete(was, key)
		by := cmp.Or(strings.Join(p.By, ", "), "asked for")
		shown := p.Name
		const modules = "node_modules/"
		// npm installs an alias such as x@npm:y in the directory x.
		if at := strings.LastIndex(p.Path, modules); at >= 0 && p.Path[at+len(modules):] != p.Name {
			shown += " as " + p.Path[at+len(modules):] // name by which scripts import it
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", shown, p.Version, cmp.Or(earlier, "-"),
			report.Shorten(by, 60))
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		_, gone, _ := strings.Cut(key, " ")
		fmt.Fprintf(table, "%s\t-\t%s\tno longer needed\n", gone, was[key])
	}
	return table.Flush()
}

// printNotes prints the notes about packages; for native modules only their number.
func (c *Command) printNotes(notes []environment.Note) {
	native := map[string]int{}
	for _, n := range notes {
		if strings.HasSuffix(n.What, "native module") {
			native[n.Package]++
			continue
		}
		c.Notef("skillsd: note: %s: %s %s", n.Package, report.Printable(n.Path), n.What)
	}
	for _, name := range slices.Sorted(maps.Keys(native)) {
		c.Notef("skillsd: note: %s has machine code: %s", name, report.Plural(native[name], "native module"))
	}
}

// usedBy returns the scripts whose entries name an environment.
func (c *Command) usedBy(name string) (scripts []string) {
	for _, key := range c.Process.Cfg.Keys.Allow {
		if e, err := key.Entry(); err == nil && e.Environment == name {
			scripts = append(scripts, e.Skill+":"+e.Path)
		}
	}
	return scripts
}

// Made is the state of an environment that is complete and unchanged.
const Made = "made"

// Row is an environment as printed by list and show.
type Row struct {
	Name     string                `json:"name"`
	State    string                `json:"state"` // made, not made, not locked, stale, changed
	Python   string                `json:"python,omitempty"`
	Root     string                `json:"root,omitempty"` // source of a root file system
	Base     string                `json:"base,omitempty"` // environment with its root file system
	Programs []environment.Program `json:"programs,omitempty"`
	Asked    []string              `json:"asked"`
	Packages []environment.Package `json:"packages"`
	Digest   digest.Digest         `json:"digest,omitempty"`
	Files    int                   `json:"files"`
	Bytes    int64                 `json:"bytes"`
	UsedBy   []string              `json:"usedBy"`
}

func (c *Command) row(name string, locked *environment.Locked, err error, state string) Row {
	key := c.Process.Cfg.Keys.Environments[name]
	row := Row{Name: name, State: state, Root: key.Root, Base: key.Base, Asked: []string{},
		Packages: []environment.Package{}, UsedBy: []string{}}
	row.Asked = append(append(row.Asked, key.Python...), key.Node...)
	row.UsedBy = append(row.UsedBy, c.usedBy(name)...)
	if locked != nil {
		row.Packages = append(row.Packages, locked.Packages()...)
		row.Digest, row.Files, row.Bytes = locked.Digest, locked.Files, locked.Bytes
		if locked.Python != nil {
			row.Python = locked.Python.For
		}
		if locked.Root != nil {
			row.Programs = locked.Root.Programs
		}
	}
	if err != nil {
		row.State += ": " + err.Error()
	}
	return row
}

// answers reports whether a lock matches the request in the configuration.
func answers(lock *environment.Lock, locked *environment.Locked, key config.EnvironmentKey) bool {
	var python, node []string
	var root, on string
	if locked.Python != nil {
		python = locked.Python.Asked
	}
	if locked.Node != nil {
		node = locked.Node.Asked
	}
	if locked.Root != nil {
		root = locked.Root.From
	}
	if locked.Base != nil {
		on = locked.Base.Name
	}
	// A root file system that was made again has another digest, and packages made for the earlier one do not
	// match.
	_, err := lock.RootOf(locked)
	return err == nil && root == key.Root && on == key.Base &&
		slices.Equal(merged(nil, key.Python, pythonName), python) &&
		slices.Equal(merged(nil, key.Node, nodeName), node)
}

// rows returns the named environments, or all of configuration and lock. With full it compares every byte.
func (c *Command) rows(ctx context.Context, names []string, full bool) ([]Row, error) {
	lock, err := c.lock()
	if err != nil {
		return nil, err
	}
	all := maps.Clone(c.Process.Cfg.Keys.Environments)
	if all == nil {
		all = map[string]config.EnvironmentKey{}
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(all))
	}
	store, err := openStore(c.Process)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	rows := []Row{}
	for _, name := range names {
		key, err := c.named(name)
		if err != nil {
			return nil, err
		}
		locked := lock.Environments[name]
		state := Made
		var tree *environment.Tree
		switch {
		case locked == nil:
			state = "not locked"
		case !answers(lock, locked, key):
			state = "stale" // locked for other packages than configured
		default:
			tree, err = c.tree(ctx, store, lock, locked)
			if err == nil && full {
				err = tree.Rehash(ctx)
			}
			// A changed tree is a finding of this one row; the other rows are printed too.
			_, changed := errors.AsType[*environment.ChangedError](err)
			switch {
			// Another machine made the lock, and `env sync` makes the trees here.
			case errors.Is(err, environment.ErrNotMade):
				state, err = "not made", nil
			case changed:
				state = "changed"
			case err != nil:
				return nil, err
			}
		}
		rows = append(rows, c.row(name, locked, err, state))
	}
	return rows, nil
}

// tree returns the stored tree of an environment for this machine's interpreter.
func (c *Command) tree(
	ctx context.Context, store *environment.Store, lock *environment.Lock, locked *environment.Locked,
) (*environment.Tree, error) {
	in, err := c.pythonOf(ctx, store, lock, locked)
	if err != nil {
		return nil, err
	}
	if in == nil {
		// The variant of a tree without Python has no interpreter in its name.
		in = &sandbox.Interpreter{}
	}
	return store.Tree(ctx, locked.Digest, locked.Variant(in.Path, in.Version, in.Digest))
}

// pythonOf returns the Python that an environment was made for: the one in its root file system, or the one
// of this machine. It is nil for an environment without Python, and if this machine has none.
func (c *Command) pythonOf(
	ctx context.Context, store *environment.Store, lock *environment.Lock, locked *environment.Locked,
) (*sandbox.Interpreter, error) {
	base, err := lock.RootOf(locked)
	if err != nil || locked.Python == nil {
		return nil, err
	}
	if base == nil {
		return c.Process.Interpreters().Find(ctx, string(script.Python3))
	}
	root, err := store.Tree(ctx, base.Digest, "")
	if err != nil {
		return nil, err
	}
	return rootfs.Interpreter(root, base.Root, string(script.Python3)), nil
}

// Rows returns the environments of the configuration.
func (c *Command) Rows(ctx context.Context) ([]Row, error) { return c.rows(ctx, nil, false) }

// List prints the environments of the configuration.
func (c *Command) List(ctx context.Context) error {
	rows, err := c.rows(ctx, nil, false)
	if err != nil {
		return err
	}
	if c.JSON {
		return report.WriteJSON(c.Out, rows)
	}
	if len(rows) == 0 {
		c.Notef("skillsd: note: the configuration has no environments\n" +
			"skillsd: hint: skillsd env add NAME PACKAGE…")
		return nil
	}
	table := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "NAME\tSTATE\tPYTHON\tPACKAGES\tSIZE\tDIGEST\tUSED BY\n")
	for _, r := range rows {
		sum := "-"
		if r.Digest != "" {
			sum = r.Digest.Encoded()[:12]
		}
		python := cmp.Or(r.Python, "-")
		if r.Root != "" {
			python = "root"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%.1f MiB\t%s\t%s\n", r.Name, r.State, python,
			len(r.Packages),
			float64(r.Bytes)/(1<<20), sum, cmp.Or(strings.Join(r.UsedBy, ", "), "-"))
	}
	return table.Flush()
}

// Show prints one environment, or the list of its files.
func (c *Command) Show(ctx context.Context, name string, manifest bool) error {
	if manifest {
		return c.showManifest(ctx, name)
	}
	rows, err := c.rows(ctx, []string{name}, false)
	if err != nil {
		return err
	}
	r := rows[0]
	if c.JSON {
		return report.WriteJSON(c.Out, r)
	}
	fmt.Fprintf(c.Out, "%s: %s\ndigest    %s\nfiles     %d, %d bytes\npython    %s\nroot      "+
		"%s\nasked     %s\n"+
		"used by   %s\n\n", r.Name, r.State, cmp.Or(r.Digest, "-"), r.Files, r.Bytes,
		cmp.Or(r.Python, "-"), cmp.Or(r.Root, r.Base, "-"), strings.Join(r.Asked, ", "),
		cmp.Or(strings.Join(r.UsedBy, ", "), "-"))
	table := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	for _, p := range r.Programs {
		fmt.Fprintf(table, "%s\t%s\t%s\n", p.Name, cmp.Or(p.Version, "-"), p.Path)
	}
	for _, p := range r.Packages {
		algorithm, sum := p.Sum()
		fmt.Fprintf(table, "%s\t%s\t%d\t%s:%s\n", p.Name, p.Version, p.Size, algorithm, sum[:16])
	}
	return table.Flush()
}

func (c *Command) showManifest(ctx context.Context, name string) error {
	if _, err := c.named(name); err != nil {
		return err
	}
	lock, err := c.lock()
	if err != nil {
		return err
	}
	store, err := openStore(c.Process)
	if err != nil {
		return err
	}
	defer store.Close()
	notMade := exit.Errorf(exit.Failure, "skillsd env sync", "environment %s is not made", name)
	locked := lock.Environments[name]
	if locked == nil {
		return notMade
	}
	tree, err := c.tree(ctx, store, lock, locked)
	if errors.Is(err, environment.ErrNotMade) {
		return notMade
	}
	if err != nil {
		return err
	}
	_, err = c.Out.Write(tree.Manifest().Bytes())
	return err
}

// Sync makes the locked environments with these names, or all. Configured packages that are missing in the
// lock are resolved, unless frozen is set.
func (c *Command) Sync(ctx context.Context, names []string, frozen bool) error {
	lock, err := c.lock()
	if err != nil {
		return err
	}
	maker, closeMaker, err := c.maker(ctx)
	if err != nil {
		return err
	}
	defer closeMaker()
	for _, name := range c.ordered(names) {
		key, err := c.named(name)
		if err != nil {
			return err
		}
		locked := lock.Environments[name]
		if locked == nil || !answers(lock, locked, key) {
			if frozen {
				return exit.Errorf(exit.Failure,
					"run `skillsd env update "+name+"` where the lock is written",
					"the lock does not match the configuration: environment %s", name)
			}
			err = c.make(ctx, maker, name, key, nil)
			if err != nil {
				return err
			}
			lock, err = c.lock()
			if err != nil {
				return err
			}
			continue
		}
		made, err := c.makeTree(ctx, maker, lock, locked)
		if err != nil {
			return fault(err)
		}
		fmt.Fprintf(c.Out, "%s: %s\n", name, made.Tree.Digest)
	}
	return nil
}

// Verify compares every byte of environments, all without names. Problems give exit code 3.
func (c *Command) Verify(ctx context.Context, names []string) error {
	rows, err := c.rows(ctx, names, true)
	if err != nil {
		return err
	}
	bad := false
	for _, r := range rows {
		bad = bad || r.State != Made
		if !c.JSON {
			fmt.Fprintf(c.Out, "%s: %s\n", r.Name,
				report.Printable(strings.Replace(r.State, "made", "unchanged", 1)))
		}
	}
	if c.JSON {
		err = report.WriteJSON(c.Out, rows)
	}
	if err != nil {
		return err
	}
	if bad {
		c.Notef("skillsd: hint: skillsd env sync")
		return &exit.Error{Code: exit.Problems}
	}
	return err
}

// Remove removes an environment from configuration and lock, and its files if nothing else needs them.
func (c *Command) Remove(ctx context.Context, name string) error {
	if _, err := c.named(name); err != nil {
		return err
	}
	// The packages of that environment could not be given to a run without this root file system.
	for other, key := range c.Process.Cfg.Keys.Environments {
		if key.Base == name {
			return exit.Errorf(exit.Failure, "skillsd env remove "+other,
				"environment %s is the root file system of environment %s", name, other)
		}
	}
	if used := c.usedBy(name); len(used) > 0 {
		return exit.Errorf(exit.Failure, "take environment: "+name+" out of these entries first",
			"environment %s is used by %s", name, strings.Join(used, ", "))
	}
	// The question comes before the lock, so other commands do not wait for the user.
	if err := c.Confirm(ctx, "Remove environment "+name+"?"); err != nil {
		return err
	}
	store, err := c.lockedStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = c.Process.EditAllow(ctx, func(edit *config.AllowEdit) error {
		lock, err := c.lock()
		if err != nil {
			return err
		}
		delete(lock.Environments, name)
		edit.RemoveEnvironment(name)
		return c.writeLock(lock)
	})
	if err != nil {
		return err
	}
	c.collect(ctx, store)
	fmt.Fprintf(c.Out, "removed %s\n", name)
	return nil
}
