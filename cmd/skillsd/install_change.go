package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store"
)

// changeOptions are what commands take that change installed skills.
type changeOptions struct {
	app    *app
	verb   string // what was done, for the message
	change func(i *install.Installer, ctx context.Context, names ...string) error
}

func newRemoveCmd(a *app) *cobra.Command {
	return newChangeCmd(&cobra.Command{
		Use:   "remove NAME...",
		Short: "Remove installed skills",
		Long: "Take installed skills from what is served and from the lock file: all that are named, or none. Their files\n" +
			"stay in the store of the state directory while a session that loaded them is kept or a server runs; the next\n" +
			"command that changes what is installed collects them, and so does `skillsd session gc`.",
	}, &changeOptions{app: a, verb: "removed", change: (*install.Installer).Remove})
}

func newEnableCmd(a *app) *cobra.Command {
	return newChangeCmd(&cobra.Command{Use: "enable NAME...", Short: "Serve installed skills again that were disabled"},
		&changeOptions{app: a, verb: "enabled", change: (*install.Installer).Enable})
}

func newDisableCmd(a *app) *cobra.Command {
	return newChangeCmd(&cobra.Command{
		Use: "disable NAME...", Short: "Stop serving installed skills without removing them",
		Long: "Stop serving installed skills. They stay in the lock file; `skillsd enable` serves them again. For\n" +
			"skills that are not installed there is `skillsd serve --disable-skill`.",
	}, &changeOptions{app: a, verb: "disabled", change: (*install.Installer).Disable})
}

func newRollbackCmd(a *app) *cobra.Command {
	return newChangeCmd(&cobra.Command{
		Use: "rollback NAME...", Short: "Go back to the version of installed skills before their last update",
		Long: "Go back to the version of installed skills before their last update, of all that are named or of none. A\n" +
			"second rollback undoes the first.",
	}, &changeOptions{app: a, verb: "rolled back", change: (*install.Installer).Rollback})
}

func newChangeCmd(cmd *cobra.Command, opts *changeOptions) *cobra.Command {
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = runE(opts.run)
	cmd.ValidArgsFunction = opts.app.completeInstalled
	return cmd
}

func (o *changeOptions) run(ctx context.Context, names []string) (err error) {
	installer, end, err := o.app.installer(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	before := installer.Lock()
	if err := o.change(installer, ctx, names...); err != nil {
		return changeFailure(err)
	}
	for _, name := range names {
		text := name
		if e := installer.Lock().Find(name); e != nil && o.verb == "rolled back" {
			text = fmt.Sprintf("%s to tree %s", name, e.Tree)
		}
		if _, err := fmt.Fprintf(o.app.out, "%s %s\n", o.verb, text); err != nil {
			return err
		}
	}
	o.app.notePins(names, before.Find, installer.Lock().Find)
	o.app.collectTrees(ctx, installer)
	return nil
}

// changeFailure says what to do when a stored tree cannot be put in place.
func changeFailure(err error) error {
	_, corrupt := errors.AsType[*store.CorruptError](err)
	switch {
	case errors.Is(err, install.ErrNoPrevious):
		return &exitError{Code: exitFailure, Err: err, Hint: "only a skill that was updated can be rolled back: `skillsd update` updates it"}
	case corrupt || errors.Is(err, store.ErrNotFound):
		return &exitError{Code: exitFailure, Err: err, Hint: "`skillsd sync` brings back what the lock file says; then try again"}
	}
	return sourceFailure(err)
}

// completeInstalled completes the names of installed skills.
func (a *app) completeInstalled(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if a.loadConfig(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	lock, _ := a.readLock()
	var names []string
	if lock != nil {
		for _, e := range lock.Skills {
			names = append(names, e.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// readLock reads the lock file without waiting for whoever changes it: it is replaced as a whole.
func (a *app) readLock() (*install.Lock, error) {
	state, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	return install.ReadLock(install.LockFile(state))
}
