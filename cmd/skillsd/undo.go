package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/cmd/skillsd/sessions"
	"github.com/skillsd/skillsd/sandbox/staged"
)

// undoOptions are the flags of undo.
type undoOptions struct {
	app                      *app
	List, DryRun, Force, Yes bool

	signKey string
}

func newUndoCmd(a *app) *cobra.Command {
	opts := &undoOptions{app: a}
	cmd := &cobra.Command{
		Use:   "undo [SESSION | RUN]",
		Short: "Undo the last run that changed files of a project",
		Long: "Return the files that the last run changed or deleted in a project directory, and remove\n" +
			"the files that it made: the last run in the directory where you are, or if there was none,\n" +
			"the last run at all. With SESSION it is the last such run of a session, with RUN a run\n" +
			"that --list names. The changes are printed first, with their directory, and you are asked.\n\n" +
			"  skillsd undo\n" +
			"  skillsd undo --list\n\n" +
			"A file that was changed since the run stays, unless --force is given. The files are kept\n" +
			"with the log of the session, up to 64 MiB a run and 256 MiB a session. Each undo is logged\n" +
			"as a session of its own. In a shell that an agent opened for its model undo is refused.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.List, "list", false, "list the runs that can be undone")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be done, and do nothing")
	flags.BoolVar(&opts.Force, "force", false, "also return files that were changed since the run")
	flags.BoolVar(&opts.Yes, "yes", false, "do not ask; required without a terminal")
	flags.StringVar(&opts.signKey, "sign-key", "",
		"`FILE` with the key that signs sessions, if the server has one")
	return cmd
}

func (o *undoOptions) run(ctx context.Context, args []string) error {
	if !o.List && !o.DryRun {
		if err := o.app.byUser("`skillsd undo`"); err != nil {
			return err
		}
	}
	// Another user with write access there could make a list of changes and a record with its digest.
	if err := o.app.CheckDirs(); err != nil {
		return err
	}
	opened, _, err := o.app.records(ctx)
	if err != nil {
		return err
	}
	defer opened.Close()
	records, ok := opened.(sessions.OriginalsReader)
	if !ok {
		return exit.Errorf(exit.Failure, "", "these records keep no files, so nothing can be undone")
	}
	runs, err := sessions.Undoables(ctx, records)
	if err != nil {
		return err
	}
	if o.List {
		o.print(runs)
		return nil
	}
	run, err := o.choose(runs, append(args, "")[0])
	if err != nil {
		return err
	}
	return o.undo(ctx, records, run)
}

func (o *undoOptions) print(runs []*sessions.Undoable) {
	runs = slices.DeleteFunc(runs, func(u *sessions.Undoable) bool { return u.Problem != "" })
	if len(runs) == 0 {
		o.app.printf("no run changed files that are kept\n")
	}
	for _, run := range runs {
		state := ""
		if !run.Undone.IsZero() {
			state = ", undone " + run.Undone.Local().Format(time.DateTime)
		}
		o.app.printf("%s  %s\n  %s, %s in %s%s\n", run.When(), run.Output,
			report.Printable(run.Script()), report.Plural(len(run.List.Changes), "change"),
			report.Printable(run.List.Workspace), state)
	}
}

// choose returns the run that a name on the command line means: a run, or the last run of a session.
func (o *undoOptions) choose(runs []*sessions.Undoable, name string) (*sessions.Undoable, error) {
	if len(runs) == 0 && (len(o.app.Cfg.Keys.Cluster.Servers) > 0 || o.app.isSet("cluster")) {
		return nil, exit.Errorf(exit.Failure, "",
			"there is no run to undo: records in a cluster keep no files")
	}
	if len(runs) == 0 {
		const hint = "files are kept for workspaces whose changes are staged, as with " +
			"`skillsd setup CLIENT --write --workspace`"
		return nil, exit.Errorf(exit.Failure, hint, "there is no run to undo")
	}
	return sessions.ChooseUndoable(runs, name)
}

// undo shows what undoing a run means, asks, and does it.
func (o *undoOptions) undo(
	ctx context.Context, records sessions.OriginalsReader, run *sessions.Undoable,
) error {
	dir, err := openWorkspace(run.List.Workspace)
	if err != nil {
		return err
	}
	defer dir.Close()
	// The first pass writes nothing: what is shown is computed as what is done.
	work := &staged.Undo{Dir: dir, Changes: run.List.Changes, Force: o.Force, DryRun: true, Timeout: undoTime,
		Open: func(d string) (io.ReadCloser, error) {
			return records.Original(ctx, run.Session, digest.Digest(d))
		}}
	planned, err := work.Run(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return exit.Errorf(exit.Failure, "", "nothing can be undone on this system, which stages no changes")
	}
	if err != nil {
		return err
	}
	o.app.printf("%s in %s, run %s\n", report.Printable(run.Script()),
		report.Printable(run.List.Workspace), run.When())
	o.show(planned)
	todo := len(planned) - len(sessions.Refused(planned))
	if todo == 0 {
		return o.nothing(run, planned)
	}
	if o.DryRun {
		return left(planned)
	}
	question := "Undo " + report.Plural(todo, "change") + " in " + report.Printable(run.List.Workspace) + "?"
	if _, err := o.app.confirmed(ctx, o.Yes, question); err != nil {
		return err
	}
	record, err := o.record(ctx, run)
	if err != nil {
		return err
	}
	work.DryRun = false
	done, failed := work.Run(ctx)
	// The record also has the changes that were undone before a failure or a signal.
	err = errors.Join(failed, record.End(context.WithoutCancel(ctx), done, o.Force))
	if err != nil {
		return err
	}
	refused := sessions.Refused(done)
	for _, d := range refused {
		// The rest was shown before.
		if !slices.Contains(planned, d) {
			o.app.notef("skillsd: warning: %s stays: %s", report.Printable(d.Path), d.Refused)
		}
	}
	o.app.notef("skillsd: undid %s; skillsd session show %s",
		report.Plural(len(done)-len(refused), "change"), record.ID)
	return left(done)
}

// undoTime is the maximum time of an undo.
const undoTime = 10 * time.Minute

// openWorkspace opens the directory in which a run worked.
func openWorkspace(path string) (*os.File, error) {
	path = filepath.Clean(path)
	fail := func(err error) error {
		return exit.Errorf(exit.Failure, "files are returned to where they were",
			"the workspace of the run cannot be opened: %w", err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fail(err)
	}
	// A link that came later could lead the old files into another directory.
	if real != path {
		return nil, fail(fmt.Errorf("%s leads to %s now", path, real))
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fail(err)
	}
	return dir, nil
}

// show prints outcomes.
func (o *undoOptions) show(planned []staged.Undone) {
	for _, p := range planned {
		word, why := map[string]string{"delete": "removes"}[p.Op], ""
		switch {
		case p.Refused != "":
			word, why = "keeps", ": "+p.Refused
		case p.Changed:
			why = ", although it was changed since the run"
		}
		o.app.printf("  %s %s%s\n", report.Pad(cmp.Or(word, "returns"), 8), report.Printable(p.Path), why)
	}
}

// nothing explains why there is nothing to undo.
func (o *undoOptions) nothing(run *sessions.Undoable, planned []staged.Undone) error {
	if len(planned) > 0 {
		return left(planned)
	}
	state := "its files are as they were before it"
	if !run.Undone.IsZero() {
		state = "it was undone " + run.Undone.Local().Format(time.DateTime) + ", and " + state
	}
	o.app.notef("skillsd: nothing to undo of this run: %s; skillsd undo --list has earlier runs", state)
	return nil
}

// left returns an error if entries stay as the run left them.
func left(done []staged.Undone) error {
	refused := sessions.Refused(done)
	if len(refused) == 0 {
		return nil
	}
	hint := ""
	if slices.ContainsFunc(refused, func(d staged.Undone) bool { return d.Changed }) {
		hint = "look at them first; with --force they are replaced or removed all the same"
	}
	return exit.Errorf(exit.Problems, hint, "%s not returned", report.Plural(len(refused), "file"))
}

// record begins the record of an undo.
func (o *undoOptions) record(ctx context.Context, run *sessions.Undoable) (*sessions.UndoRecord, error) {
	var signer note.Signer
	if o.signKey != "" {
		var err error
		signer, err = serve.ReadSigner(o.signKey)
		if err != nil {
			return nil, err
		}
	}
	dir, err := o.app.ArtifactDir()
	if err != nil {
		return nil, err
	}
	return sessions.RecordUndo(ctx, dir, signer, readBuild().Version, run)
}
