package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/skills"
)

// rootOptions say where skills come from; every command that reads skills takes them.
type rootOptions struct {
	Specs   []string
	Allowed []string
	Strict  bool
	NoDefaults,
	AllowShadow bool
}

func (o *rootOptions) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.Specs, "skills-root", nil, "directory with skills: DIR, tier=DIR or tier:prefix=DIR; tier is builtin, org, user (default) or third-party (repeatable, earlier wins)")
	flags.StringArrayVar(&o.Allowed, "allow-root", nil, "directory that links inside a skills root may lead to (repeatable)")
	flags.BoolVar(&o.Strict, "strict-roots", false, "fail when a given skills root is missing")
	flags.BoolVar(&o.NoDefaults, "no-default-roots", false, "without --skills-root serve nothing instead of the conventional directories")
	flags.BoolVar(&o.AllowShadow, "allow-shadow", false, "let a lower trust tier take the place of a higher one at the same path")
}

// resolve turns the options into roots. Without --skills-root these are the conventional
// directories that exist: those of the working directory are untrusted, a cloned repository must
// not set policy.
func (o *rootOptions) resolve(a *app) ([]skills.Root, error) {
	var roots []skills.Root
	for _, spec := range o.Specs {
		root, err := skills.ParseRoot(spec)
		if err != nil {
			return nil, &exitError{Code: exitUsage, Err: err, Hint: "use DIR, tier=DIR or tier:prefix=DIR, for example org:acme=/srv/skills"}
		}
		if root.Dir, err = filepath.Abs(root.Dir); err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	if len(o.Specs) > 0 || o.NoDefaults {
		return roots, nil
	}
	for _, candidate := range o.conventional(a) {
		if info, err := os.Stat(candidate.Dir); err == nil && info.IsDir() {
			roots = append(roots, candidate)
		}
	}
	return roots, nil
}

func (o *rootOptions) conventional(a *app) []skills.Root {
	var roots []skills.Root
	if cwd, err := os.Getwd(); err == nil {
		for _, dir := range []string{"skills", ".agents/skills", ".claude/skills"} {
			roots = append(roots, skills.Root{Dir: filepath.Join(cwd, filepath.FromSlash(dir)), Tier: skills.TierThirdParty})
		}
	}
	if home, ok := a.env("HOME"); ok && filepath.IsAbs(home) {
		for _, dir := range []string{".agents/skills", ".claude/skills"} {
			roots = append(roots, skills.Root{Dir: filepath.Join(home, filepath.FromSlash(dir)), Tier: skills.TierUser})
		}
	}
	return roots
}

// scanOptions are the scan's part of the options.
func (o *rootOptions) scanOptions() *skills.ScanOptions {
	return &skills.ScanOptions{AllowRoots: o.Allowed, StrictRoots: o.Strict, AllowShadow: o.AllowShadow}
}

// scan reads all roots once.
func (o *rootOptions) scan(ctx context.Context, a *app) (*skills.Snapshot, error) {
	roots, err := o.resolve(a)
	if err != nil {
		return nil, err
	}
	if len(roots) == 0 {
		return nil, &exitError{Code: exitUsage, Err: errors.New("no skills root given and none of the conventional ones exists"),
			Hint: "give --skills-root DIR"}
	}
	return skills.Scan(ctx, roots, o.scanOptions())
}
