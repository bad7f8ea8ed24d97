package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/doctor"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

func newDoctorCmd(a *app) *cobra.Command {
	flags, asJSON := pflag.NewFlagSet("serve", pflag.ContinueOnError), false
	d := &doctor.Doctor{Process: &a.Process, Serve: a.serveOptions(), Flags: flags, Err: a.err}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check roots, skills, sandbox, interpreters and directories, and say what would mend them",
		Long: "Check what `skillsd serve` needs, with the configuration and the flags it would have:\n" +
			"roots, skills, what is allowed, every byte of what is installed, the sandbox, interpreters,\n" +
			"directories and addresses. Each line is ok, warn or fail, with a hint that mends it; the\n" +
			"exit code is 3 if one is fail. Nothing is changed.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return a.doctor(ctx, d, asJSON) }),
	}
	d.FlagHint = func(flag string) string { return flagHint("skillsd doctor", cmd.Flags(), flag) }
	d.Serve.Register(flags)
	cmd.Flags().AddFlagSet(flags)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	// These are needed in any case; a fault in the other options of serve is a line of what is found.
	var first pflag.FlagSet
	(&config.ReaderOptions{}).Register(&first)
	names := "allow-skill-script sandbox"
	first.VisitAll(func(f *pflag.Flag) { names += " " + f.Name })
	cmd.Annotations = map[string]string{configures: names}
	return cmd
}

func (a *app) doctor(ctx context.Context, d *doctor.Doctor, asJSON bool) error {
	checks, err := d.Checks(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		err = report.WriteJSON(a.out, checks)
	}
	failed := false
	for _, c := range checks {
		failed = failed || c.Verdict == doctor.Fail
		if asJSON {
			continue
		}
		line := c.Verdict + " " + c.Area + ": " + report.Printable(c.Fact)
		fmt.Fprintln(a.out, report.Wrap(line, a.knownColumns(a.out)))
		if c.Hint != "" {
			fmt.Fprintf(a.out, "hint: %s\n", report.Printable(c.Hint))
		}
	}
	if err == nil && failed {
		return &exit.Error{Code: exit.Problems}
	}
	return err
}
