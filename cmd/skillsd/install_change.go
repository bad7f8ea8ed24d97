package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/skills/install"
)

// changeOptions are what commands take that change installed skills.
type changeOptions struct {
	app    *app
	verb   string // what was done, for the message
	change func(i *install.Installer, names ...string) (*install.Plan, error)
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

func (o *changeOptions) run(ctx context.Context, names []string) error {
	return o.app.carryOut(ctx, &planned{
		compute: func(i *install.Installer) (*install.Plan, error) { return o.change(i, names...) },
		print: func(plan *install.Plan) error {
			trees := map[string]string{}
			for _, c := range plan.Changes {
				if o.verb == "rolled back" {
					trees[c.Name] = " to tree " + c.After.Tree.String()
				}
			}
			for _, name := range names {
				if _, err := fmt.Fprintf(o.app.out, "%s %s%s\n", o.verb, name, trees[name]); err != nil {
					return err
				}
			}
			return nil
		},
	})
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
