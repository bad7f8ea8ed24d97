package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// move copies sessions between a directory and a cluster.
type move struct {
	cluster     *config.Cluster
	byUser      func(what string) error // returns an error for what only a user may do
	to          io.Writer
	all, remove bool
}

// NewMoveCmds returns the commands that move sessions between a directory and a cluster. byUser returns an
// error in an agent's shell for what only a user may do.
func NewMoveCmds(of *config.Cluster, to io.Writer, byUser func(what string) error) []*cobra.Command {
	const whole = "Every line and file is as it was, the chain of events is verified, and a session " +
		"appears as a whole or not at all. One whose id is taken is refused. "
	in, out := &move{cluster: of, to: to}, &move{cluster: of, to: to, byUser: byUser}
	imports := &cobra.Command{
		Use:   "import DIR [SESSION]...",
		Short: "Copy sessions of a directory into a cluster",
		Long: "Copy sessions that have ended, or whose server has crashed, from a directory of session " +
			"logs (--artifact-root of their server) into --cluster. " + whole +
			"The directory stays unchanged.",
		Args: in.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return in.each(cmd.Context(), args, "imported", func(to *cluster.Archive) (*from, error) {
				files, err := filestore.OpenReader(args[0])
				return &from{files, func(ctx context.Context, id string) error {
					return to.Import(ctx, files, id)
				}}, err
			})
		},
	}
	archive := &cobra.Command{
		Use:   "archive DIR [SESSION]...",
		Short: "Copy sessions of a cluster into a directory",
		Long: "Copy sessions that have ended from --cluster into a directory, which " +
			"`skillsd session` reads with --artifact-root. " + whole +
			"With --remove, a session is deleted in the cluster once the directory has it on its disk.",
		Args: out.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out.remove {
				if err := out.byUser("--remove"); err != nil {
					return err
				}
			}
			return out.each(cmd.Context(), args, "archived", func(a *cluster.Archive) (*from, error) {
				return &from{a.Store, func(ctx context.Context, id string) error {
					return a.Archive(ctx, args[0], id, out.remove)
				}}, nil
			})
		},
	}
	imports.Flags().BoolVar(&in.all, "all", false, "all ended sessions that are not yet copied")
	archive.Flags().BoolVar(&out.all, "all", false, "all ended sessions that are not yet copied")
	archive.Flags().BoolVar(&out.remove, "remove", false, "delete what was copied in the cluster")
	return []*cobra.Command{imports, archive}
}

// from is the source of sessions, with the function that copies one.
type from struct {
	provenance.Reader
	do func(ctx context.Context, id string) error
}

func (o *move) args(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0 || len(args) == 1 && !o.all || len(args) > 1 && o.all:
		return exit.Usagef("see `skillsd session list`", "give DIR, and SESSION or --all")
	case !o.cluster.Enabled():
		return exit.Usagef("add --cluster URL", "there is no cluster")
	}
	return nil
}

// each copies the sessions in the arguments.
//
// Errors: *exit.Error, with exit.Problems if a session was not copied.
func (o *move) each(
	ctx context.Context, args []string, did string, open func(*cluster.Archive) (*from, error),
) (err error) {
	archive, err := cluster.OpenArchive(ctx, o.cluster, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	source, err := open(archive)
	if err != nil {
		return exit.Errorf(exit.Failure, "give a directory of session logs", "%w", err)
	}
	ids := args[1:]
	if o.all {
		ids, err = ended(ctx, source)
		if err != nil {
			return err
		}
	}
	failed := 0
	for _, id := range ids {
		err := source.do(ctx, id)
		line := did + " " + id
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		// A cluster that does not answer would fail every further session too.
		case errors.Is(err, provenance.ErrSilent):
			return cluster.Failure(err)
		// With --all a repetition finds the sessions that it copied before, so this is not a failure.
		case err != nil && !(o.all && errors.Is(err, provenance.ErrTaken)):
			failed++
			line = "not " + did + " " + id + ": " + reason(err)
		case err != nil:
			line = id + " is there"
		}
		if _, err := fmt.Fprintln(o.to, report.Printable(line)); err != nil {
			return err
		}
	}
	if failed > 0 {
		return &exit.Error{Code: exit.Problems}
	}
	return nil
}

// ended returns the ids of the sessions that have ended. One that runs has a writer, and a copy of it would
// be refused as held.
func ended(ctx context.Context, records provenance.Reader) (ids []string, err error) {
	list, err := provenance.ListSessions(ctx, records)
	if err != nil {
		return nil, exit.Errorf(exit.Failure, "see `skillsd session list`", "%w", err)
	}
	for i := range list {
		if list[i].State == provenance.StateEnded {
			ids = append(ids, list[i].ID)
		}
	}
	return ids, nil
}

// reason returns why a session was not copied.
func reason(err error) string {
	switch {
	case errors.Is(err, provenance.ErrTaken):
		return "a session of this id is there"
	case errors.Is(err, provenance.ErrHeld):
		return "it has not ended"
	}
	return err.Error()
}
