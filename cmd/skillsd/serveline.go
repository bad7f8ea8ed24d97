package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/skills"
)

// serveLine makes the command line of a server in the entry of a client, which starts it, and keeps the flags
// of the line that is there already.
type serveLine struct {
	client *clients.Client
	// newOptions returns options of serve and the set of all flags of its command line.
	newOptions func() (*serve.Options, *pflag.FlagSet)

	inProject   bool // it is in the file of a project, in which relative paths stay
	workspace   bool // scripts see the directory in which the client works
	noWorkspace bool // the user wants no workspace, also not that of an earlier entry

	err io.Writer // for notes
}

// workspaceFlags are the flags of serve that workspace writes. If another workspace is given, none of an
// earlier entry is kept: its output was released for the earlier one.
var workspaceFlags = []string{"workspace", "workspace-from-client", "release"}

// words returns the arguments after the program: serve with the flags in args, each checked. Relative paths
// become absolute, because the client may start the server in any directory.
//
// Errors: *exit.Error.
func (l *serveLine) words(args []string) ([]string, error) {
	words := []string{"serve"}
	given, _ := l.parsed(append(words, args...)) // checked returns the error
	if slices.Contains(clients.WithSkills(), l.client.Name) && !gives(given, "client") {
		words = append(words, "--client", l.client.Name)
	}
	if l.workspace {
		for _, name := range workspaceFlags {
			if gives(given, name) {
				return nil, exit.Usagef("give one of them", "--workspace writes --%s itself", name)
			}
		}
		if !l.client.InProject {
			fmt.Fprintf(l.err, "note: in %s scripts may see another directory than your project:\n"+
				"its first root, or where it starts the server\n", l.client.Title)
		}
		args = append([]string{"--workspace-from-client", "--workspace=:staged", "--release=observed"},
			args...)
	}
	written, err := l.checked(args)
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("flags of serve: %w", err),
			Hint: "see `skillsd serve --help`; they come after --: " +
				strings.TrimSpace("skillsd setup "+l.client.Name) + " -- --skills-root DIR"}
	}
	return append(words, written...), nil
}

// checked returns the flags of serve in args as the words of an entry.
func (l *serveLine) checked(args []string) (words []string, err error) {
	options, flags := l.newOptions()
	err = flags.ParseAll(args, func(flag *pflag.Flag, value string) error {
		if err := flags.Set(flag.Name, value); err != nil {
			return err
		}
		written, err := l.written(flag, value)
		words = append(words, written...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected %q", flags.Arg(0))
	}
	// A wrong entry would otherwise be found at the start of the client, where few users see it.
	_, err = options.Allowlist()
	return words, err
}

// written returns the words of a flag in the client's entry.
func (l *serveLine) written(flag *pflag.Flag, value string) ([]string, error) {
	if flag.Name == "http" || flag.Name == "unix" {
		return nil, errors.New("the client starts a server of its own over stdio; " +
			"for a running server give --http before --")
	}
	dir, _ := config.SplitWorkspace(value)
	if flag.Name == "workspace" && !l.inProject && dir != "" && !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("--workspace %s would be the same directory in every project; use "+
			"`skillsd setup %s "+
			"--workspace` for the one in which the client works, or give a whole path", value,
			l.client.Name)
	}
	value, err := l.absolute(flag.Name, value)
	if err != nil {
		return nil, err
	}
	return config.FlagWords(flag, value), nil
}

// absolute makes a path in a flag's value absolute, because the client may start the server in any directory.
func (l *serveLine) absolute(flag, value string) (string, error) {
	isPath := flag == "config"
	for _, option := range config.Table() {
		isPath = isPath || option.Flag == flag && option.Path.IsPath(value)
	}
	before, path := "", value
	if flag == "skills-root" {
		root, err := skills.ParseRoot(value)
		if err != nil {
			return "", err
		}
		isPath, path = true, root.Dir
		before = strings.TrimSuffix(value, path)
	}
	switch {
	case !isPath || path == "":
		return value, nil
	case path == "~" || strings.HasPrefix(path, "~/"):
		return "", fmt.Errorf("--%s: the shell did not expand ~ in %q; "+
			"put a space before the path, or write it out", flag, value)
	case l.inProject:
		return value, nil
	}
	whole, err := filepath.Abs(path)
	return before + whole, err
}

// keep returns the arguments of an entry that replaces an earlier one of skillsd: the arguments now, and the
// flags of old that are not given now, which it notes.
func (l *serveLine) keep(old, now []string) []string {
	_, had := clients.ServeArgs(old)
	start, given := clients.ServeArgs(now)
	return append(slices.Clone(start), l.merged(had, given)...)
}

// merged is keep for the arguments of skillsd.
func (l *serveLine) merged(old, now []string) []string {
	had, errHad := l.parsed(old)
	given, errGiven := l.parsed(now)
	if errHad != nil || errGiven != nil {
		return now // a flag of another version
	}
	kept := l.kept(had, given)
	if len(kept) == 0 {
		return now
	}
	changes := len(kept)+len(given) != len(had) ||
		slices.ContainsFunc(given, func(f setting) bool { return !slices.Contains(had, f) })
	if !changes {
		// The order of the flags stays, so that the client's file does not change at all.
		return old
	}
	line := []string{}
	for _, f := range kept {
		line = append(line, f.word())
	}
	fmt.Fprintf(l.err, "kept from the entry before: %s\n(to start anew: skillsd setup %s --remove)\n",
		report.ShellLine(line...), l.client.Name)
	return slices.Concat(now, line)
}

// kept returns the flags of an earlier entry that stay.
func (l *serveLine) kept(had, given []setting) (kept []setting) {
	isElsewhere := l.noWorkspace || gives(given, "workspace") || gives(given, "workspace-from-client")
	for _, f := range had {
		if !gives(given, f.name) && !(isElsewhere && slices.Contains(workspaceFlags, f.name)) {
			kept = append(kept, f)
		}
	}
	return kept
}

// setting is a flag of serve with its value.
type setting struct {
	name, value string
	isBare      bool // a switch that is on
}

// word returns the flag as a word of a command line.
func (f setting) word() string {
	if f.isBare {
		return "--" + f.name
	}
	return "--" + f.name + "=" + f.value
}

// gives reports whether a flag is among others.
func gives(given []setting, name string) bool {
	return slices.ContainsFunc(given, func(f setting) bool { return f.name == name })
}

// parsed returns the flags in a command line of serve.
func (l *serveLine) parsed(args []string) (found []setting, err error) {
	_, flags := l.newOptions()
	flags.Usage = func() {} // checked prints it for --help
	err = flags.ParseAll(args, func(f *pflag.Flag, value string) error {
		found = append(found, setting{f.Name, value, f.NoOptDefVal != "" && value == f.NoOptDefVal})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !slices.Equal(flags.Args(), []string{"serve"}) {
		return nil, errors.New("not a command line of serve")
	}
	return found, nil
}
