package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// skillOptions are what the operator chooses for single skills, and how strictly all are read.
type skillOptions struct {
	Disabled   []string
	Pinned     []string
	NameOnly   []string
	Validation string
}

func (o *skillOptions) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.Disabled, "disable-skill", nil, "do not serve this `SKILL`: its path or name (repeatable)")
	flags.StringArrayVar(&o.Pinned, "pin-skill", nil, "name this `SKILL` first where room is short: its path or name (repeatable)")
	flags.StringArrayVar(&o.NameOnly, "name-only", nil, "show this `SKILL` without its description: its path or name (repeatable)")
	flags.StringVar(&o.Validation, "validation", "lenient", "which skills load: `WORD` is lenient, or strict for those that validate accepts")
}

// apply puts the choices into the options of a scan, and lets it look for what skills require in
// the environment of the process.
func (o *skillOptions) apply(to *skills.ScanOptions, a *app) error {
	switch o.Validation {
	case "lenient":
	case "strict":
		to.StrictSkills = true
	default:
		return usageError("use lenient or strict", "--validation: unknown value %q", o.Validation)
	}
	for flag, names := range map[string][]string{"disable-skill": o.Disabled, "pin-skill": o.Pinned, "name-only": o.NameOnly} {
		for _, name := range names {
			if name == "" {
				return usageError("give the path or the name of a skill", "--%s: the name is empty", flag)
			}
		}
	}
	to.Disabled, to.Pinned, to.NameOnly = o.Disabled, o.Pinned, o.NameOnly
	path, _ := a.env("PATH")
	extensions, _ := a.env("PATHEXT")
	to.HasCommand = func(name string) bool { return hasCommand(path, extensions, name) }
	to.HasEnv = func(name string) bool {
		_, ok := a.env(name)
		return ok
	}
	return nil
}

// parseAllow reads the --allow-skill-script of commands that run nothing.
func parseAllow(specs []string) (policy.Allowlist, error) {
	allow, err := policy.ParseAllowlist(specs)
	if err != nil {
		return allow, usageError("use SKILL:scripts/PATH, with the paths that `skillsd show SKILL` prints", "--allow-skill-script: %w", err)
	}
	return allow, nil
}

// hasCommand reports whether a directory of the search path holds a program of that name. Nothing
// is run. Names come from skills: one that is a path is not looked for. Relative directories are
// left out, since they would be looked up in whatever directory the client started the process in.
func hasCommand(path, extensions, name string) bool {
	if name == "" || strings.ContainsAny(name, "/\\:\x00") || !filepath.IsLocal(name) {
		return false
	}
	candidates := []string{name}
	if runtime.GOOS == "windows" {
		for _, extension := range filepath.SplitList(extensions) {
			candidates = append(candidates, name+extension)
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, candidate := range candidates {
			info, err := os.Stat(filepath.Join(dir, candidate))
			if err == nil && info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0) {
				return true
			}
		}
	}
	return false
}
