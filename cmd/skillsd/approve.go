package main

import (
	"context"
	"errors"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
)

func newApproveCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve CODE",
		Short: "Approve a call that a client could not ask you about",
		Long: "Show the call of a script that was refused because its client did not ask you, and let " +
			"it run if you agree: exactly this call, once, within ten minutes. The refusal has the " +
			"code.\n\n" +
			"  skillsd approve K7QM-2XPD\n\n" +
			"In a shell that an agent opened for its model nothing is approved.",
		Args: cobra.ExactArgs(1),
		RunE: runE(a.approve),
	}
	const usage = "approve a call to servers in the NATS cluster of this `URL` (repeatable)"
	a.cluster.Register(cmd.Flags(), usage, false)
	return cmd
}

// codes opens the calls that wait for the user's decision. The caller calls closed.
func (a *app) codes(ctx context.Context) (codes *approval.Codes, closed func(), err error) {
	if a.cluster.Enabled() {
		return cluster.OpenWords(ctx, &a.cluster, a.logger())
	}
	state, err := a.StateDir()
	if err != nil {
		return nil, nil, err
	}
	return serve.Codes(state), func() {}, nil
}

func (a *app) approve(ctx context.Context, args []string) error {
	if err := a.byUser("`skillsd approve`"); err != nil {
		return err
	}
	// There is no --yes: approving is a decision about what is shown, and a script shows it to no person.
	if !a.hasTerminal() {
		return exit.Errorf(exit.Failure, "type it in a terminal",
			"nothing is approved: confirmation needs a terminal")
	}
	codes, closed, err := a.codes(ctx)
	if err != nil {
		return err
	}
	defer closed()
	call, err := codes.Find(ctx, args[0], time.Now())
	if errors.Is(err, approval.ErrNoCall) {
		const hint = "repeat the call: its refusal will have a new code; --state selects the directory of " +
			"another server"
		return exit.Errorf(exit.Failure, hint, "%q: %w", config.Clip(args[0]), err)
	} else if err != nil {
		return err
	}
	for line := range strings.SplitSeq(call.Text, "\n") {
		// The text has arguments that a model wrote, and control characters could change what the user reads.
		a.printf("%s\n", report.Printable(line))
	}
	a.printf("script %s, skill %s\ncalled by %s (%s), session %s\n", call.Script, call.Tree,
		report.Printable(call.Principal), report.Printable(call.Client), call.Session)
	agreed, err := a.confirm(ctx, "Let this call run once?")
	if err != nil {
		return err
	}
	if !agreed {
		err = exit.Errorf(exit.Failure, "", "nothing is approved")
	}
	if err != nil {
		return err
	}
	err = codes.Approve(ctx, call.Code, userName()+" at a terminal", time.Now())
	if err != nil {
		return err
	}
	a.notef("skillsd: approved: it runs when the call is made again, unchanged, within ten minutes, " +
		"or at once if it waits")
	return nil
}

// userName returns the system's name of the user who runs this program.
func userName() string {
	who, err := user.Current()
	if err != nil {
		return "this user"
	}
	return who.Username
}
