package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
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
		RunE: runE(func(_ context.Context, args []string) error { return opts.run(sessionArg(args)) }),
	}
	cmd.Flags().StringVar(&opts.Output, "output", "", "print a kept stream by its output or handle `ID`, [RUN:]TOOL:N[:stdout|:stderr]; control characters are left out on a terminal only")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print the events as JSON, one a line")
	return cmd
}

func (o *sessionShowOptions) run(id string) error {
	dir, id, err := o.app.findSession(id)
	if err != nil {
		return err
	}
	if o.Output != "" {
		return o.printOutput(dir, id)
	}
	if !o.JSON {
		return o.timeline(dir, id)
	}
	for e, err := range filestore.ReadEvents(dir, id) {
		if err != nil {
			return brokenRecord(err)
		}
		line, err := provenance.EncodeLine(e)
		if err != nil {
			return err
		}
		if _, err := o.app.out.Write(report.QuietJSON(line)); err != nil {
			return err
		}
	}
	return nil
}

// timeline prints one line an event, and those about a script below its own, under a line that says whose session it is.
func (o *sessionShowOptions) timeline(dir, id string) error {
	var day string
	first := true
	for e, err := range filestore.ReadEvents(dir, id) {
		if err != nil {
			return brokenRecord(err)
		}
		if first {
			who := e.Principal
			if e.Client != "" {
				who += ", " + e.Client
			}
			fmt.Fprintf(o.app.out, "session %s (%s)\n", id, report.OneLine(who))
			first = false
		}
		at := e.Time.Local()
		if d := at.Format(time.DateOnly); d != day {
			day = d
			fmt.Fprintln(o.app.out, day)
		}
		for _, line := range append([]string{o.line(e)}, o.details(e)...) {
			if _, err := fmt.Fprintln(o.app.out, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// line is an event: time, kind, subject and outcome. Where a width is known it takes at most one row;
// what does not fit is cut from the subject.
func (o *sessionShowOptions) line(e *provenance.Event) string {
	subject := e.Skill
	if e.Path != "" {
		subject += ":" + e.Path
	}
	subject, outcome := report.OneLine(subject), report.OneLine(cfharness.Summary(e))
	line := e.Time.Local().Format("15:04:05.000") + "  " + report.Pad(string(e.Kind), 22) + "  "
	if columns := o.app.knownColumns(o.app.out); columns > 0 {
		const gap, least = 2, 12
		room := max(columns-report.Cells(line), 2*least)
		outcome = report.Shorten(outcome, max(room-min(report.Cells(subject), least)-gap, least))
		subject = report.Shorten(subject, room-report.Cells(outcome)-gap)
	}
	if subject != "" {
		line += subject + "  "
	}
	return strings.TrimRight(line+outcome, " ")
}

// printOutput prints kept streams: of a handle one, of an output id both.
func (o *sessionShowOptions) printOutput(dir, id string) error {
	output, streams := o.Output, []string{"stdout", "stderr"}
	for _, stream := range streams {
		if rest, ok := strings.CutSuffix(output, ":"+stream); ok {
			output, streams = rest, []string{stream}
			break
		}
	}
	if strings.Count(output, ":") == 1 {
		output = id + ":" + output
	}
	root, err := os.OpenRoot(filepath.Join(dir, id))
	if err != nil {
		return err
	}
	defer root.Close()
	found := false
	for _, stream := range streams {
		name := provenance.OutputName(output, stream)
		if err := provenance.CheckFileName(name); err != nil {
			return usageError("use an output id from `skillsd session show "+id+"`", "%q is no output id", o.Output)
		}
		info, err := root.Lstat(filepath.FromSlash(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", name)
		}
		if err != nil {
			return err
		}
		file, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		found = true
		err = o.app.copyOutput(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	if !found {
		return &exitError{Code: exitFailure, Err: fmt.Errorf("session %s keeps no output %q", id, o.Output), Hint: "`skillsd session show " + id + "` names its outputs"}
	}
	return nil
}

// copyOutput prints what a script printed.
func (a *app) copyOutput(r io.Reader) error {
	return report.CopyOutput(a.out, r, report.IsTerminal(a.out))
}
