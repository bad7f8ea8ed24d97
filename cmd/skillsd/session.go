package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/intoto"
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
	dir, err := a.ArtifactDir()
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
	return &exit.Error{Code: exit.Failure, Err: err, Hint: "--artifact-root or --state names another place"}
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
		return nil, "", &exit.Error{Code: exit.Failure, Err: fmt.Errorf(format, args...), Hint: hint}
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
		return &exit.Error{Code: exit.Problems, Err: err, Hint: "see `skillsd session verify`"}
	}
	return err
}

// sessionKeygenOptions are the flags of session keygen.
type sessionKeygenOptions struct {
	app  *app
	Name string
}

func newSessionKeygenCmd(a *app) *cobra.Command {
	opts := &sessionKeygenOptions{app: a}
	cmd := &cobra.Command{
		Use:   "keygen FILE",
		Short: "Make a key that signs sessions: FILE and FILE.pub",
		Long: "Make an Ed25519 key for `skillsd serve --sign-key FILE`, which then signs the last event\n" +
			"of every session that ends, and FILE.pub for `skillsd session verify --key FILE.pub`.\n" +
			"Whoever can read FILE can sign. Keep FILE.pub where nobody who can write the records can\n" +
			"change it. Neither file may exist.",
		Args: cobra.ExactArgs(1),
		RunE: runE(func(_ context.Context, args []string) error { return opts.run(args[0]) }),
	}
	cmd.Flags().StringVar(&opts.Name, "name", "skillsd",
		"`NAME` of the key in its signatures, without spaces and +")
	return cmd
}

func (o *sessionKeygenOptions) run(name string) error {
	private, public, err := note.GenerateKey(rand.Reader, o.Name)
	if err == nil {
		_, err = note.NewSigner(private)
	}
	if err != nil {
		return exit.Usagef("use letters, digits, dots and dashes", "--name %q cannot name a key", o.Name)
	}
	switch _, err := os.Lstat(name + ".pub"); {
	case err == nil:
		return keyExists(name + ".pub")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := writeKey(name, private, 0o600); err != nil {
		return err
	}
	if err := writeKey(name+".pub", public, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.app.out, public)
	return err
}

// keyExists returns the error for a key that would replace a file.
func keyExists(name string) error {
	return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%s already exists", name),
		Hint: "choose another name; a key that is lost cannot be made again"}
}

// writeKey writes a file that must not exist.
func writeKey(name, key string, mode fs.FileMode) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return keyExists(name)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(key + "\n")
	return errors.Join(err, file.Sync(), file.Close())
}

// sessionGCOptions are the flags of session gc.
type sessionGCOptions struct {
	app       *app
	OlderThan string
	Keep      int
	DryRun    bool
}

func newSessionGCCmd(a *app) *cobra.Command {
	opts := &sessionGCOptions{app: a}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Delete old sessions",
		Long: "Delete the sessions last written longer ago than --older-than, but never one that a server\n" +
			"has open, nor the --keep that were written last. A session is deleted as a whole: record,\n" +
			"views, outputs and texts that only it was shown. While no server runs, stored skill trees\n" +
			"that nothing names any more are deleted too. Parents and children do not depend on each\n" +
			"other; a child whose parent is deleted still names it.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	cmd.Flags().StringVar(&opts.OlderThan, "older-than", "", "`AGE`, such as 30d or 12h; required")
	cmd.Flags().IntVar(&opts.Keep, "keep", 0, "keep this many of the sessions written last, however old")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "print what would be deleted and delete nothing")
	return cmd
}

func (o *sessionGCOptions) run(ctx context.Context) error {
	age, err := parseAge(o.OlderThan)
	if err != nil {
		return exit.Usagef("give an age such as 30d or 12h", "--older-than %q is not an age", o.OlderThan)
	}
	if o.Keep < 0 {
		return exit.Usagef("give 0 or more", "--keep %d is negative", o.Keep)
	}
	records, _, err := o.app.records()
	if err != nil {
		return err
	}
	defer records.Close()
	before := time.Now().Add(-age)
	list, err := records.Collect(ctx, provenance.CollectOptions{Before: before, Keep: o.Keep,
		DryRun: o.DryRun})
	did, kept := "deleted", 0
	if o.DryRun {
		did = "would delete"
	}
	var bytes int64
	for _, c := range list {
		switch {
		case errors.Is(c.Err, provenance.ErrHeld):
			kept++
			fmt.Fprintf(o.app.out, "kept %s: %v\n", c.ID, c.Err)
		case c.Err != nil:
			kept++
			err = errors.Join(err, fmt.Errorf("session %s: %w", c.ID, c.Err))
		default:
			bytes += c.Bytes
			at := c.Written.Local().Format(time.DateTime)
			fmt.Fprintf(o.app.out, "%s %s: %d bytes, last written %s\n", did, c.ID, c.Bytes, at)
		}
	}
	fmt.Fprintf(o.app.out, "%s %d sessions, %d bytes\n", did, len(list)-kept, bytes)
	if err == nil && !o.DryRun {
		o.collectTrees(ctx)
	}
	return err
}

// collectTrees removes the stored trees that only the deleted sessions named.
func (o *sessionGCOptions) collectTrees(ctx context.Context) {
	if state, err := o.app.StateDir(); err != nil || !existing(state) {
		return
	}
	installed, err := o.app.installation(ctx, nil)
	if err != nil {
		return // the sessions are deleted; the trees only cost space
	}
	o.app.collectTrees(ctx, installed.Installer)
	_ = installed.Close()
}

// parseAge reads a duration, or a number of days such as 30d.
func parseAge(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	age, err := time.ParseDuration(s)
	if err == nil && age < 0 {
		err = errors.New("negative")
	}
	return age, err
}

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
			"shown), or for each run one unsigned in-toto Statement a line (intoto), with the run's " +
			"outputs as\n" +
			"the subject and skill tree, script, arguments, sandbox, policy decision and place in the " +
			"record as\n" +
			"the predicate of type\n" + intoto.ExecutionType + ".\n" +
			"A record is not verified beyond its chain; see `skillsd session verify`. Without SESSION " +
			"it is the\n" +
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
		return exit.Usagef("use json or intoto", "--format %q is unknown", o.Format)
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
