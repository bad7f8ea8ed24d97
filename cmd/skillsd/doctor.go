package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/doctor"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

func newDoctorCmd(a *app) *cobra.Command {
	flags, asJSON, verbose := pflag.NewFlagSet("serve", pflag.ContinueOnError), false, false
	d := &doctor.Doctor{Process: &a.Process, Serve: a.serveOptions(), Flags: flags, Err: a.err}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether skills load and scripts can run here, with a fix for each problem",
		Long: "Check what `skillsd serve` needs, with the configuration and the flags it would have:\n" +
			"directories of skills, the skills, what is allowed, every byte of what is installed, the\n" +
			"sandbox, interpreters and addresses. The first line is the verdict; then come the problems,\n" +
			"the most important first, each with a fix, and a summary of the checks that passed. The exit\n" +
			"code is 3 if a check failed. Nothing is changed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			// A configuration that cannot be used is a finding like others.
			broken := a.configure(cmd)
			return runE(func(ctx context.Context, _ []string) error {
				return a.doctor(ctx, d, broken, asJSON, verbose)
			})(cmd, args)
		},
	}
	d.FlagHint = func(flag string) string { return flagHint("skillsd doctor", cmd.Flags(), flag) }
	d.Serve.Register(flags)
	d.Serve.Roots.RegisterCache(flags)
	cmd.Flags().AddFlagSet(flags)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&verbose, "verbose", false,
		"print every check in full, with the digests of interpreters, and compare every byte of what is "+
			"installed, however long that takes")
	// These must be valid in any case; errors in the other options of serve are reported as findings.
	var first pflag.FlagSet
	(&config.ReaderOptions{}).Register(&first)
	names := "allow-skill-script sandbox"
	first.VisitAll(func(f *pflag.Flag) { names += " " + f.Name })
	cmd.Annotations = map[string]string{configures: names, withoutConfig: "true"}
	return cmd
}

func (a *app) doctor(
	ctx context.Context, d *doctor.Doctor, broken error, asJSON, verbose bool,
) error {
	d.Thorough = verbose
	find := d.Checks
	if broken != nil {
		find = func(ctx context.Context) ([]doctor.Check, error) { return d.Broken(ctx, broken) }
	}
	checks, err := find(ctx)
	if err != nil {
		return err
	}
	for i := range checks {
		checks[i].Hint = a.again(checks[i].Hint)
	}
	if asJSON {
		err = report.WriteJSON(a.out, checks)
	} else {
		err = doctor.Print(a.out, checks, a.knownColumns(a.out), report.NewPaint(a.Env, a.out), verbose)
	}
	failed := func(c doctor.Check) bool { return c.Verdict == doctor.Fail }
	if err != nil {
		return err
	}
	if slices.ContainsFunc(checks, failed) {
		return &exit.Error{Code: exit.Problems}
	}
	return err
}
