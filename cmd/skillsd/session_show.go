package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// sessionShowOptions are the flags of session show.
type sessionShowOptions struct {
	app    *app
	Output string
	Since  string
	Follow bool
	JSON   bool
}

func newSessionShowCmd(a *app) *cobra.Command {
	opts := &sessionShowOptions{app: a}
	cmd := &cobra.Command{
		Use:   "show [SESSION]",
		Short: "Show what a session was shown, ran and was refused",
		Long: "Show what a session was shown, ran and was refused, an event a line. Without SESSION it is " +
			"the newest; the beginning of an id is enough. Its parent and its children come first. With " +
			"--follow, events are shown as they are recorded, until the session ends or on Ctrl-C.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.onSession(opts.show),
	}
	cmd.Flags().StringVar(&opts.Output, "output", "",
		"print a kept stream by its output or handle `ID`, [RUN:]TOOL:N[:stdout|:stderr];"+
			" control characters are left out on a terminal only")
	cmd.Flags().StringVar(&opts.Since, "since", "",
		"show the events from `WHEN` on: the number of an event, an "+
			"age such as 10m or 2d, or a time such as 15:04, 2006-01-02 or 2006-01-02T15:04:05Z")
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false,
		"show new events as they come, until the session ends")
	cmd.MarkFlagsMutuallyExclusive("output", "since")
	cmd.MarkFlagsMutuallyExclusive("output", "follow")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print the events as JSON, one a line; the first also "+
		"has the children of the session")
	return cmd
}

func (o *sessionShowOptions) show(ctx context.Context, records provenance.Reader, id string) error {
	if o.Output != "" {
		return o.printOutput(ctx, records, id)
	}
	query, from, err := o.since(time.Now())
	if err != nil {
		return err
	}
	query.Session = id
	out, events := o.app.out, records.Events(ctx, query)
	if o.Follow {
		events = records.Follow(ctx, query)
	}
	events = report.EventsFrom(events, from)
	children, err := report.Children(ctx, records, id)
	if err != nil {
		return err
	}
	if !o.JSON {
		return report.WriteTimeline(out, id, events, children, o.app.knownColumns(out))
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		line, err := provenance.EncodeLine(e)
		if err == nil && len(children) > 0 {
			line, err = withChildren(line, children)
			children = nil
		}
		if err != nil {
			return err
		}
		o.app.printf("%s", report.QuietJSON(line))
	}
	return nil
}

// since returns what --since selects: events from a number on, or from a time on.
func (o *sessionShowOptions) since(now time.Time) (q provenance.Query, from time.Time, err error) {
	if o.Since == "" {
		return q, from, nil
	}
	if q.From, err = strconv.ParseUint(o.Since, 10, 64); err == nil {
		return q, from, nil
	}
	if age, err := config.ParseAge(o.Since); err == nil {
		return q, now.Add(-age), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime,
		"2006-01-02 15:04", time.DateOnly} {
		if from, err = time.ParseInLocation(layout, o.Since, time.Local); err == nil {
			return q, from, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if at, err := time.Parse(layout, o.Since); err == nil {
			return q, time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(),
				at.Nanosecond(), time.Local), nil
		}
	}
	return q, from, exit.Usagef("give the number of an event, an age such as 10m, or a time such "+
		"as 15:04 or "+
		"2006-01-02T15:04:05Z", "--since %q is neither a number, an age nor a time", o.Since)
}

// withChildren returns the line of an event with the ids of children as its last member.
func withChildren(line []byte, children []string) ([]byte, error) {
	ids, err := provenance.Encode(children)
	return fmt.Appendf(bytes.TrimSuffix(line, []byte("}\n")), ",\"children\":%s}\n", ids), err
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
			return exit.Usagef("use an output id from `skillsd session show "+id+"`",
				"%q is not an output id", o.Output)
		case errors.Is(err, provenance.ErrNotFound):
			continue
		case err != nil:
			return err
		}
		found = true
		if variable := o.app.agentShell(); variable != "" {
			withheld, err := report.Withheld(ctx, records, id, output, stream)
			if err == nil && withheld {
				err = exit.Errorf(exit.Failure, "ask the user to read it in a terminal of their own",
					"%s was withheld from the model, so it is not printed in an agent's shell, as %s "+
						"says this is",
					stream, variable)
			}
			if err != nil {
				return errors.Join(err, file.Close())
			}
		}
		err = report.CopyOutput(o.app.out, file, report.IsTerminal(o.app.out))
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	if !found {
		return exit.Errorf(exit.Failure, "`skillsd session show "+id+"` names its outputs",
			"session %s keeps no output %q", id, o.Output)
	}
	return nil
}

func newSessionReplayCmd(a *app) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "replay [SESSION]",
		Short: "Print in order what the model was shown",
		Long: "Print in order what the model was shown: instructions, files and parts of files, released " +
			"output of scripts and refusals. Every text is found by the digest that the record has of it " +
			"and printed behind \"| \"; if it can no longer be found, the reason is printed instead and " +
			"the exit code is 3. Without SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.onSession(func(ctx context.Context, records provenance.Reader, id string) error {
			return a.replay(ctx, records, id, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line, with the exact bytes")
	return cmd
}

func (a *app) replay(ctx context.Context, records provenance.Reader, id string, asJSON bool) error {
	var stored *store.Store
	// Opening a store creates it, which reading a session must not.
	if state, err := a.StateDir(); err == nil && existing(filepath.Join(state, "trees")) {
		if stored, err = store.Open(state); err == nil {
			defer stored.Close()
		}
	}
	tree := func(ctx context.Context, d digest.Digest) (report.TreeFile, error) {
		if stored == nil {
			return nil, provenance.ErrNotFound
		}
		tree, err := stored.Tree(ctx, d)
		if err != nil {
			return nil, err
		}
		return tree.ReadFile, nil
	}
	out := bufio.NewWriter(a.out)
	missing := 0
	for shown, err := range report.Replay(ctx, records, id, tree) {
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		if shown.Missing != "" {
			missing++
		}
		write := shown.WriteText
		if asJSON {
			write = shown.WriteJSON
		}
		if err := write(out); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil || missing == 0 {
		return err
	}
	return exit.Errorf(exit.Problems, "`skillsd session verify` says what differs from the record",
		"%d of the texts shown can no longer be found by their digest", missing)
}

// sessionVerdict is what session verify --json prints.
type sessionVerdict struct {
	ID       string         `json:"id"`
	OK       bool           `json:"ok"`
	Problem  *recordProblem `json:"problem,omitempty"` // the first difference
	Events   int            `json:"events"`            // 0 with a problem, as are the counts below
	Files    int            `json:"files"`
	SignedBy string         `json:"signedBy,omitempty"` // the name of the key given that signed it
	Notes    []string       `json:"notes"`              // what is worth knowing without being a difference

	// RegisterHead identifies the register of sessions up to its last line, as --head takes it; empty if it
	// has no lines.
	RegisterHead string `json:"registerHead,omitempty"`
}

// recordProblem is where a record differs from what it says of itself.
type recordProblem struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

// sessionVerifyOptions are the flags of session verify.
type sessionVerifyOptions struct {
	app  *app
	Keys []string
	Head string
	All  bool
	JSON bool
}

func newSessionVerifyCmd(a *app) *cobra.Command {
	opts := &sessionVerifyOptions{app: a}
	cmd := &cobra.Command{
		Use:   "verify [SESSION]",
		Short: "Recompute a session's hash chain and compare every file with it",
		Long: "Recompute a session's hash chain from its bytes and compare every view, every kept output " +
			"and every text that was shown with it. The first difference is printed as FILE:LINE: WHAT " +
			"and the exit code is 3. With --key, the key must also have signed the last event. Without " +
			"SESSION it is the newest.\n\n" +
			"A server with a key also signs a register of the sessions, ~register. A session that " +
			"is shorter than the register says, or not the same, is a difference, and with --all " +
			"one that is missing. " +
			"--all prints the head of the register; kept elsewhere, it shows as --head that the " +
			"register itself was not put back.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runE(func(context.Context, []string) error { return opts.run(cmd, args) })(cmd, args)
		},
	}
	cmd.Flags().StringArrayVar(&opts.Keys, "key", nil,
		"`FILE` with the public key that must have signed the session, as skillsd session keygen makes it; "+
			"once for each key that the server had")
	cmd.Flags().BoolVar(&opts.All, "all", false, "verify every session, and that none is missing")
	cmd.Flags().StringVar(&opts.Head, "head", "",
		"`HEAD` that the register of sessions had, N:HASH, as --all printed it")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON; with --all a list")
	return cmd
}

// run verifies the sessions that the arguments name.
func (o *sessionVerifyOptions) run(cmd *cobra.Command, args []string) error {
	keys, err := o.readKeys()
	switch {
	case err != nil:
		return err
	case !o.All:
		return o.app.onSession(func(ctx context.Context, records provenance.Reader, id string) error {
			return o.verify(ctx, records, []string{id}, keys)
		})(cmd, args)
	case len(args) > 0:
		return exit.Usagef("leave one of them out", "--all and a session cannot be combined")
	}
	records, _, err := o.app.records()
	if err != nil {
		return err
	}
	defer records.Close()
	sessions, err := listSessions(cmd.Context(), records)
	if err != nil {
		return err
	}
	ids := []string{provenance.RegisterFile}
	for _, s := range sessions {
		ids = append(ids, s.ID)
	}
	// An error is returned again below.
	missing, _ := records.Missing(cmd.Context(), keys...)
	return o.verify(cmd.Context(), records, append(ids, slices.Sorted(maps.Keys(missing))...), keys)
}

func (o *sessionVerifyOptions) readKeys() (keys []note.Verifier, err error) {
	for _, name := range o.Keys {
		text, err := fsys.ReadFile(name, serve.MaxKeyFile, nil)
		if err != nil {
			return nil, err
		}
		key, err := note.NewVerifier(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, exit.Usagef("give the .pub file that `skillsd session keygen` wrote",
				"%s does not contain a public key", name)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// verify prints a verdict about each session, and about the register.
func (o *sessionVerifyOptions) verify(
	ctx context.Context, records provenance.Reader, ids []string, keys []note.Verifier,
) error {
	register, err := records.Register(ctx, keys...)
	if err == nil && o.Head != "" {
		if err = register.CheckHead(o.Head); errors.Is(err, provenance.ErrInvalid) {
			return exit.Usagef("give N:HASH, as `skillsd session verify --all` printed it", "--head: %w", err)
		}
	}
	wrong, _ := errors.AsType[*provenance.VerifyError](err)
	switch {
	case err != nil && wrong == nil:
		return err
	case register == nil:
		register = &provenance.Register{}
	}
	var found error
	verdicts := make([]sessionVerdict, len(ids))
	for i, id := range ids {
		v := &verdicts[i]
		*v = sessionVerdict{ID: id, Notes: []string{}, RegisterHead: register.Head()}
		line, err := v.verify(ctx, records, register, keys)
		problem, _ := errors.AsType[*provenance.VerifyError](err)
		if err != nil && problem == nil {
			return err
		}
		if problem == nil && (id == provenance.RegisterFile || !o.All) {
			problem = wrong
		}
		if v.OK = problem == nil; !v.OK {
			*v = sessionVerdict{ID: id, Notes: []string{}, RegisterHead: v.RegisterHead,
				Problem: &recordProblem{problem.File, problem.Line, problem.What}}
			line = problem.Error()
			if found = (&exit.Error{Code: exit.Problems}); o.All {
				line = id + ": " + line
			}
		}
		if o.JSON {
			continue
		}
		o.app.printf("%s\n", report.Printable(line))
		for _, text := range v.Notes {
			o.app.notef("note: %s", report.Printable(text))
		}
	}
	switch {
	case o.JSON && o.All:
		err = report.WriteJSON(o.app.out, verdicts)
	case o.JSON:
		err = report.WriteJSON(o.app.out, verdicts[0])
	}
	return errors.Join(err, found)
}

// verify verifies one session, or the register, and returns a line that says what was verified.
//
// Errors: *provenance.VerifyError, or the error of reading.
func (v *sessionVerdict) verify(
	ctx context.Context, records provenance.Reader, register *provenance.Register, keys []note.Verifier,
) (line string, err error) {
	if v.ID == provenance.RegisterFile {
		if register.Lines == 0 {
			return "ok " + v.ID + ": no sessions are signed here", nil
		}
		return fmt.Sprintf("ok %s: %d lines, head %s", v.ID, register.Lines, v.RegisterHead), nil
	}
	found, err := records.Verify(ctx, v.ID, keys...)
	if is := register.Sessions[v.ID]; errors.Is(err, provenance.ErrNotFound) && is != nil {
		return "", &provenance.VerifyError{File: provenance.RegisterFile, Line: is.Line,
			What: fmt.Sprintf("session %s is missing: it had %d events, and session gc did not delete it",
				v.ID, is.Events)}
	}
	if err != nil {
		return "", err
	}
	v.Events, v.Files, v.SignedBy, v.Notes = found.Events, found.Files, found.SignedBy,
		report.VerifyNotes(found)
	line = fmt.Sprintf("ok %s: %d events, %d files", v.ID, found.Events, found.Files)
	if found.SignedBy != "" {
		line += ", signed by " + found.SignedBy
	}
	return line, nil
}
