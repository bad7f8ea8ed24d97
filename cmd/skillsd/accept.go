package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

// newAcceptCmd returns the name that `skillsd update --accept` had.
func newAcceptCmd(a *app) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:    "accept NAME[@DIGEST]...",
		Hidden: true,
		Short:  "Serve installed skills that wait for a review, as `skillsd update --accept` does",
		Args:   cobra.MinimumNArgs(1),
		RunE: runE(func(ctx context.Context, args []string) error {
			return a.acceptInstalled(ctx, args, yes)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// acceptInstalled serves installed skills that are in quarantine, each NAME or NAME@DIGEST: all of them, or
// none. It shows what there is to review, and asks unless yes is set. Only the content that is stored now is
// accepted.
func (a *app) acceptInstalled(ctx context.Context, args []string, yes bool) error {
	state, err := a.StateDir()
	// The refusal in an agent's shell goes before any other problem, whose hint the agent would follow.
	if err = cmp.Or(a.byUser("--accept"), err); err != nil {
		return err
	}
	return a.carryOut(ctx, planned{
		compute: func(i *install.Installer) (*install.Plan, error) {
			trees := map[string]digest.Digest{}
			for _, arg := range args {
				name, tree, _ := strings.Cut(arg, "@")
				full := inFull(i.Lock(), []string{name})
				trees[full[0]] = digest.Digest(tree)
			}
			return i.Accept(trees)
		},
		confirm: func(ctx context.Context, plan *install.Plan) error {
			for n := range plan.Changes {
				c := &plan.Changes[n]
				installing.Show(a.err, state, c)
				if err := a.showArrived(ctx, state, c.After); err != nil {
					return err
				}
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
}

// showArrived prints the instructions and the scripts of an installed skill that is not served yet.
func (a *app) showArrived(ctx context.Context, state string, e *install.Entry) error {
	dir, err := os.OpenRoot(filepath.Join(config.TreesDir(state), e.Tree.Encoded()))
	if err != nil {
		return err
	}
	defer dir.Close()
	snapshot, err := skills.Scan(ctx, []skills.Root{{Dir: dir.Name(), FS: dir.FS(), Name: e.Name,
		Tier: e.Tier}}, &skills.ScanOptions{})
	if err != nil {
		return err
	}
	row, err := report.Arrived(ctx, snapshot, e)
	if err != nil {
		return err
	}
	row.Print(a.err, a.err)
	return nil
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
	// A terminal that an agent opened is answered by its model.
	if len(left) == 0 || !asks || a.agentShell() != "" || !a.hasTerminal() {
		return nil
	}
	state, err := a.StateDir()
	if err != nil {
		return err
	}
	show := func() {
		for _, c := range left {
			installing.Show(a.err, state, c)
		}
	}
	var yes bool
	if len(left) == 1 {
		show()
		yes, err = a.confirm(ctx, "Serve this skill anyway?")
	} else {
		yes, err = a.acceptAll(ctx, left, len(plan.Changes), show)
	}
	for _, c := range left {
		if yes {
			plan.Accept(c)
		}
	}
	return err
}

// acceptAll asks once about the skills of a source that wait for a look, and shows them if the user wants to.
func (a *app) acceptAll(ctx context.Context, left []*install.Change, all int, show func()) (bool, error) {
	reasons := map[string]bool{}
	for _, c := range left {
		for _, name := range report.ReasonNames(c.After.Why) {
			reasons[name] = true
		}
	}
	// One question for a source: with dozens of questions users answer yes without reading.
	const form = "%d of %d skills need a review (%s): show them, accept all, or skip? [s/a/N] "
	question := fmt.Sprintf(form, len(left), all,
		report.Printable(strings.Join(slices.Sorted(maps.Keys(reasons)), ", ")))
	for {
		word, err := a.typed(ctx, question)
		if err != nil {
			return false, err
		}
		switch word {
		case "s", "show":
			show()
		case "a", "all", "accept", "accept all":
			return true, nil
		case "", "n", "no", "skip":
			return false, nil
		default:
			a.notef("answer s to show them, a to accept all, or n to skip them")
		}
	}
}
