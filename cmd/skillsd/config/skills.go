package config

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// SkillOptions are the operator's choices for single skills, and the strictness of validation.
type SkillOptions struct {
	Disabled   []string
	Pinned     []string
	NameOnly   []string
	Validation string
}

// Register adds the flags to a command.
func (o *SkillOptions) Register(flags *pflag.FlagSet) { register(flags, o.table()) }

// Apply sets the options of a scan, and makes it look up in the environment of the process what skills
// require.
func (o *SkillOptions) Apply(to *skills.ScanOptions, p *Process) error {
	switch o.Validation {
	case "lenient":
	case "strict":
		to.StrictSkills = true
	default:
		return exit.Usagef("use lenient or strict", "--validation: unknown value %q", o.Validation)
	}
	// An empty name usually comes from an unset variable of a shell, and would disable nothing.
	if slices.Contains(slices.Concat(o.Disabled, o.Pinned, o.NameOnly), "") {
		return exit.Usagef("give the path or the name of a skill",
			"--disable-skill, --pin-skill or --name-only: the name is empty")
	}
	to.Disabled, to.Pinned, to.NameOnly = o.Disabled, o.Pinned, o.NameOnly
	path, _ := p.Env("PATH")
	secrets := map[string][]string{} // by the path of the skill
	for _, entry := range p.Cfg.Keys.Allow {
		skill, _, _ := strings.Cut(entry.Script, ":")
		skill = strings.Trim(skill, " ")
		secrets[skill] = append(secrets[skill], entry.Secrets...)
		// A program that only scripts on the host find is available too.
		path = strings.Join(append([]string{path}, entry.Path...), string(filepath.ListSeparator))
	}
	extensions, _ := p.Env("PATHEXT")
	to.HasCommand = func(name string) bool { return detect.Command(path, extensions, name) != "" }
	to.Platform = runtime.GOOS
	to.HasEnv = func(name string) bool {
		_, ok := p.Env(name)
		return ok
	}
	to.HasSecret = func(path, name string) bool { return slices.Contains(secrets[path], name) }
	return nil
}

// ParseAllow parses --allow-skill-script for commands that do not run scripts.
func ParseAllow(specs []string) (policy.Allowlist, error) {
	allow, err := policy.ParseAllowlist(specs)
	if err != nil {
		return allow, exit.Usagef("use SKILL:scripts/PATH, with the paths that `skillsd show SKILL` prints",
			"--allow-skill-script: %w", err)
	}
	return allow, nil
}
