package sessions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/staged"
)

// Undoable is a run that changed files of a workspace.
type Undoable struct {
	Session string             // id
	Output  string             // id of the run
	List    session.ChangeList // what it changed
	Problem string             // why the run cannot be undone; then there is no list
	Undone  time.Time          // zero if it was not undone

	at       time.Time     // when the run was called
	digest   digest.Digest // of List
	complete bool          // every change of it was undone
}

// Script returns the skill and the path of the script.
func (u *Undoable) Script() string { return u.List.Skill + ":" + u.List.Path }

// isHere reports whether the run changed files of the working directory, or of a directory above it.
func (u *Undoable) isHere() bool { return u.Problem == "" && config.Inside(".", u.List.Workspace) }

// changedNothing reports whether a run left all entries in the state in which they were: a script that runs
// twice often writes the same files again.
func (u *Undoable) changedNothing() bool {
	return !slices.ContainsFunc(u.List.Changes, func(c sandbox.Change) bool {
		return c.After == nil || !c.Before.Same(*c.After)
	})
}

// When returns the local time at which the run was called.
func (u *Undoable) When() string { return u.at.Local().Format(time.DateTime) }

// OriginalsReader is a provenance.Reader that also has the originals.
type OriginalsReader interface {
	provenance.Reader
	provenance.OriginalsReader
}

// Undoables returns the runs that changed files of workspaces, the last one first.
//
// Errors: *exit.Error; the error of reading.
func Undoables(ctx context.Context, records OriginalsReader) (runs []*Undoable, err error) {
	sessions, err := List(ctx, records)
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
		run.Undone, run.complete = undone[run.digest], complete[run.digest]
	}
	slices.SortFunc(runs, func(a, b *Undoable) int {
		return cmp.Or(b.at.Compare(a.at), strings.Compare(b.Output, a.Output))
	})
	return runs, nil
}

// changedBy returns the runs of a session that changed files. A list without a run whose event has its digest
// was not made by the server, and is not used.
func changedBy(
	ctx context.Context, records OriginalsReader, id string, lists map[digest.Digest][]byte,
) (runs []*Undoable) {
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
		run := &Undoable{Session: id, Output: row.OutputID, at: row.ExecutedAt.Time,
			digest: kept.Changes, Problem: kept.Problem}
		runs = append(runs, run)
		if run.Problem != "" {
			continue
		}
		err = json.Unmarshal(lists[run.digest], &run.List)
		if err != nil || run.List.Type != session.TypeChanges || run.List.OutputID != run.Output {
			run.Problem = "the list of the files that it changed is no longer kept"
		}
	}
	return slices.DeleteFunc(runs, func(u *Undoable) bool { return u.Problem == "" && u.changedNothing() })
}

// ChooseUndoable returns the run that a name means: an output id of a run, the beginning of the id of a
// session for its last run, or "" and latest for the last run that is not undone. runs are as of [Undoables],
// and not empty.
//
// Errors: *exit.Error if no run is meant, or several are, or if the run cannot be undone.
func ChooseUndoable(runs []*Undoable, name string) (*Undoable, error) {
	if name == "" || name == "latest" {
		return latest(runs)
	}
	sessions := map[string]*Undoable{}
	for _, run := range runs {
		switch {
		case run.Output == name && run.Problem != "":
			return nil, exit.Errorf(exit.Problems, "", "this run cannot be undone: %s", run.Problem)
		case run.Output == name:
			return run, nil
		case run.Problem == "" && strings.HasPrefix(run.Session, name) && sessions[run.Session] == nil:
			sessions[run.Session] = run
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
func latest(runs []*Undoable) (*Undoable, error) {
	here := slices.DeleteFunc(slices.Clone(runs), func(u *Undoable) bool { return !u.isHere() })
	if len(here) > 0 {
		runs = here
	}
	next := runs[max(slices.IndexFunc(runs, func(u *Undoable) bool { return !u.complete }), 0)]
	if next.Problem != "" {
		return nil, exit.Errorf(exit.Problems, "", "the last run cannot be undone: %s; "+
			"`skillsd undo --list` names the others", next.Problem)
	}
	return next, nil
}

// undoClient begins the name of the client in the records of undo.
const undoClient = "skillsd-undo "

// UndoRecord is the session that records an undo.
type UndoRecord struct {
	ID string // of the session

	store   *filestore.Store
	run     *Undoable
	version string
}

// RecordUndo begins the record of the undo of a run in a directory of sessions, which a signer, if not nil,
// signs. version is the version of this program. What cannot be recorded must not be undone.
//
// Errors: *exit.Error for the directory; the error of writing.
func RecordUndo(
	ctx context.Context, dir string, signer note.Signer, version string, run *Undoable,
) (*UndoRecord, error) {
	id, err := provenance.NewSessionID()
	if err != nil {
		return nil, err
	}
	store, err := filestore.Open(dir, &filestore.Options{Signer: signer})
	if err != nil {
		return nil, exit.Directory("artifact root", "--artifact-root", err)
	}
	r := &UndoRecord{ID: id, store: store, run: run, version: version}
	info := provenance.SessionInfo{Server: provenance.Server{Version: version}, Child: true,
		ParentSession: run.Session}
	err = r.append(ctx, &provenance.Event{Kind: provenance.KindSessionStarted,
		Detail: "undo of " + run.Output}, info)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nothing is undone, since it cannot be recorded: %w", err),
			store.Close())
	}
	return r, nil
}

// append records an event of the undo. row may be nil.
func (r *UndoRecord) append(ctx context.Context, e *provenance.Event, row any) (err error) {
	e.Session, e.Parent, e.Principal = r.ID, r.run.Session, mcpserver.LocalPrincipal().Name
	e.Client = undoClient + r.version
	if row != nil {
		e.Row, err = provenance.Encode(row)
	}
	if err != nil {
		return err
	}
	return r.store.Append(ctx, e)
}

// Refused returns the outcomes of an undo whose entries stay as the run left them.
func Refused(done []staged.Undone) []staged.Undone {
	return slices.DeleteFunc(slices.Clone(done), func(d staged.Undone) bool { return d.Refused == "" })
}

// maxUndoneFiles is the maximum of files in the record of an undo.
const maxUndoneFiles = 500

// End records what was undone, and ends the record.
//
// Errors: the error of writing.
func (r *UndoRecord) End(ctx context.Context, done []staged.Undone, forced bool) error {
	run := r.run
	row := &cfharness.Undone{Type: cfharness.TypeUndone, Run: run.Session, OutputID: run.Output,
		Changes: run.digest, Forced: forced, Files: []cfharness.UndoneFile{}}
	for _, d := range done {
		if len(row.Files) == maxUndoneFiles {
			row.Unlisted++
			continue
		}
		row.Files = append(row.Files, cfharness.UndoneFile{Path: d.Path, Op: d.Op, Refused: d.Refused})
	}
	refused := len(Refused(done))
	detail := fmt.Sprintf("%s of %s undone, %d refused", report.Plural(len(done)-refused, "change"),
		run.Output, refused)
	undone := &provenance.Event{Kind: provenance.KindWorkspaceUndone, Skill: run.List.Skill,
		Path: run.List.Path, Detail: detail}
	ended := &provenance.Event{Kind: provenance.KindSessionEnded, Detail: "ended"}
	return errors.Join(r.append(ctx, undone, row), r.append(ctx, ended, nil), r.store.Close())
}
