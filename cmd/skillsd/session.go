package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

func newSessionCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Read, verify, export and delete the records of sessions",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSessionListCmd(a), newSessionShowCmd(a), newSessionVerifyCmd(a), newSessionReplayCmd(a),
		newSessionExportCmd(a), newSessionGCCmd(a), newSessionKeygenCmd(a))
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
		RunE:  runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *sessionListOptions) run(ctx context.Context) error {
	records, dir, err := o.app.records()
	if err != nil {
		return err
	}
	defer records.Close()
	sessions, err := listSessions(ctx, records)
	if err != nil {
		return err
	}
	out := o.app.out
	if o.JSON {
		return report.WriteJSON(out, append([]provenance.Session{}, sessions...))
	}
	if len(sessions) == 0 {
		_, err := fmt.Fprintf(out, "no sessions in %s\n", report.Printable(dir))
		return err
	}
	rows := report.SessionRows(ctx, records, sessions)
	local := mcpserver.LocalPrincipal().Name
	return report.WriteSessions(out, rows, o.app.knownColumns(out), local, time.Now())
}

// records opens the recorded sessions for reading, and returns the directory that they are in. The caller
// closes them. It and the server are the only places that know which store it is.
func (a *app) records() (provenance.Reader, string, error) {
	dir, err := a.artifactDir()
	if err != nil {
		return nil, "", err
	}
	records, err := filestore.OpenReader(dir)
	if err != nil {
		return nil, "", elsewhere(err)
	}
	return records, dir, nil
}

func listSessions(ctx context.Context, records provenance.Reader) ([]provenance.Session, error) {
	sessions, err := provenance.ListSessions(ctx, records)
	if err != nil {
		return nil, elsewhere(err)
	}
	return sessions, nil
}

// elsewhere adds to an error of listing sessions how to name another directory.
func elsewhere(err error) error {
	return &exitError{Code: exitFailure, Err: err, Hint: "--artifact-root or --state names another place"}
}

// findSession opens the recorded sessions and returns the id of the one that name means: an id, "latest" or
// the beginning of one id. The caller closes the records.
func (a *app) findSession(ctx context.Context, name string) (_ provenance.Reader, id string, err error) {
	records, dir, err := a.records()
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			records.Close()
		}
	}()
	sessions, err := listSessions(ctx, records)
	if err != nil {
		return nil, "", err
	}
	if slices.ContainsFunc(sessions, func(s provenance.Session) bool { return s.ID == name }) {
		return records, name, nil
	}
	if name == "latest" && len(sessions) > 0 {
		return records, sessions[0].ID, nil
	}
	var matches []string
	for _, s := range sessions {
		if name != "" && strings.HasPrefix(s.ID, name) {
			matches = append(matches, s.ID)
		}
	}
	fail := func(hint, format string, args ...any) (provenance.Reader, string, error) {
		return nil, "", &exitError{Code: exitFailure, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	switch {
	case len(matches) == 1:
		return records, matches[0], nil
	case len(matches) > 1:
		return fail("give more of the id; see `skillsd session list`",
			"%d sessions begin with %q", len(matches), name)
	case len(sessions) == 0:
		return fail("there are none in "+dir+" yet; --artifact-root or --state names another place",
			"no session %q, and no other", name)
	}
	return fail("see `skillsd session list`, or use latest", "no session %q", name)
}

// sessionID returns the id of the session that name means, as findSession does.
func (a *app) sessionID(ctx context.Context, name string) (string, error) {
	records, id, err := a.findSession(ctx, name)
	if err != nil {
		return "", err
	}
	return id, records.Close()
}

// sessionFunc is what a command does with a session.
type sessionFunc func(ctx context.Context, records provenance.Reader, id string) error

// onSession runs do with the session that the only argument names, or with the newest one.
func (a *app) onSession(ctx context.Context, args []string, do sessionFunc) error {
	records, id, err := a.findSession(ctx, append(args, "latest")[0])
	if err != nil {
		return err
	}
	defer records.Close()
	err = do(ctx, records, id)
	if errors.Is(err, provenance.ErrCorrupt) {
		return &exitError{Code: exitProblems, Err: err, Hint: "see `skillsd session verify`"}
	}
	return err
}
