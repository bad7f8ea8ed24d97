package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/intoto"
)

// sessionExportOptions are the flags of session export.
type sessionExportOptions struct {
	app    *app
	Format string
}

func newSessionExportCmd(a *app) *cobra.Command {
	opts := &sessionExportOptions{app: a}
	cmd := &cobra.Command{
		Use:   "export [SESSION]",
		Short: "Print a session for other tools",
		Long: "Print a session as one JSON document (json: events, views, snapshots, outputs and what was\n" +
			"shown), or for each run one unsigned in-toto Statement a line (intoto), with the run's outputs as\n" +
			"the subject and skill tree, script, arguments, sandbox, policy decision and place in the record as\n" +
			"the predicate of type\n" + intoto.ExecutionType + ".\n" +
			"A record is not verified beyond its chain; see `skillsd session verify`. Without SESSION it is the\n" +
			"newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	cmd.Flags().StringVar(&opts.Format, "format", "json", "`FORMAT`: json or intoto")
	return cmd
}

func (o *sessionExportOptions) run(ctx context.Context, args []string) error {
	export := map[string]func(context.Context, io.Writer, provenance.Reader, string) error{
		"json": report.WriteExport, "intoto": exportStatements,
	}[o.Format]
	if export == nil {
		return usageError("use json or intoto", "--format %q is unknown", o.Format)
	}
	return o.app.onSession(ctx, args, func(ctx context.Context, records provenance.Reader, id string) error {
		out := bufio.NewWriter(o.app.out)
		return errors.Join(export(ctx, out, records, id), out.Flush())
	})
}

func exportStatements(ctx context.Context, w io.Writer, records provenance.Reader, id string) error {
	var approvals intoto.Approvals
	for e, err := range records.Events(ctx, provenance.Query{Session: id}) {
		if err != nil {
			return err
		}
		approvals.Add(e)
		st, err := intoto.NewStatement(e)
		if err != nil {
			return err
		}
		if st == nil {
			continue
		}
		st.Predicate.Approval = approvals.Of(e)
		raw, err := provenance.Encode(st)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", raw); err != nil {
			return err
		}
	}
	return nil
}
