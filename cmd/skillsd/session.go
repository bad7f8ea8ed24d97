package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/cmd/skillsd/sessions"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

func newSessionCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Read, verify, export and delete the logs of sessions",
		Args:  cobra.NoArgs,
		RunE:  groupE,
	}
	cmd.AddCommand(newSessionListCmd(a), newSessionShowCmd(a), newSessionVerifyCmd(a), newSessionReplayCmd(a),
		newSessionExportCmd(a), newSessionGCCmd(a))
	cmd.AddCommand(sessions.NewMoveCmds(&a.cluster, a.out, a.byUser)...)
	const usage = "read the session logs in the NATS cluster of this `URL` (repeatable)"
	for _, reads := range cmd.Commands() {
		a.cluster.Register(reads.Flags(), usage, false)
	}
	cmd.AddCommand(newSessionKeygenCmd(a))
	return cmd
}

func newSessionListCmd(a *app) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sessions, newest first",
		Args:  cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error {
			records, dir, err := a.records(ctx)
			if err != nil {
				return err
			}
			defer records.Close()
			list, err := sessions.List(ctx, records)
			if err != nil {
				return err
			}
			missing, err := records.Missing(ctx)
			if err != nil {
				a.notef("note: %s; see `skillsd session verify --all`", report.Printable(err.Error()))
			}
			for _, id := range slices.Sorted(maps.Keys(missing)) {
				list = append(list, provenance.Session{ID: id, CreatedAt: missing[id].Since,
					Head:  provenance.Head{Seq: missing[id].Events, Hash: missing[id].Hash},
					State: provenance.StateMissing})
			}
			switch {
			case asJSON:
				return report.WriteJSON(a.out, append([]provenance.Session{}, list...))
			case len(list) == 0:
				a.printf("no sessions in %s\n", report.Printable(dir))
				return nil
			}
			rows := report.SessionRows(ctx, records, list)
			local := mcpserver.LocalPrincipal().Name
			return report.WriteSessions(a.out, rows, a.knownColumns(a.out), local, time.Now())
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// logger is for a command's connection to a cluster.
func (a *app) logger() *slog.Logger { return serve.TextLogger(a.err, slog.LevelWarn, true) }

// records opens the recorded sessions for reading, and returns their location. The caller closes them.
// Besides it, only the server and collectTrees depend on the kind of store.
func (a *app) records(ctx context.Context) (provenance.Reader, string, error) {
	if a.cluster.Enabled() {
		records, err := cluster.OpenReader(ctx, &a.cluster, a.logger())
		return records, strings.Join(a.cluster.Servers, " "), err
	}
	dir, err := a.ArtifactDir()
	if err != nil {
		return nil, "", err
	}
	records, err := filestore.OpenReader(dir)
	if err != nil {
		return nil, "", exit.Errorf(exit.Failure, sessions.HintElsewhere, "%w", err)
	}
	return records, dir, nil
}

// findSession opens the recorded sessions and finds the one that a name means, as [sessions.Find] does. The
// caller closes the records.
func (a *app) findSession(ctx context.Context, name string) (provenance.Reader, string, error) {
	records, dir, err := a.records(ctx)
	if err != nil {
		return nil, "", err
	}
	id, err := sessions.Find(ctx, records, dir, name)
	if err != nil {
		records.Close()
		return nil, "", err
	}
	return records, id, nil
}

// onSession is the RunE of a command about the session in its only argument, or about the newest one.
func (a *app) onSession(
	do func(ctx context.Context, records provenance.Reader, id string) error,
) func(*cobra.Command, []string) error {
	return runE(func(ctx context.Context, args []string) error {
		records, id, err := a.findSession(ctx, append(args, "latest")[0])
		if err != nil {
			return err
		}
		defer records.Close()
		err = cluster.Failure(do(ctx, records, id))
		if errors.Is(err, provenance.ErrCorrupt) {
			return exit.Errorf(exit.Problems, "see `skillsd session verify`", "%w", err)
		}
		return err
	})
}

func newSessionKeygenCmd(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "keygen FILE",
		Short: "Make a key that signs sessions: FILE and FILE.pub",
		Long: "Make an Ed25519 key for `skillsd serve --sign-key FILE`, which then signs the last " +
			"event of every session that ends, and FILE.pub for `skillsd session verify --key " +
			"FILE.pub`. Any user who can read FILE can sign. Keep FILE.pub where no user who can write " +
			"the session logs can change it. Neither file may exist.",
		Args: cobra.ExactArgs(1),
		RunE: runE(func(_ context.Context, args []string) error {
			private, public, err := note.GenerateKey(rand.Reader, name)
			if err == nil {
				// A key with a bad name is generated without an error, and refused only where it is read.
				_, err = note.NewSigner(private)
			}
			if err != nil {
				return exit.Usagef("use letters, digits, dots and dashes", "--name %q cannot name a key",
					name)
			}
			// The public key is written first, so that a failure leaves no private key behind.
			if err := sessions.WriteKey(args[0]+".pub", public, 0o644); err != nil {
				return err
			}
			if err := sessions.WriteKey(args[0], private, 0o600); err != nil {
				return errors.Join(err, os.Remove(args[0]+".pub"))
			}
			a.printf("%s\n", public)
			return nil
		}),
	}
	cmd.Flags().StringVar(&name, "name", "skillsd",
		"`NAME` of the key in its signatures, without spaces and +")
	return cmd
}

func newSessionGCCmd(a *app) *cobra.Command {
	var olderThan, signKey string
	var total config.Size
	var opts provenance.CollectOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Delete old sessions",
		Long: "Delete the sessions last written longer ago than --older-than, and those whose clients " +
			"called longest ago while all take more than --total, but never one that a server has " +
			"open, nor the --keep whose clients called last. A session is deleted as a whole: log, " +
			"outputs and the texts that only it was shown. While no server runs, stored copies of " +
			"skills that no session and no installation needs are deleted too. A server does the same " +
			"by itself with `--records age=90d,total=20GiB`, and first ends sessions of its own that " +
			"are not in use. Parents and children do not depend on each other; a child whose parent is " +
			"deleted still names it.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error {
			if !opts.DryRun {
				if err := a.byUser("`skillsd session gc`"); err != nil {
					return err
				}
			}
			opts.Total = int64(total)
			if signKey != "" {
				signer, err := serve.ReadSigner(signKey)
				if err != nil {
					return err
				}
				opts.Signer = signer
			}
			return a.sessionGC(ctx, olderThan, opts)
		}),
	}
	cmd.Flags().StringVar(&olderThan, "older-than", "", "`AGE`, such as 30d or 12h; required without --total")
	cmd.Flags().Var(&total, "total", "`SIZE` of all that is left, such as 20GiB; required without "+
		"--older-than")
	cmd.Flags().StringVar(&signKey, "sign-key", "",
		"`FILE` with the key that signs sessions, to say in their "+
			"register that signed ones are deleted; they are kept without it")
	cmd.Flags().IntVar(&opts.Keep, "keep", 0, "keep this many of the sessions called last, however old")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "print what would be deleted and delete nothing")
	return cmd
}

func (a *app) sessionGC(ctx context.Context, olderThan string, opts provenance.CollectOptions) error {
	if olderThan != "" || opts.Total == 0 {
		age, err := config.ParseAge(olderThan)
		if err != nil {
			return exit.Usagef("give an age such as 30d or 12h", "--older-than %q is not an age", olderThan)
		}
		opts.Before = time.Now().Add(-age)
	}
	if opts.Keep < 0 {
		return exit.Usagef("give 0 or more", "--keep %d is negative", opts.Keep)
	}
	records, _, err := a.records(ctx)
	if err != nil {
		return err
	}
	defer records.Close()
	list, err := records.Collect(ctx, opts)
	err = errors.Join(err, a.printCollected(list, opts.DryRun))
	state, errState := a.StateDir()
	if err != nil || opts.DryRun || errState != nil || !fsys.Exists(state) {
		return err
	}
	// The sessions are deleted; if trees that only they named stay, that only costs space.
	if installed, err := a.installation(ctx, nil); err == nil {
		if n := a.collectTrees(ctx, installed.Installer); n > 0 {
			a.notef("skillsd: note: removed %s that nothing needs any more from the store",
				report.Plural(n, "tree"))
		}
		_ = installed.Close()
	}
	return nil
}

// printCollected prints which sessions were deleted, or would be. It returns an error for those that were
// not, unless a server has them open.
func (a *app) printCollected(list []provenance.Collected, dry bool) (err error) {
	did := "deleted"
	if dry {
		did = "would delete"
	}
	bytes, count, registered := int64(0), 0, 0
	for _, c := range list {
		switch {
		case errors.Is(c.Err, provenance.ErrHeld):
			a.printf("kept %s: %v\n", c.ID, c.Err)
		// Each such session has the same cause, so one error names their number.
		case errors.Is(c.Err, provenance.ErrRegistered):
			registered++
		case c.Err != nil:
			err = errors.Join(err, fmt.Errorf("session %s: %w", c.ID, c.Err))
		default:
			count++
			bytes += c.Bytes
			at := c.Written.Local().Format(time.DateTime)
			a.printf("%s %s: %d bytes, last written %s\n", did, c.ID, c.Bytes, at)
		}
	}
	a.printf("%s %s, %d bytes\n", did, report.Plural(count, "session"), bytes)
	if registered > 0 {
		err = errors.Join(err, exit.Errorf(exit.Failure, "give --sign-key FILE, the key of the server",
			"kept %s: %w", report.Plural(registered, "session"), provenance.ErrRegistered))
	}
	return err
}

func newSessionExportCmd(a *app) *cobra.Command {
	var format, to string
	cmd := &cobra.Command{
		Use:   "export [SESSION]",
		Short: "Print a session for other tools",
		Long: "Print a session as one JSON document (json: events, views, snapshots, outputs and what was " +
			"shown), or for each run one unsigned in-toto Statement a line (intoto), with the run's " +
			"outputs as the subject, and the content of the skill, script, arguments, sandbox, policy " +
			"decision and place in the log as the predicate of type " + sessions.ExecutionType +
			". With evals it is written into the new directory --to, as a run that the skill-creator of " +
			"Anthropic grades, shows and counts; see `skillsd help session`. A log is not verified " +
			"beyond its chain; see `skillsd session verify`. Without SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case format != "json" && format != "intoto" && format != "evals":
				return exit.Usagef("use json, intoto or evals", "--format %q is unknown", format)
			case (format == "evals") != (to != ""):
				return exit.Usagef("give both or neither, as --format evals --to eval-0/with_skill/run-1",
					"--to is the directory that --format evals writes")
			}
			return a.onSession(func(ctx context.Context, records provenance.Reader, id string) error {
				if format == "evals" {
					state, _ := a.StateDir() // without one, stored trees cannot be found
					return sessions.WriteEval(ctx, records, id, state, to, a.agentShell() != "")
				}
				if err := a.exportsWithheld(ctx, records, id); err != nil {
					return err
				}
				out := bufio.NewWriter(a.out)
				if format == "json" {
					return errors.Join(report.WriteExport(ctx, out, records, id), out.Flush())
				}
				written, err := sessions.WriteStatements(ctx, out, records, id)
				if err == nil && written == 0 {
					a.notef("skillsd: note: session %s ran no script, so there is no statement", id)
				}
				return errors.Join(err, out.Flush())
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&format, "format", "json", "`FORMAT`: json, intoto or evals")
	cmd.Flags().StringVar(&to, "to", "", "`DIR` to make, with the files of --format evals")
	return cmd
}

// exportsWithheld refuses, in an agent's shell, to export a session with output withheld from the model.
func (a *app) exportsWithheld(ctx context.Context, records provenance.Reader, id string) error {
	variable := a.agentShell()
	if variable == "" {
		return nil
	}
	withholds, err := report.Withholds(ctx, records, id)
	if err != nil || !withholds {
		return err
	}
	return exit.Errorf(exit.Failure, "ask the user to export it in a terminal of their own",
		"session %s has output that was withheld from the model, so it is not exported in an agent's shell, "+
			"as %s shows this to be", id, variable)
}

func newSessionShowCmd(a *app) *cobra.Command {
	opts := &sessions.Show{To: a.out}
	cmd := &cobra.Command{
		Use:   "show [SESSION]",
		Short: "Show what a session was shown, ran and was refused",
		Long: "Show what a session was shown, ran and was refused, an event a line. Without SESSION it " +
			"is the newest; the beginning of an id is enough. Its parent and its children come first. " +
			"With --follow, events are shown as they happen, until the session ends or on Ctrl-C.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.onSession(func(ctx context.Context, records provenance.Reader, id string) error {
			opts.Columns, opts.Agent = a.knownColumns(a.out), a.agentShell()
			return opts.Run(ctx, records, id)
		}),
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

func newSessionReplayCmd(a *app) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "replay [SESSION]",
		Short: "Print in order what the model was shown",
		Long: "Print in order what the model was shown: instructions, files and parts of files, " +
			"released output of scripts and refusals. Each text is found by its digest in the session " +
			"log and printed behind \"| \"; if it is missing, the reason is printed instead and the " +
			"exit code is 3. Without SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: a.onSession(func(ctx context.Context, records provenance.Reader, id string) error {
			state, _ := a.StateDir() // without one, stored trees cannot be found
			return sessions.Replay(ctx, a.out, records, id, state, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line, with the exact bytes")
	return cmd
}

// sessionVerifyOptions are the flags of session verify.
type sessionVerifyOptions struct {
	sessions.Verify
	app  *app
	Keys []string
}

func newSessionVerifyCmd(a *app) *cobra.Command {
	opts := &sessionVerifyOptions{app: a, Verify: sessions.Verify{To: a.out, Notes: a.err}}
	cmd := &cobra.Command{
		Use:   "verify [SESSION]",
		Short: "Check that the log of a session was not changed",
		Long: "Recompute a session's hash chain from its bytes and compare every view, every kept output " +
			"and every text that was shown with it. The first difference is printed as FILE:LINE: WHAT " +
			"and the exit code is 3. With --key, the key must also have signed the last event. Without " +
			"SESSION it is the newest.\n\n" +
			"A server with a key also signs a register of the sessions, ~register. A session that is " +
			"shorter than the register says, or not the same, is a difference, and with --all one that " +
			"is missing. --all prints the head of the register; kept elsewhere, it shows as --head that " +
			"the register itself was not put back.",
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

// run verifies the sessions in the arguments.
func (o *sessionVerifyOptions) run(cmd *cobra.Command, args []string) error {
	keys, err := sessions.ReadKeys(o.Keys)
	switch {
	case err != nil:
		return err
	case !o.All:
		return o.app.onSession(func(ctx context.Context, records provenance.Reader, id string) error {
			return o.Run(ctx, records, []string{id}, keys)
		})(cmd, args)
	case len(args) > 0:
		return exit.Usagef("leave one of them out", "--all and a session cannot be combined")
	}
	records, _, err := o.app.records(cmd.Context())
	if err != nil {
		return err
	}
	defer records.Close()
	list, err := sessions.List(cmd.Context(), records)
	if err != nil {
		return err
	}
	ids := []string{provenance.RegisterFile}
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	// The error is returned again below.
	missing, _ := records.Missing(cmd.Context(), keys...)
	ids = append(ids, slices.Sorted(maps.Keys(missing))...)
	return cluster.Failure(o.Run(cmd.Context(), records, ids, keys))
}
