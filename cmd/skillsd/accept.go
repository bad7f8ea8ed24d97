package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

func newAcceptCmd(a *app) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "accept NAME[@DIGEST]...",
		Short: "Serve installed skills that wait in quarantine for a review",
		Long: "Serve installed skills that are in quarantine: all that are named, or none. What there is\n" +
			"to look at is printed, with the place of the files, and you are asked; --yes is for where\n" +
			"there is no terminal. DIGEST is that of the tree you have looked at: any other content is\n" +
			"refused. Only this content is accepted, not a later one. A skill with the verdict refuse\n" +
			"cannot be accepted.",
		Args: cobra.MinimumNArgs(1),
		RunE: runE(func(ctx context.Context, args []string) error {
			state, err := a.StateDir()
			if err = cmp.Or(a.byUser("accept"), err); err != nil {
				return err
			}
			trees := map[string]digest.Digest{}
			for _, arg := range args {
				name, tree, _ := strings.Cut(arg, "@")
				trees[name] = digest.Digest(tree)
			}
			return a.carryOut(ctx, planned{
				compute: func(i *install.Installer) (*install.Plan, error) { return i.Accept(trees) },
				confirm: func(ctx context.Context, plan *install.Plan) error {
					for n := range plan.Changes {
						installing.Show(a.err, state, &plan.Changes[n])
					}
					_, err := a.confirmed(ctx, yes, "Serve "+report.Plural(len(plan.Changes), "skill")+"?")
					return err
				},
				print: func(plan *install.Plan) error {
					for _, c := range plan.Changes {
						a.printf("accepted %s %s\n", c.Name, c.After.Tree)
					}
					return nil
				},
			})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// accept marks the waiting changes of a plan as accepted: the given trees and, if asks is set, those that the
// user accepts on the terminal.
func (a *app) accept(ctx context.Context, plan *install.Plan, trees []string, asks bool) error {
	var left []*install.Change
	for _, c := range plan.Waiting() {
		if slices.Contains(trees, c.After.Tree.String()) {
			plan.Accept(c)
		} else if c.After.Verdict != policy.Refuse {
			left = append(left, c)
		}
	}
	if len(left) == 0 || !asks || a.agentShell() != "" ||
		!report.IsTerminal(a.in) || !report.IsTerminal(a.err) {
		return nil
	}
	state, err := a.StateDir()
	if err != nil {
		return err
	}
	for _, c := range left {
		installing.Show(a.err, state, c)
	}
	yes, err := a.confirm(ctx, "Serve "+report.Plural(len(left), "skill")+" all the same?")
	for _, c := range left {
		if yes {
			plan.Accept(c)
		}
	}
	return err
}
