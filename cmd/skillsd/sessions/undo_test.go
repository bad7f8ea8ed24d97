package sessions

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/staged"
)

// originals are records in memory, for undo.
type originals struct {
	provenance.Reader
	sessions []provenance.Session
	events   map[string][]*provenance.Event
	broken   string // the session whose events end in an error
	changes  map[string]map[digest.Digest][]byte
}

func (o *originals) Sessions(context.Context, time.Time) iter.Seq2[provenance.Session, error] {
	return func(yield func(provenance.Session, error) bool) {
		for _, s := range o.sessions {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (o *originals) Events(_ context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		for _, e := range o.events[q.Session] {
			if slices.Contains(q.Kinds, e.Kind) && !yield(e, nil) {
				return
			}
		}
		if q.Session == o.broken {
			yield(nil, provenance.ErrCorrupt)
		}
	}
}

func (o *originals) Changes(_ context.Context, id string) (map[digest.Digest][]byte, error) {
	return o.changes[id], nil
}

func (o *originals) Original(context.Context, string, digest.Digest) (io.ReadCloser, error) {
	return nil, provenance.ErrNotFound
}

var morning = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// wrote is the change of a file from one content to another.
func wrote(before, after string) sandbox.Change {
	file := func(text string) sandbox.State {
		return sandbox.State{Kind: sandbox.KindFile, Mode: 0o644, Digest: digest.FromString(text).String()}
	}
	now := file(after)
	return sandbox.Change{Path: "f", Before: file(before), After: &now}
}

// ran adds a run that changed a workspace, minutes after the morning. edit changes its list after the event has the
// digest of it; may be nil.
func (o *originals) ran(t *testing.T, id, output string, minutes int, edit func(*session.ChangeList),
	changes ...sandbox.Change,
) digest.Digest {
	t.Helper()
	list := session.ChangeList{Type: session.TypeChanges, OutputID: output, Skill: "a/pdf", Path: "x.sh",
		Workspace: "/work", Changes: changes}
	if edit != nil {
		edit(&list)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	sum := digest.FromBytes(text)
	if o.changes[id] == nil {
		o.changes[id] = map[digest.Digest][]byte{}
	}
	o.changes[id][sum] = text
	o.event(t, id, provenance.KindScriptExecuted, morning, cfharness.ScriptExecution{OutputID: output,
		ExecutedAt: provenance.Stamp(morning.Add(time.Duration(minutes) * time.Minute)),
		Skillsd:    &cfharness.RunExtension{Kept: &cfharness.Kept{Changes: sum}}})
	return sum
}

func (o *originals) event(t *testing.T, id string, kind provenance.Kind, at time.Time, row any) {
	t.Helper()
	raw, err := provenance.Encode(row)
	if err != nil {
		t.Fatal(err)
	}
	o.events[id] = append(o.events[id], &provenance.Event{Session: id, Kind: kind, Time: at, Row: raw})
}

// Only a run whose event names a list of its own can be undone, of a session whose record is whole, and only if it
// changed something.
func TestUndoables(t *testing.T) {
	o := &originals{events: map[string][]*provenance.Event{}, changes: map[string]map[digest.Digest][]byte{},
		broken: "broken"}
	for _, id := range []string{"a", "b", "broken", "damaged", "undo", "other"} {
		s := provenance.Session{ID: id}
		switch id {
		case "damaged":
			s.State = provenance.StateDamaged
		case "undo":
			s.Client = undoClient + "v1"
		}
		o.sessions = append(o.sessions, s)
	}
	change := wrote("old", "new")
	partly := o.ran(t, "a", "a:1", 1, nil, change)
	wholly := o.ran(t, "b", "b:1", 2, nil, change)
	again := o.ran(t, "a", "a:2", 3, nil, change)
	o.ran(t, "b", "b:same", 4, nil, wrote("x", "x"))
	o.ran(t, "b", "b:crash", 5, nil, sandbox.Change{Path: "f", Before: change.Before})
	o.ran(t, "b", "b:type", 6, func(list *session.ChangeList) { list.Type = "other" }, change)
	o.ran(t, "b", "b:foreign", 7, func(list *session.ChangeList) { list.OutputID = "b:1" }, change) // the list of b:1
	delete(o.changes["b"], o.ran(t, "b", "b:lost", 8, nil, change))
	o.event(t, "b", provenance.KindScriptExecuted, morning, cfharness.ScriptExecution{OutputID: "b:unkept"})
	o.event(t, "b", provenance.KindScriptExecuted, morning, cfharness.ScriptExecution{OutputID: "b:large",
		ExecutedAt: provenance.Stamp(morning.Add(9 * time.Minute)),
		Skillsd:    &cfharness.RunExtension{Kept: &cfharness.Kept{Problem: "too large"}}})
	o.ran(t, "broken", "broken:1", 10, nil, change)
	o.ran(t, "damaged", "damaged:1", 11, nil, change)

	refused := []cfharness.UndoneFile{{Path: "f", Refused: "it was changed"}}
	undone := func(id string, hour int, row cfharness.Undone) {
		o.event(t, id, provenance.KindWorkspaceUndone, morning.Add(time.Duration(hour)*time.Hour), row)
	}
	undone("undo", 2, cfharness.Undone{Changes: partly, Files: refused})
	undone("undo", 1, cfharness.Undone{Changes: partly}) // an earlier one, which another process wrote later
	undone("undo", 1, cfharness.Undone{Changes: wholly, Files: refused})
	undone("undo", 3, cfharness.Undone{Changes: wholly, Files: []cfharness.UndoneFile{{Path: "f"}}})
	undone("undo", 4, cfharness.Undone{Changes: again, Unlisted: 1})
	undone("other", 5, cfharness.Undone{Changes: again}) // not by undo

	runs, err := Undoables(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	const lost = "the list of the files that it changed is no longer kept"
	var got []string
	for _, run := range runs {
		line := run.Output
		if run.Problem != "" {
			line += ": " + run.Problem
		}
		if !run.Undone.IsZero() {
			line += " undone " + run.Undone.UTC().Format("15:04")
		}
		if run.complete {
			line += " wholly"
		}
		got = append(got, line)
	}
	want := []string{"b:large: too large", "b:lost: " + lost, "b:foreign: " + lost + " undone 11:00 wholly", "b:type: " + lost, "b:crash",
		"a:2 undone 12:00", "b:1 undone 11:00 wholly", "a:1 undone 10:00"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestChooseUndoable(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	run := func(id, output, workspace string) *Undoable {
		return &Undoable{Session: id, Output: output, List: session.ChangeList{Workspace: workspace}}
	}
	elsewhere := filepath.Join(cwd, "elsewhere")
	problem := func(u *Undoable) *Undoable {
		return &Undoable{Session: u.Session, Output: u.Output, Problem: "it is too large"}
	}
	complete := func(u *Undoable) *Undoable { u.complete = true; return u }
	for _, tt := range []struct {
		name  string
		runs  []*Undoable
		given string
		want  string // the run, or a part of the error
	}{
		{"last", []*Undoable{run("a1", "a1:2", elsewhere), run("a1", "a1:1", elsewhere)}, "", "a1:2"},
		{"last by word", []*Undoable{run("a1", "a1:2", elsewhere), run("a1", "a1:1", elsewhere)}, "latest", "a1:2"},
		{"here first", []*Undoable{run("a1", "a1:2", elsewhere), run("a1", "a1:1", cwd)}, "", "a1:1"},
		{"above", []*Undoable{run("a1", "a1:2", elsewhere), run("a1", "a1:1", filepath.Dir(cwd))}, "", "a1:1"},
		{"not undone first", []*Undoable{complete(run("a1", "a1:2", cwd)), run("a1", "a1:1", cwd)}, "", "a1:1"},
		{"all undone", []*Undoable{complete(run("a1", "a1:2", cwd)), complete(run("a1", "a1:1", cwd))}, "", "a1:2"},
		{"undone here", []*Undoable{run("a1", "a1:2", elsewhere), complete(run("a1", "a1:1", cwd))}, "", "a1:1"},
		{"last has a problem", []*Undoable{problem(run("a1", "a1:2", cwd)), run("a1", "a1:1", elsewhere)}, "",
			"the last run cannot be undone: it is too large"},
		{"problem elsewhere", []*Undoable{problem(run("a1", "a1:2", cwd)), run("a1", "a1:1", cwd)}, "", "a1:1"},
		{"run", []*Undoable{run("a1", "a1:2", cwd), run("a1", "a1:1", cwd)}, "a1:1", "a1:1"},
		{"run with a problem", []*Undoable{problem(run("a1", "a1:1", cwd))}, "a1:1",
			"this run cannot be undone: it is too large"},
		{"session", []*Undoable{run("b1", "b1:1", cwd), run("a1", "a1:2", cwd), run("a1", "a1:1", cwd)}, "a1", "a1:2"},
		{"session by its beginning", []*Undoable{run("b1", "b1:1", cwd), run("a1", "a1:1", cwd)}, "a", "a1:1"},
		{"session after a problem", []*Undoable{problem(run("a1", "a1:2", cwd)), run("a1", "a1:1", cwd)}, "a1", "a1:1"},
		{"two sessions", []*Undoable{run("a2", "a2:1", cwd), run("a1", "a1:1", cwd)}, "a", `2 sessions begin with "a"`},
		{"session with problems", []*Undoable{problem(run("a1", "a1:1", cwd))}, "a1", `no run to undo is "a1"`},
		{"none", []*Undoable{run("a1", "a1:1", cwd)}, "c", `no run to undo is "c"`},
	} {
		got, err := ChooseUndoable(tt.runs, tt.given)
		switch {
		case err != nil && !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		case err == nil && got.Output != tt.want:
			t.Errorf("%s: %s, want %s", tt.name, got.Output, tt.want)
		}
	}
}

// The record of an undo has each change, up to a limit, and how many were refused.
func TestUndoRecord(t *testing.T) {
	dir := t.TempDir()
	run := &Undoable{Session: "s", Output: "s:1", digest: digest.FromString("list"),
		List: session.ChangeList{Skill: "a/pdf", Path: "x.sh"}}
	record, err := RecordUndo(t.Context(), dir, nil, "v1", run)
	if err != nil {
		t.Fatal(err)
	}
	done := []staged.Undone{{Path: "kept", Op: "write", Refused: "it was changed"}}
	for range maxUndoneFiles + 1 {
		done = append(done, staged.Undone{Path: "f", Op: "write"})
	}
	if err := record.End(t.Context(), done, true); err != nil {
		t.Fatal(err)
	}
	records, err := filestore.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []provenance.Kind
	for e, err := range records.Events(t.Context(), provenance.Query{Session: record.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Kind)
		if e.Kind != provenance.KindWorkspaceUndone {
			continue
		}
		var row cfharness.Undone
		if err := json.Unmarshal(e.Row, &row); err != nil {
			t.Fatal(err)
		}
		if len(row.Files) != maxUndoneFiles || row.Unlisted != 2 || len(row.Refused()) != 1 || !row.Forced {
			t.Errorf("row: %d files, %d unlisted, %d refused, forced %t", len(row.Files), row.Unlisted,
				len(row.Refused()), row.Forced)
		}
		if want := "501 changes of s:1 undone, 1 refused"; e.Detail != want {
			t.Errorf("detail %q, want %q", e.Detail, want)
		}
	}
	want := []provenance.Kind{provenance.KindSessionStarted, provenance.KindWorkspaceUndone, provenance.KindSessionEnded}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
