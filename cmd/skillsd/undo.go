package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
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

// undoable is a run that changed files of a workspace.
type undoable struct {
	session string
	output  string    // id of the run
	at      time.Time // when the run was called
	digest  digest.Digest
	list    session.ChangeList // with this digest
	problem string             // why the run cannot be undone; then there is no list
	undone  time.Time          // zero if it was not undone

	complete bool // every change of it was undone
}

func (u *undoable) script() string { return u.list.Skill + ":" + u.list.Path }

// isHere reports whether the run changed files of the working directory, or of a directory above it.
func (u *undoable) isHere() bool { return u.problem == "" && config.Inside(".", u.list.Workspace) }

// changedNothing reports whether a run left all entries in the state in which they were: a script that runs
// twice often writes the same files again.
func (u *undoable) changedNothing() bool {
	return !slices.ContainsFunc(u.list.Changes, func(c sandbox.Change) bool {
		return c.After == nil || !c.Before.Same(*c.After)
	})
}

func (u *undoable) when() string { return u.at.Local().Format(time.DateTime) }

// originalsReader is a provenance.Reader that also has the originals.
type originalsReader interface {
	provenance.Reader
	provenance.OriginalsReader
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
	records, ok := opened.(originalsReader)
	if !ok {
		return exit.Errorf(exit.Failure, "", "these records keep no files, so nothing can be undone")
	}
	runs, err := undoables(ctx, records)
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

// undoables returns the runs that changed files, the last one first.
func undoables(ctx context.Context, records originalsReader) (runs []*undoable, err error) {
	sessions, err := listSessions(ctx, records)
	if err != nil {
		return nil, err
	}
	undone, complete := map[digest.Digest]time.Time{}, map[digest.Digest]bool{}
	for _, s := range sessions {
		// A record that was changed may name files that no run changed.
		if s.State == provenance.StateDamaged {
			continue
		}
		lists, err := records.Changes(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		runs = append(runs, changedBy(ctx, records, s.ID, lists)...)
		// Only undo itself writes such events, so that other sessions need not be read.
		if !strings.HasPrefix(s.Client, undoClient) {
			continue
		}
		query := provenance.Query{Session: s.ID, Kinds: []provenance.Kind{provenance.KindWorkspaceUndone}}
		for e, err := range records.Events(ctx, query) {
			var row cfharness.Undone
			if err == nil && json.Unmarshal(e.Row, &row) == nil && undone[row.Changes].Before(e.Time) {
				undone[row.Changes] = e.Time
				complete[row.Changes] = len(row.Refused()) == 0 && row.Unlisted == 0
			}
		}
	}
	for _, run := range runs {
		run.undone, run.complete = undone[run.digest], complete[run.digest]
	}
	slices.SortFunc(runs, func(a, b *undoable) int {
		return cmp.Or(b.at.Compare(a.at), strings.Compare(b.output, a.output))
	})
	return runs, nil
}

// changedBy returns the runs of a session that changed files. A list without a run whose event has its digest
// was not made by the server, and is not used.
func changedBy(
	ctx context.Context, records originalsReader, id string, lists map[digest.Digest][]byte,
) (runs []*undoable) {
	query := provenance.Query{Session: id, Kinds: []provenance.Kind{provenance.KindScriptExecuted}}
	for e, err := range records.Events(ctx, query) {
		if err != nil {
			return nil // nothing is undone by a record that was changed
		}
		var row cfharness.ScriptExecution
		if json.Unmarshal(e.Row, &row) != nil || row.Skillsd == nil || row.Skillsd.Kept == nil {
			continue
		}
		kept := row.Skillsd.Kept
		run := &undoable{session: id, output: row.OutputID, at: row.ExecutedAt.Time,
			digest: kept.Changes, problem: kept.Problem}
		runs = append(runs, run)
		if run.problem != "" {
			continue
		}
		err = json.Unmarshal(lists[run.digest], &run.list)
		if err != nil || run.list.Type != session.TypeChanges || run.list.OutputID != run.output {
			run.problem = "the list of the files that it changed is no longer kept"
		}
	}
	return slices.DeleteFunc(runs, func(u *undoable) bool { return u.problem == "" && u.changedNothing() })
}

func (o *undoOptions) print(runs []*undoable) {
	runs = slices.DeleteFunc(runs, func(u *undoable) bool { return u.problem != "" })
	if len(runs) == 0 {
		o.app.printf("no run changed files that are kept\n")
	}
	for _, run := range runs {
		state := ""
		if !run.undone.IsZero() {
			state = ", undone " + run.undone.Local().Format(time.DateTime)
		}
		o.app.printf("%s  %s\n  %s, %s in %s%s\n", run.when(), run.output,
			report.Printable(run.script()), report.Plural(len(run.list.Changes), "change"),
			report.Printable(run.list.Workspace), state)
	}
}

// choose returns the run that a name on the command line means: a run, or the last run of a session.
func (o *undoOptions) choose(runs []*undoable, name string) (*undoable, error) {
	if len(runs) == 0 && (len(o.app.Cfg.Keys.Cluster.Servers) > 0 || o.app.isSet("cluster")) {
		return nil, exit.Errorf(exit.Failure, "",
			"there is no run to undo: records in a cluster keep no files")
	}
	if len(runs) == 0 {
		const hint = "files are kept for workspaces whose changes are staged, as with " +
			"`skillsd setup CLIENT --write --workspace`"
		return nil, exit.Errorf(exit.Failure, hint, "there is no run to undo")
	}
	if name == "" || name == "latest" {
		return latest(runs)
	}
	sessions := map[string]*undoable{}
	for _, run := range runs {
		switch {
		case run.output == name && run.problem != "":
			return nil, exit.Errorf(exit.Problems, "", "this run cannot be undone: %s", run.problem)
		case run.output == name:
			return run, nil
		case run.problem == "" && strings.HasPrefix(run.session, name) && sessions[run.session] == nil:
			sessions[run.session] = run
		}
	}
	if len(sessions) > 1 {
		return nil, exit.Errorf(exit.Failure, "give more of the id; see `skillsd undo --list`",
			"%d sessions begin with %q", len(sessions), name)
	}
	for _, run := range sessions {
		return run, nil
	}
	return nil, exit.Errorf(exit.Failure, "see `skillsd undo --list`", "no run to undo is %q", name)
}

// latest returns the last run that was not undone completely, or the last one of all. Where runs changed
// files of the working directory, only those are meant.
func latest(runs []*undoable) (*undoable, error) {
	here := slices.DeleteFunc(slices.Clone(runs), func(u *undoable) bool { return !u.isHere() })
	if len(here) > 0 {
		runs = here
	}
	next := runs[max(slices.IndexFunc(runs, func(u *undoable) bool { return !u.complete }), 0)]
	if next.problem != "" {
		return nil, exit.Errorf(exit.Problems, "", "the last run cannot be undone: %s; "+
			"`skillsd undo --list` names the others", next.problem)
	}
	return next, nil
}

// undo shows what undoing a run means, asks, and does it.
func (o *undoOptions) undo(ctx context.Context, records originalsReader, run *undoable) error {
	dir, err := openWorkspace(run.list.Workspace)
	if err != nil {
		return err
	}
	defer dir.Close()
	// The first pass writes nothing: what is shown is computed as what is done.
	work := &staged.Undo{Dir: dir, Changes: run.list.Changes, Force: o.Force, DryRun: true, Timeout: undoTime,
		Open: func(d string) (io.ReadCloser, error) {
			return records.Original(ctx, run.session, digest.Digest(d))
		}}
	planned, err := work.Run(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return exit.Errorf(exit.Failure, "", "nothing can be undone on this system, which stages no changes")
	}
	if err != nil {
		return err
	}
	o.app.printf("%s in %s, run %s\n", report.Printable(run.script()),
		report.Printable(run.list.Workspace), run.when())
	todo := o.show(planned)
	if todo == 0 {
		return o.nothing(run, planned)
	}
	if o.DryRun {
		return left(planned)
	}
	question := "Undo " + report.Plural(todo, "change") + " in " + report.Printable(run.list.Workspace) + "?"
	if _, err := o.app.confirmed(ctx, o.Yes, question); err != nil {
		return err
	}
	record, err := o.begin(ctx, run)
	if err != nil {
		return err
	}
	work.DryRun = false
	done, failed := work.Run(ctx)
	// The record also has the changes that were undone before a failure or a signal.
	err = errors.Join(failed, record.end(context.WithoutCancel(ctx), run, done, o.Force))
	if err != nil {
		return err
	}
	count := 0
	for _, d := range done {
		if d.Refused == "" {
			count++
		}
		// The rest was shown before.
		if d.Refused != "" && !slices.Contains(planned, d) {
			o.app.notef("skillsd: warning: %s stays: %s", report.Printable(d.Path), d.Refused)
		}
	}
	o.app.notef("skillsd: undid %s; skillsd session show %s", report.Plural(count, "change"), record.id)
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

// show prints outcomes, and returns how many changes would be undone.
func (o *undoOptions) show(planned []staged.Undone) (todo int) {
	for _, p := range planned {
		word, why := map[string]string{"delete": "removes"}[p.Op], ""
		switch {
		case p.Refused != "":
			word, why = "keeps", ": "+p.Refused
		case p.Changed:
			why = ", although it was changed since the run"
		}
		if p.Refused == "" {
			todo++
		}
		o.app.printf("  %s %s%s\n", report.Pad(cmp.Or(word, "returns"), 8), report.Printable(p.Path), why)
	}
	return todo
}

// nothing explains why there is nothing to undo.
func (o *undoOptions) nothing(run *undoable, planned []staged.Undone) error {
	if len(planned) > 0 {
		return left(planned)
	}
	state := "its files are as they were before it"
	if !run.undone.IsZero() {
		state = "it was undone " + run.undone.Local().Format(time.DateTime) + ", and " + state
	}
	o.app.notef("skillsd: nothing to undo of this run: %s; skillsd undo --list has earlier runs", state)
	return nil
}

// left returns an error if entries stay as the run left them.
func left(done []staged.Undone) error {
	count, changed := 0, false
	for _, d := range done {
		if d.Refused != "" {
			count++
			changed = changed || d.Changed
		}
	}
	if count == 0 {
		return nil
	}
	hint := ""
	if changed {
		hint = "look at them first; with --force they are replaced or removed all the same"
	}
	return exit.Errorf(exit.Problems, hint, "%s not returned", report.Plural(count, "file"))
}

// undoClient begins the name of the client in the records of undo.
const undoClient = "skillsd-undo "

// undoRecord is the session that records an undo.
type undoRecord struct {
	store  *filestore.Store
	id     string
	parent string
}

// begin starts the record of an undo. What cannot be recorded is not undone.
func (o *undoOptions) begin(ctx context.Context, run *undoable) (r *undoRecord, err error) {
	opts := &filestore.Options{}
	if o.signKey != "" {
		opts.Signer, err = serve.ReadSigner(o.signKey)
		if err != nil {
			return nil, err
		}
	}
	dir, err := o.app.ArtifactDir()
	if err != nil {
		return nil, err
	}
	r = &undoRecord{parent: run.session}
	r.id, err = provenance.NewSessionID()
	if err != nil {
		return nil, err
	}
	r.store, err = filestore.Open(dir, opts)
	if err != nil {
		return nil, exit.Directory("artifact root", "--artifact-root", err)
	}
	info := provenance.SessionInfo{Server: provenance.Server{Version: readBuild().Version}, Child: true,
		ParentSession: run.session}
	err = r.append(ctx, &provenance.Event{Kind: provenance.KindSessionStarted,
		Detail: "undo of " + run.output}, info)
	if err == nil {
		return r, nil
	}
	return nil, errors.Join(fmt.Errorf("nothing is undone, since it cannot be recorded: %w", err),
		r.store.Close())
}

// append records an event of the undo. row may be nil.
func (r *undoRecord) append(ctx context.Context, e *provenance.Event, row any) (err error) {
	e.Session, e.Parent, e.Principal = r.id, r.parent, mcpserver.LocalPrincipal().Name
	e.Client = undoClient + readBuild().Version
	if row != nil {
		e.Row, err = provenance.Encode(row)
	}
	if err != nil {
		return err
	}
	return r.store.Append(ctx, e)
}

// maxUndoneFiles is the maximum of files in the record of an undo.
const maxUndoneFiles = 500

// end records what was undone, and ends the record.
func (r *undoRecord) end(ctx context.Context, run *undoable, done []staged.Undone, forced bool) error {
	row := &cfharness.Undone{Type: cfharness.TypeUndone, Run: run.session, OutputID: run.output,
		Changes: run.digest, Forced: forced, Files: []cfharness.UndoneFile{}}
	count := 0
	for _, d := range done {
		if d.Refused == "" {
			count++
		}
		if len(row.Files) == maxUndoneFiles {
			row.Unlisted++
			continue
		}
		row.Files = append(row.Files, cfharness.UndoneFile{Path: d.Path, Op: d.Op, Refused: d.Refused})
	}
	detail := fmt.Sprintf("%s of %s undone, %d refused", report.Plural(count, "change"), run.output,
		len(done)-count)
	undone := &provenance.Event{Kind: provenance.KindWorkspaceUndone, Skill: run.list.Skill,
		Path: run.list.Path, Detail: detail}
	ended := &provenance.Event{Kind: provenance.KindSessionEnded, Detail: "ended"}
	return errors.Join(r.append(ctx, undone, row), r.append(ctx, ended, nil), r.store.Close())
}
