// Package config reads the options of the server: what each is called on the command line, in the
// environment and in the configuration file, which of them counts, and where its value came from. It also
// edits the allowlist of a configuration file.
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

// MaxFile is the longest configuration file, in bytes.
const MaxFile = 1 << 20

// Configuration is the configuration file of the process and where each option came from. The zero value is
// for a process without a configuration file.
type Configuration struct {
	File string // as it was given, or its default place; empty when there is none
	Keys Options

	places  map[string]Place
	Origins map[string]Origin // by key
}

// Load reads the configuration, and warns on stderr of variables that have no effect.
//
// Errors: *exit.Error.
func (p *Process) Load(stderr io.Writer) error {
	p.rulesChanged = p.lookAtRules() // before it is read: a later change must not be missed
	file, explicit, err := p.configPath()
	if err != nil {
		return err
	}
	text, err := readConfig(file)
	switch {
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
		keys, places, problems := decode(text, pathOf(filepath.Dir(absolute), home))
		if len(problems) > 0 {
			return &exit.Error{Code: exit.Usage, Err: &Error{File: file, Problems: problems},
				Hint: "see `skillsd config schema`"}
		}
		p.Cfg.Keys, p.Cfg.places = keys, places
	}
	p.warnOfVariables(stderr)
	return nil
}

// warnOfVariables warns of variables with nearly the name of an option. Other unknown variables may be for
// another program.
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
		if near := Nearest(rest, known); near != "" && !slices.Contains(known, rest) {
			fmt.Fprintf(stderr, "skillsd: warning: %s has no effect; did you mean %s?\n",
				report.Printable(name), envPrefix+near)
		}
	}
}

// configPath returns the path of the configuration file: --config, SKILLSD_CONFIG, or the default, which may
// not exist. It never looks in the working directory, which may be a cloned repository. The path is empty if
// the process has no home directory, or if the null device is given to mean that no file is wanted.
func (p *Process) configPath() (path string, explicit bool, err error) {
	path = p.File
	if path == "" {
		path, _ = p.Env("SKILLSD_CONFIG")
		if path != "" && path != os.DevNull && !filepath.IsAbs(path) {
			return "", true, exit.Usagef("give an absolute path",
				"SKILLSD_CONFIG: %q would hang on the directory the server is started in", Clip(path))
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

// ConfigPlace returns the absolute path at which this server looks for its configuration, even if the file
// does not exist. The path is empty if the server looks for no file.
func (p *Process) ConfigPlace() (string, error) {
	path, _, err := p.configPath()
	if err != nil || path == "" {
		return "", err
	}
	return filepath.Abs(path)
}

// ConfigChanged returns a function that reports whether the configuration file is another than at its last
// call.
func (p *Process) ConfigChanged() func() bool {
	file := changed(p.ConfigPlace)
	return func() bool { return file() != Unchanged }
}

// Change is how a file differs from what it was.
type Change int

// The changes, the later one of two files the greater.
const (
	Unchanged Change = iota
	Replaced         // by another file, which was written before
	Written          // in place, and a part of it may be missing yet
)

// RulesChanged returns a function that returns how the configuration file, or the lock of environments next
// to it, has changed since its last call; at first, since the configuration was loaded.
func (p *Process) RulesChanged() func() Change {
	if p.rulesChanged == nil {
		return p.lookAtRules()
	}
	return p.rulesChanged
}

func (p *Process) lookAtRules() func() Change {
	file, lock := changed(p.ConfigPlace), changed(p.LockPlace)
	return func() Change { return max(file(), lock()) }
}

// state is a file as it was looked at; the zero value is none.
type state struct {
	info    os.FileInfo
	times   string // by which a change is noticed
	content string // by which it is one: a file that is merely touched does not keep others waiting
}

// look returns the state of the file at a place, with the content of an earlier one that has its times.
func look(place func() (string, error), earlier state) state {
	path, err := place()
	if err != nil || path == "" {
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
	if err != nil { // of which two can be alike
		now.content = now.times
		return now
	}
	now.content = fmt.Sprint(info.Mode(), digest.FromBytes(text))
	return now
}

// changed returns a function that returns how the file at a place has changed since its last call.
func changed(place func() (string, error)) func() Change {
	last := look(place, state{})
	return func() Change {
		before := last
		last = look(place, before)
		switch {
		case last.content == before.content:
			return Unchanged
		case before.info != nil && last.info != nil && !os.SameFile(before.info, last.info) &&
			fsys.ChangeTime(last.info) > last.info.ModTime().UnixNano(): // by its renaming
			return Replaced
		}
		return Written
	}
}

// readConfig reads a configuration file that only its owner can write.
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
		err = cause.Err // which names the file once more
	}
	if errors.Is(err, fs.ErrPermission) {
		hint = "let the user who starts skillsd read it, as by chmod u+r"
	}
	return nil, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("configuration %s: %w", path, err),
		Hint: cmp.Or(hint, "give --config a regular file of at most 1MiB that can be read")}
}

// readOwn reads a file of at most most bytes that only its owner can write, and returns what mends one that
// others can write. It checks the open file, which nobody can exchange between check and read.
func readOwn(path string, most int64) (text []byte, hint string, err error) {
	text, err = fsys.ReadFile(path, most, func(info fs.FileInfo) (err error) {
		hint, err = CheckOwner(path, info)
		return err
	})
	return text, hint, err
}

// ReadOperatorFile reads the file of a flag, which only its owner may write: whoever can write it could act
// as a principal that it names, or read data that its key protects.
//
// Errors: *exit.Error, with a hint.
func ReadOperatorFile(flag, path string, most int64) ([]byte, error) {
	text, hint, err := readOwn(path, most)
	if err != nil {
		err = &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--%s: %w", flag, err), Hint: hint, Flag: flag}
	}
	return text, err
}

// maxSecret is the longest secret, in bytes.
const maxSecret = 64 << 10

// Secret reads a secret of the configuration. It reads the source at each call, so that a secret can be
// replaced while the server runs. Its errors do not contain values.
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
	text, _, err := readOwn(source.File, maxSecret)
	if err != nil {
		return "", err
	}
	// Editors and echo add a line end.
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" || strings.ContainsRune(value, 0) {
		return "", fmt.Errorf("%s is empty or holds a NUL character", source.File)
	}
	return value, nil
}

// Problem is a usage error at the place of a key of the file.
func (c *Configuration) Problem(key, format string, args ...any) error {
	return &exit.Error{
		Code: exit.Usage, Hint: "see `skillsd config schema`",
		Err: &Error{File: c.File, Problems: []Problem{{At: c.places[key],
			Text: key + ": " + fmt.Errorf(format, args...).Error()}}},
	}
}
