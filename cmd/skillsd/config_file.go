package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// maxConfig is the longest configuration file, in bytes.
const maxConfig = 1 << 20

// configuration is the configuration file of the process and where each option came from. The zero
// value is that of a process without one.
type configuration struct {
	File string // as it was given, or its default place; empty when there is none
	Keys configKeys

	places  map[string]configPlace
	origins map[string]origin // by key
}

// withoutConfig annotates commands that need no configuration, so that a broken one does not stop
// them.
const withoutConfig = "without-config"

// configures annotates a command with the names of those of its flags, with blanks between, that get what
// environment and file say before it runs; it looks after the others itself.
const configures = "configures"

// loadConfig reads the configuration and gives the flags of a command what it says.
func (a *app) loadConfig(cmd *cobra.Command) error {
	for c := cmd; c != nil; c = c.Parent() {
		if c.Annotations[withoutConfig] != "" || slices.Contains([]string{"help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, c.Name()) {
			return nil
		}
	}
	file, explicit, err := a.configPath()
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
	a.cfg = configuration{File: file}
	if file != "" {
		absolute, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		home, _ := a.env("HOME")
		keys, places, problems := decodeConfig(text, pathOf(filepath.Dir(absolute), home))
		if len(problems) > 0 {
			return &exitError{Code: exitUsage, Err: &configError{File: file, Problems: problems}, Hint: "see `skillsd config schema`"}
		}
		a.cfg.Keys, a.cfg.places = keys, places
	}
	a.warnOfVariables()
	if names := cmd.Annotations[configures]; names != "" {
		part := &cobra.Command{Use: cmd.Use}
		part.Flags().AddFlagSet(cmd.InheritedFlags())
		for name := range strings.FieldsSeq(names) {
			part.Flags().AddFlag(cmd.Flags().Lookup(name))
		}
		cmd = part
	}
	return a.cfg.configure(cmd, a.env)
}

// warnOfVariables names variables that are nearly those of an option. Others may be someone else's.
func (a *app) warnOfVariables() {
	if a.environ == nil {
		return
	}
	known := []string{"CONFIG"}
	for _, option := range configOptions() {
		known = append(known, strings.TrimPrefix(option.Env(), envPrefix))
	}
	for _, variable := range a.environ() {
		name, _, _ := strings.Cut(variable, "=")
		rest, ok := strings.CutPrefix(name, envPrefix)
		if !ok || slices.Contains(known, rest) {
			continue
		}
		if near := nearestWord(rest, known); near != "" {
			fmt.Fprintf(a.err, "skillsd: warning: %s has no effect; did you mean %s?\n", report.Printable(name), envPrefix+near)
		}
	}
}

// configPath is the place of the configuration file: --config, SKILLSD_CONFIG, or the default, which
// may not exist. It is never looked for in the working directory, which may be a cloned repository.
// An empty path means that there is no place for one, or that none is wanted: the null device says so.
func (a *app) configPath() (path string, explicit bool, err error) {
	if a.config == os.DevNull {
		return "", true, nil
	}
	if a.config != "" {
		return a.config, true, nil
	}
	if path, ok := a.env("SKILLSD_CONFIG"); ok && path != "" {
		if path == os.DevNull {
			return "", true, nil
		}
		if !filepath.IsAbs(path) {
			return "", true, usageError("give an absolute path", "SKILLSD_CONFIG: %q would hang on the directory the server is started in", clipValue(path))
		}
		return path, true, nil
	}
	if dir, ok := a.env("XDG_CONFIG_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "skillsd", "config.yaml"), false, nil
	}
	if home, ok := a.env("HOME"); ok && filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "skillsd", "config.yaml"), false, nil
	}
	return "", false, nil
}

// configPlace is the absolute path at which this server looks for its configuration, also when there
// is none yet; empty when it looks nowhere.
func (a *app) configPlace() (string, error) {
	path, _, err := a.configPath()
	if err != nil || path == "" {
		return "", err
	}
	return filepath.Abs(path)
}

// readConfig reads a configuration file that only its owner can write. The checks are of the file
// that is read, not of its name.
//
// Errors: *exitError; one that wraps fs.ErrNotExist when it is not there.
func readConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, fs.ErrNotExist
	}
	wrong := func(hint string, err error) ([]byte, error) {
		return nil, &exitError{Code: exitUsage, Err: fmt.Errorf("configuration %s: %w", path, err), Hint: hint}
	}
	file, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err
		}
		return wrong("give --config a file that can be read", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return wrong("give --config a file that can be read", err)
	}
	if !info.Mode().IsRegular() {
		return wrong("give --config a file", errors.New("is no regular file"))
	}
	if hint, err := checkOwner(path, info); err != nil {
		return wrong(hint, err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err != nil {
		return wrong("give --config a file that can be read", err)
	}
	if len(text) > maxConfig {
		return wrong("a configuration is short", fmt.Errorf("is longer than %d bytes", maxConfig))
	}
	return text, nil
}

// problem is a usage error at the place of a key of the file.
func (c *configuration) problem(key, format string, args ...any) error {
	return &exitError{
		Code: exitUsage, Hint: "see `skillsd config schema`",
		Err: &configError{File: c.File, Problems: []configProblem{{At: c.places[key], Text: key + ": " + fmt.Errorf(format, args...).Error()}}},
	}
}
