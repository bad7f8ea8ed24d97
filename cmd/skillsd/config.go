package main

import (
	"context"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

func newConfigCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration in effect, and what a configuration file may say",
		Long: "Every option of the server can be told on the command line, in the environment and in a\n" +
			"file; what comes first in this order counts:\n\n" +
			"  1. the flag, such as --log-level debug\n" +
			"  2. the environment variable of its name, SKILLSD_LOG_LEVEL=debug; one that is\n" +
			"     empty counts as not set, lists are split at line ends or else at commas\n" +
			"  3. the file: --config FILE, else SKILLSD_CONFIG, else\n" +
			"     $XDG_CONFIG_HOME/skillsd/config.yaml, else ~/.config/skillsd/config.yaml,\n" +
			"     never one in the working directory; /dev/null stands for none\n" +
			"  4. the default\n\n" +
			"A list of one place takes the whole place of a list of another; limits are told apart by\n" +
			"name. Relative paths in the file are relative to the file, and ~/ is the home directory.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigShowCmd(a), newConfigSchemaCmd(a))
	return cmd
}

// configSchemaOptions are the flags of config schema, of which there are none.
type configSchemaOptions struct{ app *app }

func newConfigSchemaCmd(a *app) *cobra.Command {
	opts := &configSchemaOptions{app: a}
	return &cobra.Command{
		Use:         "schema",
		Short:       "Print the JSON Schema of the configuration file",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{withoutConfig: "true"},
		RunE:        runE(func(context.Context, []string) error { return opts.run() }),
	}
}

func (o *configSchemaOptions) run() error {
	all := newRootCmd(&app{}).PersistentFlags()
	all.AddFlagSet(serveFlags())
	schema, err := config.Schema(all)
	if err != nil {
		return err
	}
	return report.WriteJSON(o.app.out, schema)
}

// serveFlags are the flags of serve with the defaults they have.
func serveFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	(&serve.Options{}).Register(flags)
	return flags
}
