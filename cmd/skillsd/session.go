package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

func newSessionCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Read and verify the records of sessions",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSessionListCmd(a), newSessionShowCmd(a), newSessionVerifyCmd(a))
	return cmd
}

// sessionListOptions are the flags of session list.
type sessionListOptions struct {
	app  *app
	JSON bool
}

func newSessionListCmd(a *app) *cobra.Command {
	opts := &sessionListOptions{app: a}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sessions, newest first",
		Args:  cobra.NoArgs,
		RunE:  runE(func(context.Context, []string) error { return opts.run() }),
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *sessionListOptions) run() error {
	dir, err := o.app.artifactDir()
	if err != nil {
		return err
	}
	sessions, err := filestore.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if o.JSON {
		return writeJSON(o.app.out, append([]provenance.Session{}, sessions...))
	}
	if len(sessions) == 0 {
		_, err := fmt.Fprintf(o.app.out, "no sessions in %s\n", dir)
		return err
	}
	table := tabwriter.NewWriter(o.app.out, 0, 0, 2, ' ', 0)
	if isTerminal(o.app.out) {
		fmt.Fprintln(table, "SESSION\tSTART\tSKILLS\tRUNS\tDENIALS\tSTATE")
	}
	for _, s := range sessions {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\n", s.ID, s.CreatedAt.Local().Format(time.DateTime), s.Counts.Activations, s.Counts.Runs, s.Counts.Denials, s.State)
	}
	return table.Flush()
}

// sessionShowOptions are the flags of session show.
type sessionShowOptions struct {
	app    *app
	Output string
	JSON   bool
}

func newSessionShowCmd(a *app) *cobra.Command {
	opts := &sessionShowOptions{app: a}
	cmd := &cobra.Command{
		Use:   "show SESSION",
		Short: "Show what a session was shown, ran and was refused",
		Args:  cobra.ExactArgs(1),
		RunE:  runE(func(_ context.Context, args []string) error { return opts.run(args[0]) }),
	}
	cmd.Flags().StringVar(&opts.Output, "output", "", "print a kept stream by its output or handle id, RUN:TOOL:N[:stdout|:stderr]")
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
	table := tabwriter.NewWriter(o.app.out, 0, 0, 2, ' ', 0)
	for e, err := range filestore.ReadEvents(dir, id) {
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		if o.JSON {
			line, err := provenance.EncodeLine(e)
			if err != nil {
				return err
			}
			if _, err := o.app.out.Write(line); err != nil {
				return err
			}
			continue
		}
		subject := e.Skill
		if e.Path != "" {
			subject += ":" + e.Path
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.Time.Local().Format("15:04:05.000"), e.Kind, printable(subject), printable(provenance.Summary(e)))
	}
	return table.Flush()
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
	found := false
	for _, stream := range streams {
		name := provenance.OutputName(output, stream)
		if err := provenance.CheckFileName(name); err != nil {
			return usageError("use an output id from `skillsd session show "+id+"`", "%q is no output id", o.Output)
		}
		file, err := os.Open(filepath.Join(dir, id, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		found = true
		_, err = io.Copy(o.app.out, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("session %s keeps no output %q", id, o.Output)
	}
	return nil
}

func newSessionVerifyCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "verify SESSION",
		Short: "Recompute a session's hash chain and compare every file with it",
		Args:  cobra.ExactArgs(1),
		RunE: runE(func(_ context.Context, args []string) error {
			dir, id, err := a.findSession(args[0])
			if err != nil {
				return err
			}
			report, err := filestore.Verify(dir, id)
			if wrong, ok := errors.AsType[*filestore.VerifyError](err); ok {
				fmt.Fprintln(a.out, wrong)
				return &exitError{Code: exitProblems}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "ok %s: %d events, %d files\n", id, report.Events, report.Files)
			for _, view := range report.Stale {
				fmt.Fprintf(a.err, "note: %s is of an earlier moment\n", view)
			}
			for _, file := range report.Unrecorded {
				fmt.Fprintf(a.err, "note: no event names %s\n", printable(file))
			}
			return nil
		}),
	}
}

// findSession returns where a session's record lies. "latest" and an unambiguous beginning of an
// id name one too.
func (a *app) findSession(name string) (dir, id string, err error) {
	if dir, err = a.artifactDir(); err != nil {
		return "", "", err
	}
	sessions, err := filestore.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	if provenance.ValidSessionID(name) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
			return dir, name, nil
		}
	}
	if name == "latest" && len(sessions) > 0 {
		return dir, sessions[0].ID, nil
	}
	var matches []string
	for _, s := range sessions {
		if name != "" && strings.HasPrefix(s.ID, name) {
			matches = append(matches, s.ID)
		}
	}
	if matches = slices.Compact(matches); len(matches) == 1 {
		return dir, matches[0], nil
	}
	if len(matches) > 1 {
		return "", "", &exitError{Code: exitFailure, Err: fmt.Errorf("%d sessions begin with %q", len(matches), name), Hint: "give more of the id; see `skillsd session list`"}
	}
	if len(sessions) == 0 {
		return "", "", &exitError{Code: exitFailure, Err: fmt.Errorf("no session %q, and no other", name), Hint: "there are none in " + dir + " yet; --artifact-root or --state names another place"}
	}
	return "", "", &exitError{Code: exitFailure, Err: fmt.Errorf("no session %q", name), Hint: "see `skillsd session list`, or use latest"}
}
