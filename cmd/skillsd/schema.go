package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance/schema"
)

// schemaOptions are the arguments of schema.
type schemaOptions struct{ app *app }

func newSchemaCmd(a *app) *cobra.Command {
	opts := &schemaOptions{app: a}
	return &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print the JSON Schema of a file of a record, an object in results, or a --json",
		Long: "Print the JSON Schema (2020-12) of one of the files of a session's record, of the objects in results, of a\n" +
			"denial, or of what a command prints with --json: `skillsd schema list-json`. Without a name the names are\n" +
			"listed.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgs:         schemaNames(),
		Annotations:       map[string]string{withoutConfig: "true"},
		DisableAutoGenTag: true,
		RunE:              runE(func(_ context.Context, args []string) error { return opts.run(args) }),
	}
}

func (o *schemaOptions) run(args []string) error {
	if len(args) == 0 {
		_, err := fmt.Fprintln(o.app.out, strings.Join(schemaNames(), "\n"))
		return err
	}
	s, err := outputSchema(args[0])
	if err != nil {
		return err
	}
	if s == nil {
		if s, err = schema.Of(args[0]); err != nil {
			return usageError("use one of: "+strings.Join(schemaNames(), ", "), "no schema %q", args[0])
		}
	}
	return report.WriteJSON(o.app.out, s)
}

// schemaNames are the names of all schemas.
func schemaNames() []string { return slices.Concat(schema.Names(), outputNames()) }
