package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// RootOptions select the sources of skills; every command that reads skills takes them.
type RootOptions struct {
	Specs   []string
	Allowed []string
	Strict  bool

	NoDefaults  bool
	NoCache     bool
	Client      string // a name in package clients
	AllowShadow bool
	Limits      scanLimits
}

// Register adds the flags to a command.
func (o *RootOptions) Register(flags *pflag.FlagSet) { register(flags, o.table()) }

// Resolve returns the roots in Given, followed by the directories of installed skills, with their tiers.
func (o *RootOptions) Resolve(p *Process) ([]skills.Root, error) {
	roots, err := o.Awaiting(p)
	return slices.DeleteFunc(roots, isAwaited), err
}

// Awaiting is Resolve including roots whose directories do not exist yet.
func (o *RootOptions) Awaiting(p *Process) ([]skills.Root, error) {
	roots, err := o.given(p)
	if err != nil {
		return roots, err
	}
	if !o.NoDefaults {
		roots = append(roots, p.installedRoots()...)
	}
	return roots, err
}

func isAwaited(root skills.Root) bool { return root.Awaited }

// Given returns the roots of the options. Without --skills-root these are the existing conventional
// directories, except directories from which the client of --client loads skills itself. Directories below
// the working directory are untrusted: a cloned repository must not set policy.
func (o *RootOptions) Given(p *Process) ([]skills.Root, error) {
	roots, err := o.given(p)
	return slices.DeleteFunc(roots, isAwaited), err
}

// given is Given including missing conventional directories.
func (o *RootOptions) given(p *Process) ([]skills.Root, error) {
	var roots []skills.Root
	for _, spec := range o.Specs {
		root, err := skills.ParseRoot(spec)
		if err != nil {
			return nil, &exit.Error{Code: exit.Usage, Err: err,
				Hint: "use DIR, TRUST=DIR or TRUST:PREFIX=DIR, for example org:acme=/srv/skills"}
		}
		root.Dir, err = filepath.Abs(root.Dir)
		if err != nil {
			return nil, err
		}
		// A missing archive is looked for again at each scan.
		if extension := filepath.Ext(root.Dir); strings.EqualFold(extension, ".zip") && !IsDir(root.Dir) {
			root.FS = source.NewZip(root.Dir)
			root.Name = strings.TrimSuffix(filepath.Base(root.Dir), extension)
		}
		roots = append(roots, root)
	}
	if len(o.Specs) > 0 || o.NoDefaults {
		return roots, nil
	}
	if o.Client != "" && clients.Named(o.Client) == nil {
		return nil, exit.Usagef("`skillsd help setup` lists the names",
			"--client: unknown client %q", Clip(o.Client))
	}
	isOwn, err := o.clientOwn(p)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(o.conventional(p), isOwn), nil
}

// clientOwn returns a function that reports whether the client of --client itself loads the skills of a root.
func (o *RootOptions) clientOwn(p *Process) (func(skills.Root) bool, error) {
	var own []string
	client := clients.Named(o.Client)
	if client != nil {
		cwd, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		for _, dir := range client.OwnSkills(p.Env, cwd) {
			// Links are resolved, because a root that is a link to such a directory would be served twice.
			own = append(own, Resolved(dir))
		}
	}
	return func(root skills.Root) bool { return slices.Contains(own, Resolved(root.Dir)) }, nil
}

// NoRoots returns the error of a command without skills to read.
func (o *RootOptions) NoRoots(p *Process) *exit.Error {
	if isOwn, err := o.clientOwn(p); err == nil && len(o.Specs) == 0 && !o.NoDefaults {
		for _, root := range o.conventional(p) {
			if isOwn(root) && !root.Awaited {
				return &exit.Error{Code: exit.Usage, Err: fmt.Errorf(
					"%s loads the skills in %s itself, and there are no others",
					clients.Named(o.Client).Title, root.Dir),
					Hint: "install a skill: skillsd install SOURCE; or serve them twice: --skills-root " +
						root.Dir}
			}
		}
	}
	return &exit.Error{Code: exit.Usage,
		Err:  errors.New("you have no skills yet"),
		Hint: "install one: skillsd install SOURCE; or name a directory of skills: --skills-root DIR"}
}

// IsDir reports whether path is a directory, or a link to one.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (o *RootOptions) conventional(p *Process) []skills.Root {
	var roots []skills.Root
	add := func(base string, tier skills.Tier, dirs ...string) {
		for _, dir := range dirs {
			root := skills.Root{Dir: filepath.Join(base, filepath.FromSlash(dir)), Tier: tier}
			root.Awaited = !IsDir(root.Dir)
			roots = append(roots, root)
		}
	}
	if cwd, err := os.Getwd(); err == nil {
		add(cwd, skills.TierThirdParty, "skills", ".agents/skills", ".claude/skills", ".github/skills")
	}
	if home, ok := p.Env("HOME"); ok && filepath.IsAbs(home) {
		add(home, skills.TierUser, ".agents/skills", ".claude/skills")
	}
	return roots
}

// Within returns the conventional directories below dir as slash-separated paths, whether or not they exist.
// A file that a script writes to one of them would be part of a skill in the next run.
func (o *RootOptions) Within(p *Process, dir string) []string {
	var paths []string
	for _, root := range o.conventional(p) {
		if rel, below := fsys.Below(dir, Resolved(root.Dir)); below {
			paths = append(paths, filepath.ToSlash(rel))
		}
	}
	return paths
}

// ScanOptions returns the options of the scan.
func (o *RootOptions) ScanOptions() *skills.ScanOptions {
	return &skills.ScanOptions{
		AllowRoots: o.Allowed, StrictRoots: o.Strict, AllowShadow: o.AllowShadow,
		MaxDepth: o.Limits.Depth, MaxDirs: o.Limits.Directories, MaxFiles: o.Limits.Files,
		MaxTree: int64(o.Limits.Bytes),
	}
}

// Inside reports whether path is dir or below it, after resolving the links of the part that exists.
func Inside(path, dir string) bool {
	_, below := fsys.Below(Real(dir), Real(path))
	return below
}

// Real returns the absolute form of a path, with the links of the part that exists resolved.
func Real(path string) string {
	real := Resolved(path)
	if filepath.IsAbs(real) {
		return real
	}
	here, err := os.Getwd()
	if err != nil {
		return real
	}
	// Not filepath.Abs: the parent of a link is the parent of its target.
	return filepath.Join(Resolved(here), real)
}

// Resolved resolves the links of the part of a path that exists.
func Resolved(path string) string {
	// The kernel finds the part that exists with one call for each missing name; EvalSymlinks would look up
	// every directory above it again.
	at, missing := path, ""
	for filepath.Dir(at) != at {
		_, err := os.Lstat(at)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		at, missing = filepath.Dir(at), filepath.Join(filepath.Base(at), missing)
	}
	real, err := filepath.EvalSymlinks(at)
	if err == nil {
		return filepath.Join(real, missing)
	}
	// A link that leads nowhere exists.
	if parent := filepath.Dir(at); errors.Is(err, fs.ErrNotExist) && parent != at {
		return filepath.Join(Resolved(parent), filepath.Base(at), missing)
	}
	return path
}
