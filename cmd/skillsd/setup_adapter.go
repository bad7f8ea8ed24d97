package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/adapters"
	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// newSetupAdapterCmd returns the setup of cf-harness, which is no MCP client: it gets an adapter.
func newSetupAdapterCmd(a *app) *cobra.Command {
	client := &clients.Client{Name: "cf-harness", Title: "cf-harness"}
	opts := &setupOptions{app: a, client: client, Name: "skills"}
	var dir string
	cmd := &cobra.Command{
		Use:   client.Name + " [flags] [-- SERVE-FLAGS]",
		Short: "Connect cf-harness, by an adapter in TypeScript",
		Long: "Print the command line that runs cf-harness with skillsd's skills. --write DIR writes the\n" +
			"adapter that the command line starts; a directory inside a checkout of cf-harness's\n" +
			"repository needs no further configuration of deno. A file of DIR that differs is kept as\n" +
			"FILE.skillsd-backup.\n\n" +
			"  skillsd setup cf-harness --write ~/labs/skillsd -- --skills-root ~/labs/skills\n\n" +
			"`skillsd help cf-harness` says more.",
		Args:              argsAfterDash,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: runE(func(_ context.Context, args []string) error {
			return opts.adapter(dir, args)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.URL, "http", "",
		"connect to a server that runs at this `URL`, instead of starting one")
	flags.StringVar(&opts.TokenEnv, "token-env", "",
		"with --http: send the token in the variable `NAME` of the harness's environment")
	flags.StringVar(&dir, "write", "", "write the adapter into the directory `DIR`")
	return cmd
}

// adapter writes the adapter, if there is a directory for it, and prints how it is started.
func (o *setupOptions) adapter(dir string, args []string) error {
	entry, err := o.entry(args)
	if err != nil {
		return err
	}
	if dir == "" {
		dir = "DIR"
		fmt.Fprintln(o.app.err, "write the adapter with --write DIR, then run:")
	} else {
		if strings.HasPrefix(dir, "~") {
			return exit.Usagef("put a space before the path, or write it out",
				"--write: the shell left ~ as it is in %q", dir)
		}
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		if err := adapters.Write(dir, o.app.err); err != nil {
			return err
		}
		fmt.Fprintln(o.app.err, "run, with the flags of cf-harness after ---:")
	}
	words := []string{"deno", "run", "-A", filepath.Join(dir, "cli.ts")}
	switch {
	case entry.URL == "":
		words = append(words, entry.CommandLine()...)
	case entry.TokenEnv == "":
		words = append(words, "--url", entry.URL)
	default:
		words = append(words, "--url", entry.URL, "--token-env", entry.TokenEnv)
	}
	_, err = fmt.Fprintln(o.app.out, report.ShellLine(append(words, "---")...))
	return err
}
