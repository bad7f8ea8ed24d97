package config

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Process is the environment of the process that the configuration depends on.
type Process struct {
	Env func(string) (string, bool)
	Err io.Writer // progress, if it is a terminal; nil disables it
	// Environ returns the whole environment, which is searched for misspelt variables; nil disables the
	// search.
	Environ func() []string

	File      string // --config
	State     string // --state
	Artifacts string // --artifact-root
	Workspace string // --workspace, if given

	Cfg Configuration // set by Load

	scans        []scanned
	rulesChanged func() Change // made by Load
}

// StateDir returns --state or its default.
func (p *Process) StateDir() (string, error) {
	if p.State != "" {
		return filepath.Abs(p.State)
	}
	// The XDG Base Directory Specification requires that a relative path is ignored.
	if dir, ok := p.Env("XDG_STATE_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "skillsd"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", exit.Usagef("give --state DIR", "no home directory for the state directory")
	}
	return filepath.Join(home, ".local", "state", "skillsd"), nil
}

// EnvironmentsDir returns the directory of environments below the state directory.
func EnvironmentsDir(state string) string { return filepath.Join(state, "environments") }

// TreesDir is the directory of stored trees.
func TreesDir(state string) string { return filepath.Join(state, "trees") }

// LockPath returns the path of the lock of environments, next to the configuration; empty without one.
func (p *Process) LockPath() (string, error) {
	path, err := p.ConfigPath()
	if err != nil || path == "" {
		return "", err
	}
	return filepath.Join(filepath.Dir(path), environment.LockName), nil
}

// ReadLock reads the lock of environments; it returns nil if the lock does not exist.
//
// Errors: system errors; *environment.LockError.
func (p *Process) ReadLock() (*environment.Lock, error) {
	path, err := p.LockPath()
	if err != nil || path == "" {
		return nil, err
	}
	return ReadLock(path)
}

// ReadLock reads the lock of environments at a path; it returns nil if the file does not exist.
//
// Errors: as [Process.ReadLock].
func ReadLock(path string) (*environment.Lock, error) {
	data, err := fsys.ReadFile(path, environment.MaxLock, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return environment.ParseLock(data)
}

// ArtifactDir returns --artifact-root or its default.
func (p *Process) ArtifactDir() (string, error) {
	if p.Artifacts != "" {
		return filepath.Abs(p.Artifacts)
	}
	state, err := p.StateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "sessions"), nil
}

// CheckDirs refuses state and record directories that another user owns or can write: that user could replace
// a script between its check and its run, and the record would name the digest that was allowed. Missing
// directories are accepted.
func (p *Process) CheckDirs() error {
	state, err := p.StateDir()
	if err != nil {
		return err
	}
	artifacts, err := p.ArtifactDir()
	if err != nil {
		return err
	}
	for _, dir := range []string{state, artifacts, TreesDir(state), EnvironmentsDir(state),
		filepath.Join(state, "installed")} {
		// A link is checked itself, and so is its target.
		for _, look := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
			info, err := look(dir)
			if err != nil {
				continue
			}
			if hint, err := CheckOwner(dir, info); err != nil {
				return exit.Usagef(hint, "%s, where state and session logs are kept: %w", dir, err)
			}
		}
	}
	return nil
}

// InstalledRoots returns the existing directories of installed skills, each with its tier.
func (p *Process) InstalledRoots() []skills.Root {
	return slices.DeleteFunc(p.installedRoots(), isAwaited)
}

// installedRoots is InstalledRoots including missing directories.
func (p *Process) installedRoots() []skills.Root {
	state, err := p.StateDir()
	if err != nil {
		return nil
	}
	var roots []skills.Root
	for _, tier := range skills.Tiers() {
		root := skills.Root{Dir: install.RootDir(state, tier), Tier: tier}
		root.Awaited = !IsDir(root.Dir)
		roots = append(roots, root)
	}
	return roots
}

// Interpreters returns the finder of script interpreters: those that the configuration names, else from PATH.
// An interpreter may not need any of the directories of ownPaths.
func (p *Process) Interpreters(private ...string) *detect.Finder {
	path, _ := p.Env("PATH")
	finder := detect.Interpreters(path)
	finder.UIDs, _ = p.Cfg.Keys.UIDs() // the start of the server reports the error
	for _, in := range script.Interpreters() {
		if named := p.Cfg.Keys.Interpreters[InterpreterKey(in.Runtime)]; named != "" {
			finder.Name(string(in.Runtime), named)
		}
	}
	finder.Keep(p.ownPaths(private...)...)
	finder.Writable(p.Writable()...)
	return finder
}

// Writable returns the workspace of the process, or the one of the environment or configuration, if scripts
// may write to it. Programs in a writable workspace are not started, because a script could have written
// them.
func (p *Process) Writable() []detect.Writable {
	text := p.Cfg.Keys.Workspace
	// Commands without the flag --workspace do not read the variable otherwise, but also search for
	// interpreters.
	if set, _ := p.Env(EnvOf("workspace")); set != "" {
		text = set
	}
	text = cmp.Or(p.Workspace, text)
	dir, mode := SplitWorkspace(text)
	dir, err := filepath.Abs(dir)
	if mode == sandbox.WorkspaceRO || text == "" || err != nil {
		return nil
	}
	return []detect.Writable{{Dir: dir, ReadOnly: p.ProgramDirs(dir)}}
}

// ProgramDirs returns the directories of a workspace in which the server searches for programs.
func (p *Process) ProgramDirs(workspace string) []string {
	path, _ := p.Env("PATH")
	return detect.ProgramDirs(workspace, path, slices.Sorted(maps.Values(p.Cfg.Keys.Interpreters)))
}

// SplitWorkspace splits a value of --workspace. The directory may be empty.
func SplitWorkspace(workspace string) (dir string, mode sandbox.WorkspaceMode) {
	// The path may contain colons, so only a known mode is cut off.
	for _, known := range []sandbox.WorkspaceMode{sandbox.WorkspaceRO, sandbox.WorkspaceStaged,
		sandbox.WorkspaceRW} {
		if rest, ok := strings.CutSuffix(workspace, ":"+string(known)); ok {
			return rest, known
		}
	}
	return workspace, sandbox.WorkspaceRO
}

// ownPaths returns the paths of the state, the records and the configuration, and the given files. Scripts
// may not read them, so an interpreter that needs a directory with one of them is refused.
func (p *Process) ownPaths(private ...string) (own []string) {
	for _, path := range []func() (string, error){p.StateDir, p.ArtifactDir, p.ConfigPath} {
		if path, err := path(); err == nil && path != "" {
			own = append(own, path)
		}
	}
	return append(own, private...)
}

// WithoutSecrets removes the secrets that a configuration declares, and the values of variables with names of
// secrets, from a text about the configuration.
func (p *Process) WithoutSecrets(text string) string {
	secrets := map[string]string{}
	add := func(name, value string) {
		value = strings.TrimSpace(value)
		// The redactor refuses the whole set if one value has another length.
		if len(value) >= redact.MinBytes && len(value) <= redact.MaxBytes {
			secrets[name] = value
		}
	}
	for name := range p.Cfg.Keys.Secrets {
		if value, err := p.Secret(name); err == nil {
			add(name, value)
		}
	}
	var environ []string
	if p.Environ != nil {
		environ = p.Environ()
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		for _, word := range []string{"TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY"} {
			if strings.Contains(strings.ToUpper(name), word) {
				add(name, value)
			}
		}
	}
	redactor, err := redact.New(secrets)
	if err != nil {
		// A text that cannot be redacted is not shown.
		return "its configuration is not valid"
	}
	return redactor.Text(text)
}
