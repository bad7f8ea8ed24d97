package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
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
	sessions, err := sessionsIn(dir)
	if err != nil {
		return err
	}
	if o.JSON {
		return report.WriteJSON(o.app.out, append([]provenance.Session{}, sessions...))
	}
	if len(sessions) == 0 {
		_, err := fmt.Fprintf(o.app.out, "no sessions in %s\n", report.Printable(dir))
		return err
	}
	return o.table(sessionRows(dir, sessions))
}

// sessionsIn are the sessions below a directory, none when it is not there.
func sessionsIn(dir string) ([]provenance.Session, error) {
	sessions, err := filestore.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{Code: exitFailure, Err: err, Hint: "--artifact-root or --state names another place"}
	}
	return sessions, nil
}

// findSession returns where a session's record lies. "latest" and an unambiguous beginning of an
// id name one too.
func (a *app) findSession(name string) (dir, id string, err error) {
	if dir, err = a.artifactDir(); err != nil {
		return "", "", err
	}
	sessions, err := sessionsIn(dir)
	if err != nil {
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

// sessionArg is the session that a command is about: the one given, else the newest.
func sessionArg(args []string) string {
	if len(args) == 0 {
		return "latest"
	}
	return args[0]
}

// brokenRecord makes a record that cannot be read a finding.
func brokenRecord(err error) error {
	if errors.Is(err, provenance.ErrCorrupt) {
		return &exitError{Code: exitProblems, Err: err, Hint: "see `skillsd session verify`"}
	}
	return err
}
