package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/provenance/schema"
)

// schemaOptions are the arguments of schema.
type schemaOptions struct{ app *app }

func newSchemaCmd(a *app) *cobra.Command {
	opts := &schemaOptions{app: a}
	return &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print the JSON Schema of a file or an object that the server writes",
		Long: "Print the JSON Schema (2020-12) of one of the files of a session's record, of the objects in results, or\n" +
			"of a denial. Without a name the names are listed.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgs:         schema.Names(),
		Annotations:       map[string]string{withoutConfig: "true"},
		DisableAutoGenTag: true,
		RunE:              runE(func(_ context.Context, args []string) error { return opts.run(args) }),
	}
}

func (o *schemaOptions) run(args []string) error {
	if len(args) == 0 {
		_, err := fmt.Fprintln(o.app.out, strings.Join(schema.Names(), "\n"))
		return err
	}
	s, err := schema.Of(args[0])
	if err != nil {
		return usageError("use one of: "+strings.Join(schema.Names(), ", "), "no schema %q", args[0])
	}
	return writeJSON(o.app.out, s)
}
