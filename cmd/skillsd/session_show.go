package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
)

// sessionShowOptions are the flags of session show.
type sessionShowOptions struct {
	app    *app
	Output string
	JSON   bool
}

func newSessionShowCmd(a *app) *cobra.Command {
	opts := &sessionShowOptions{app: a}
	cmd := &cobra.Command{
		Use:   "show [SESSION]",
		Short: "Show what a session was shown, ran and was refused",
		Long: "Show what a session was shown, ran and was refused, an event a line. Without SESSION it is the newest;\n" +
			"the beginning of an id is enough.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	cmd.Flags().StringVar(&opts.Output, "output", "",
		"print a kept stream by its output or handle `ID`, [RUN:]TOOL:N[:stdout|:stderr];"+
			" control characters are left out on a terminal only")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print the events as JSON, one a line")
	return cmd
}

func (o *sessionShowOptions) run(ctx context.Context, args []string) error {
	return o.app.onSession(ctx, args, o.show)
}

func (o *sessionShowOptions) show(ctx context.Context, records provenance.Reader, id string) error {
	if o.Output != "" {
		return o.printOutput(ctx, records, id)
	}
	out, events := o.app.out, records.Events(ctx, provenance.Query{Session: id})
	if !o.JSON {
		return report.WriteTimeline(out, id, events, o.app.knownColumns(out))
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		line, err := provenance.EncodeLine(e)
		if err != nil {
			return err
		}
		if _, err := out.Write(report.QuietJSON(line)); err != nil {
			return err
		}
	}
	return nil
}

// printOutput prints kept streams: of a handle one, of an output id both.
func (o *sessionShowOptions) printOutput(ctx context.Context, records provenance.Reader, id string) error {
	output, streams := o.Output, []string{"stdout", "stderr"}
	for _, stream := range streams {
		if name, ok := strings.CutSuffix(output, ":"+stream); ok {
			output, streams = name, []string{stream}
			break
		}
	}
	if strings.Count(output, ":") == 1 {
		output = id + ":" + output
	}
	found := false
	for _, stream := range streams {
		file, err := records.Stored(ctx, id, provenance.OutputName(output, stream))
		switch {
		case errors.Is(err, provenance.ErrInvalid):
			return usageError("use an output id from `skillsd session show "+id+"`",
				"%q is not an output id", o.Output)
		case errors.Is(err, provenance.ErrNotFound):
			continue
		case err != nil:
			return err
		}
		found = true
		err = report.CopyOutput(o.app.out, file, report.IsTerminal(o.app.out))
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	if !found {
		return &exitError{
			Code: exitFailure,
			Err:  fmt.Errorf("session %s keeps no output %q", id, o.Output),
			Hint: "`skillsd session show " + id + "` names its outputs",
		}
	}
	return nil
}
