package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/skills"
)

func newConfigCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the options in effect, and the schema of the file",
		Long: "Every option of the server can be given on the command line, in the environment and in a\n" +
			"file; the first of these that has it applies:\n\n" +
			"  1. the flag, such as --log-level debug\n" +
			"  2. the environment variable of its name, SKILLSD_LOG_LEVEL=debug; an empty\n" +
			"     variable is not set, lists are split at line ends or else at commas\n" +
			"  3. the file: --config FILE, else SKILLSD_CONFIG, else\n" +
			"     $XDG_CONFIG_HOME/skillsd/config.yaml, else ~/.config/skillsd/config.yaml,\n" +
			"     never one in the working directory; /dev/null means no file\n" +
			"  4. the default\n\n" +
			"A list of one place replaces the list of another as a whole; limits are separate by name.\n" +
			"Relative paths in the file are relative to the file, and ~/ is the home directory.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigShowCmd(a), newConfigSchemaCmd(a))
	return cmd
}

func newConfigSchemaCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "schema",
		Short:       "Print the JSON Schema of the configuration file",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{withoutConfig: "true"},
		RunE: runE(func(context.Context, []string) error {
			return report.WriteJSON(a.out, config.Schema())
		}),
	}
}

// configShowOptions are the flags of config show, with the flags of serve.
type configShowOptions struct {
	app   *app
	Serve serve.Options
	Given bool
	JSON  bool
}

func newConfigShowCmd(a *app) *cobra.Command {
	opts := &configShowOptions{app: a, Serve: *a.serveOptions()}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every option, its value and where that came from",
		Long: "Show the options that `skillsd serve` would have with the same flags, each with its " +
			"value and where that came from. Nothing is started; `skillsd doctor` checks whether a " +
			"server could start. Secrets are shown by their source; their values are not read.",
		Args: cobra.NoArgs,
		RunE: runE(func(context.Context, []string) error { return opts.run() }),
	}
	opts.Serve.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Given, "given", false, "leave out options with default values")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *configShowOptions) run() error {
	// serve checks this before it looks at skills.
	if _, err := serve.NewLogger(o.app.err, o.Serve.LogLevel, o.Serve.LogFormat, true); err != nil {
		return err
	}
	mode, role := o.Serve.Mode, o.Serve.Role
	if _, _, err := o.Serve.Decided(); err != nil {
		return err
	}
	// The run manifest may have set these.
	for key, changed := range map[string]bool{
		"policy.mode": o.Serve.Mode != mode, "policy.prompt_slot_role": o.Serve.Role != role,
	} {
		if changed {
			at := config.Origin{Kind: config.FromManifest, Text: o.Serve.Manifest, Key: key}
			o.app.Cfg.Origins[key] = at
		}
	}
	if err := o.Serve.Choice.Apply(&skills.ScanOptions{}, &o.app.Process); err != nil {
		return err
	}
	rows, err := o.app.Rows(o.Serve.Options, o.Given)
	if err != nil {
		return err
	}
	if o.JSON {
		return report.WriteJSON(o.app.out, rows)
	}
	return config.PrintRows(o.app.out, o.app.Cfg.File, rows)
}
