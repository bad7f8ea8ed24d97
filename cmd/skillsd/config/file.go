// Package config reads the options of the server from the command line, the environment and the configuration
// file, and records which of them set each option. It also edits the allowlist of a configuration file.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// MaxFile is the maximum size of a configuration file in bytes.
const MaxFile = 1 << 20

// Configuration is the configuration file of the process with the origin of each option. The zero value is a
// process without a configuration file.
type Configuration struct {
	File string // as given, or the default path; empty without a file
	Keys Options

	positions map[string]Position
	Origins   map[string]Origin   // by key
	keys      map[string][]string // of the options that a flag sets
}

// Load reads the configuration, and prints a warning to stderr for each variable without effect.
//
// Errors: *exit.Error.
func (p *Process) Load(stderr io.Writer) error {
	p.rulesChanged = p.lookAtRules() // before the read, so that a later change is not missed
	file, explicit, err := p.configPath()
	if err != nil {
		return err
	}
	text, err := readConfig(file)
	switch {
	// The default file may be missing. A file that the user names must not be: its rules would be ignored
	// silently.
	case errors.Is(err, fs.ErrNotExist) && !explicit, file == "":
		file = ""
	case err != nil:
		return err
	}
	p.Cfg = Configuration{File: file}
	if file != "" {
		absolute, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		home, _ := p.Env("HOME")
		keys, positions, problems := decode(text, pathOf(filepath.Dir(absolute), home))
		if len(problems) > 0 {
			return &exit.Error{Code: exit.Usage, Err: &Error{File: file, Problems: problems},
				Hint: "see `skillsd config schema`"}
		}
		p.Cfg.Keys, p.Cfg.positions = keys, positions
	}
	p.warnOfVariables(stderr)
	return nil
}

// warnOfVariables warns of variables whose names are close to the variable of an option. Other unknown
// variables may belong to other programs.
func (p *Process) warnOfVariables(stderr io.Writer) {
	if p.Environ == nil {
		return
	}
	var known []string
	for _, variable := range p.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours {
			continue
		}
		if known == nil {
			known = []string{"CONFIG"}
			for _, option := range Table() {
				known = append(known, strings.TrimPrefix(option.Env(), envPrefix))
			}
		}
		// The value is not printed, because it may be a secret.
		if near := Nearest(rest, known); near != "" && !slices.Contains(known, rest) {
			fmt.Fprintf(stderr, "skillsd: warning: %s has no effect; did you mean %s?\n",
				report.Printable(name), envPrefix+near)
		}
	}
}

// configPath returns the path of the configuration file: --config, SKILLSD_CONFIG, or the default, which may
// not exist. It never looks in the working directory, which may be a cloned repository. The path is empty if
// the process has no home directory, or if the null device is given to disable the file.
func (p *Process) configPath() (path string, explicit bool, err error) {
	path = p.File
	if path == "" {
		path, _ = p.Env("SKILLSD_CONFIG")
		if path != "" && path != os.DevNull && !filepath.IsAbs(path) {
			return "", true, exit.Usagef("give an absolute path",
				"SKILLSD_CONFIG: %q would depend on the working directory of the server", Clip(path))
		}
	}
	switch path {
	default:
		return path, true, nil
	case os.DevNull:
		return "", true, nil
	case "":
	}
	for _, base := range [][2]string{{"XDG_CONFIG_HOME", ""}, {"HOME", ".config"}} {
		if dir, ok := p.Env(base[0]); ok && filepath.IsAbs(dir) {
			return filepath.Join(dir, base[1], "skillsd", "config.yaml"), false, nil
		}
	}
	return "", false, nil
}

// ConfigPath returns the absolute path of the configuration file, which may not exist. The path is empty if
// the server reads no file.
func (p *Process) ConfigPath() (string, error) {
	path, _, err := p.configPath()
	if err != nil || path == "" {
		return "", err
	}
	return filepath.Abs(path)
}

// ConfigChanged returns a function that reports whether the configuration file was replaced or written since
// the previous call.
func (p *Process) ConfigChanged() func() bool {
	// Without a path there is no file that could change.
	path, _ := p.ConfigPath()
	file := changed(path)
	return func() bool { return file() != Unchanged }
}

// Change is how a file changed between two looks at it.
type Change int

// The changes. Of two files, the greater change is the one to act on.
const (
	Unchanged Change = iota
	Replaced         // by a rename of a file that was complete
	Written          // in place; the write may be incomplete
)

// RulesChanged returns a function that reports how the configuration file, or the lock of environments next
// to it, changed since the previous call. The first call compares with the state at Load.
func (p *Process) RulesChanged() func() Change {
	if p.rulesChanged == nil {
		return p.lookAtRules()
	}
	return p.rulesChanged
}

func (p *Process) lookAtRules() func() Change {
	path, _ := p.ConfigPath()
	lock, _ := p.LockPath()
	return changed(path, lock)
}

// state describes a file at one time; the zero value is a missing file.
type state struct {
	info    os.FileInfo
	times   string // to notice a change
	content string // to ignore a file that was touched but not changed
}

// look returns the state of the file at a path, which may be empty. It reuses the content of an earlier state
// with the same times.
func look(path string, earlier state) state {
	if path == "" {
		return state{}
	}
	info, err := os.Stat(path)
	if err != nil {
		return state{}
	}
	now := state{info: info, times: fmt.Sprint(info.ModTime().UnixNano(), info.Size(), info.Mode(),
		fsys.ChangeTime(info))}
	if now.times == earlier.times {
		now.content = earlier.content
		return now
	}
	text, err := readConfig(path)
	if err != nil { // never equal, so an unreadable file is read again
		now.content = now.times
		return now
	}
	now.content = fmt.Sprint(info.Mode(), digest.FromBytes(text))
	return now
}

// changed returns a function that reports how the files at paths changed since the previous call.
func changed(paths ...string) func() Change {
	last := make([]state, len(paths))
	for i, path := range paths {
		last[i] = look(path, state{})
	}
	return func() Change {
		change := Unchanged
		for i, path := range paths {
			before := last[i]
			now := look(path, before)
			last[i] = now
			switch {
			case now.content == before.content:
			case before.info != nil && now.info != nil && !os.SameFile(before.info, now.info) &&
				fsys.ChangeTime(now.info) > now.info.ModTime().UnixNano(): // the rename set the change time
				change = max(change, Replaced)
			default:
				change = Written
			}
		}
		return change
	}
}

// readConfig reads a configuration file, which only its owner may be able to write.
//
// Errors: *exit.Error; an error that wraps fs.ErrNotExist if the file does not exist.
func readConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, fs.ErrNotExist
	}
	text, hint, err := readOwn(path, MaxFile)
	if err == nil {
		return text, nil
	}
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err // without the path, which the message has already
	}
	if errors.Is(err, fs.ErrPermission) {
		hint = "make it readable for the user who starts skillsd, for example with chmod u+r"
	}
	return nil, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("configuration %s: %w", path, err),
		Hint: cmp.Or(hint, "give --config a regular file of at most 1MiB that can be read")}
}

// readOwn reads a file of at most most bytes, which only its owner may be able to write. hint is the advice
// how to fix the permissions. The check is made on the open file, so the file cannot be replaced between
// check and read.
func readOwn(path string, most int64) (text []byte, hint string, err error) {
	text, err = fsys.ReadFile(path, most, func(info fs.FileInfo) (err error) {
		hint, err = CheckOwner(path, info)
		return err
	})
	return text, hint, err
}

// ReadOperatorFile reads the file of a flag, which only its owner may be able to write: another user with
// write access could act as any principal in it, or read data that its key protects.
//
// Errors: *exit.Error, with a hint.
func ReadOperatorFile(flag, path string, most int64) ([]byte, error) {
	text, hint, err := readOwn(path, most)
	if err != nil {
		err = &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--%s: %w", flag, err), Hint: hint, Flag: flag}
	}
	return text, err
}

// maxSecret is the maximum size of a secret in bytes.
const maxSecret = 64 << 10

// Secret returns a secret of the configuration. It reads the source at each call, so that a secret can be
// replaced while the server runs. Its errors never contain values.
func (p *Process) Secret(name string) (string, error) {
	source, ok := p.Cfg.Keys.Secrets[name]
	if !ok {
		return "", errors.New("the configuration has no such secret")
	}
	if source.Env != "" {
		if value, _ := p.Env(source.Env); value != "" {
			return value, nil
		}
		return "", fmt.Errorf("the variable %s is not set", source.Env)
	}
	// Another user with write access to the file could choose what a script sends as its credentials.
	text, _, err := readOwn(source.File, maxSecret)
	if err != nil {
		return "", err
	}
	// Editors and echo append a line end.
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" || strings.ContainsRune(value, 0) {
		return "", fmt.Errorf("%s is empty or contains a NUL character", source.File)
	}
	return value, nil
}

// Problem returns a usage error at the position of a key in the file.
func (c *Configuration) Problem(key, format string, args ...any) error {
	return &exit.Error{
		Code: exit.Usage, Hint: "see `skillsd config schema`",
		Err: &Error{File: c.File, Problems: []Problem{{At: c.positions[key],
			Text: key + ": " + fmt.Errorf(format, args...).Error()}}},
	}
}
