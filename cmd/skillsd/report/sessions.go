package report

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/story"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// A SessionRow is a session with the skills it loaded.
type SessionRow struct {
	provenance.Session
	Skills []string // each once, in the order they were loaded
}

// SessionRows adds to sessions the skills they loaded, as far as their records are readable.
func SessionRows(ctx context.Context, records provenance.Reader, sessions []provenance.Session) []SessionRow {
	rows := make([]SessionRow, len(sessions))
	for i, s := range sessions {
		rows[i].Session = s
		for _, name := range loaded(ctx, records, s) {
			name = OneLine(name)
			if name != "" && !slices.Contains(rows[i].Skills, name) {
				rows[i].Skills = append(rows[i].Skills, name)
			}
		}
	}
	return rows
}

// loaded returns the skills that a session loaded, in this order, as far as its view or its record is
// readable.
func loaded(ctx context.Context, records provenance.Reader, s provenance.Session) (names []string) {
	// The view may lag behind the record. Reading every record would take far longer; only a server that was
	// killed at its end leaves no view.
	view, err := records.Stored(ctx, s.ID, provenance.ActivationsFile)
	if err == nil {
		return viewed(view)
	}
	if s.Counts.Activations == 0 {
		return nil
	}
	for e, err := range records.Events(ctx, provenance.Query{Session: s.ID,
		Kinds: []provenance.Kind{provenance.KindSkillActivated}}) {
		if err != nil {
			break
		}
		names = append(names, e.Skill)
	}
	return names
}

// viewed returns the skills in a view of activations, which it closes.
func viewed(view io.ReadCloser) (names []string) {
	text, err := fsys.ReadAll(view, 4<<20)
	view.Close()
	if err != nil {
		return nil
	}
	var rows struct {
		Type        string                 `json:"type"`
		Activations []cfharness.Activation `json:"activations"`
	}
	if json.Unmarshal(text, &rows) != nil || rows.Type != cfharness.TypeActivations {
		return nil
	}
	for _, load := range rows.Activations {
		name := load.Name
		if load.Skillsd != nil {
			name = load.Skillsd.Path
		}
		names = append(names, name)
	}
	return names
}

// WriteSessions writes the sessions as a table with a heading. With columns 0 its lines have any length;
// otherwise each is at most one row, ids are shortened but stay distinct, and principals are shown only if
// one differs from local, the principal of the local user.
func WriteSessions(w io.Writer, sessions []SessionRow, columns int, local string, now time.Time) error {
	_, err := fmt.Fprintln(w, strings.Join(sessionLines(sessions, columns, local, now), "\n"))
	return err
}

func sessionLines(sessions []SessionRow, columns int, local string, now time.Time) []string {
	ids := make([]string, len(sessions))
	for i, s := range sessions {
		ids[i] = s.ID
	}
	if columns > 0 {
		ids = shortIDs(ids)
	}
	rows := [][]string{{"SESSION", "START", "SKILLS", "RUN", "DENY", "STATE", "USER", "CLIENT"}}
	for i, s := range sessions {
		start := s.CreatedAt.Local().Format(time.DateOnly)
		if s.CreatedAt.Local().Year() == now.Year() {
			start = s.CreatedAt.Local().Format("01-02 15:04")
		}
		rows = append(rows, []string{ids[i], start, OneLine(strings.Join(s.Skills, ", ")),
			fmt.Sprint(s.Counts.Runs), fmt.Sprint(s.Counts.Denials), OneLine(string(s.State)),
			OneLine(s.Principal), OneLine(s.Client)})
	}
	if columns == 0 {
		return padded(rows)
	}
	cuts := [][2]int{{2, len("SKILLS")}, {6, 9}, {7, 9}} // columns and their minimum widths
	if !slices.ContainsFunc(sessions, func(s SessionRow) bool { return s.Principal != local }) {
		cuts = [][2]int{{2, len("SKILLS")}, {6, len("claude-code…")}}
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 6, 7)
		}
	}
	for _, cut := range cuts {
		over, width := 0, 0
		for i, line := range padded(rows) {
			over, width = max(over, Cells(line)-columns), max(width, Cells(rows[i][cut[0]]))
		}
		for _, row := range rows {
			row[cut[0]] = Shorten(row[cut[0]], max(cut[1], width-over))
		}
	}
	return padded(rows)
}

// shortIDs returns prefixes of equal length that distinguish ids.
func shortIDs(ids []string) []string {
	// IDs begin with their time, so sessions of one moment have the same beginning.
	for size := len("ses_019aa6f0-7c00"); ; size++ {
		short, seen, whole := make([]string, len(ids)), map[string]bool{}, true
		for i, id := range ids {
			short[i] = id[:min(len(id), size)]
			seen[short[i]] = true
			whole = whole && len(id) <= size
		}
		if whole || len(seen) == len(ids) {
			return short
		}
	}
}

// VerifyNotes returns notes about a record that matches its files.
func VerifyNotes(found *provenance.Report) []string {
	notes := []string{}
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for _, view := range found.Stale {
		say("%s is of an earlier moment", view)
	}
	for _, file := range found.Unrecorded {
		say("no event names %s", file)
	}
	if n := len(found.Unfinished); n > 0 {
		say("%s without an outcome, the first is %s", Plural(n, "requested script"), found.Unfinished[0])
	}
	if n := found.NotKept; n > 0 {
		say("%d of the texts shown are not kept, and the log does not require them", n)
	}
	if found.Removed > 0 {
		say("%d outputs were removed to make room, as the log notes", found.Removed)
	}
	if found.Unregistered {
		say("%s does not name it, so it is not known whether it was longer", provenance.RegisterFile)
	}
	if found.Torn > 0 {
		say("a torn last line of %s is not part of the log", Plural(int(found.Torn), "byte"))
	}
	return notes
}

// detailIndent indents the details of an event.
const detailIndent = "              "

// Children returns the ids of the child sessions of a session, oldest first, as far as their records are
// readable.
//
// Errors: the error of listing, or of ctx.
func Children(ctx context.Context, records provenance.Reader, id string) (ids []string, err error) {
	sessions, err := provenance.ListSessions(ctx, records)
	for _, s := range slices.Backward(sessions) {
		if s.Parent != id {
			continue
		}
		for e, err := range records.Events(ctx, provenance.Query{Session: s.ID}) {
			if err != nil {
				break
			}
			// A session that continues another one also has it as its parent.
			if info, err := e.SessionInfo(); err == nil && info != nil && info.Child {
				ids = append(ids, s.ID)
			}
			break
		}
	}
	return ids, err
}

// EventsFrom yields the events from the first one at or after a time.
func EventsFrom(
	events iter.Seq2[*provenance.Event, error], from time.Time,
) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		begun := false
		for e, err := range events {
			// The clock may be set back, so a later event may have an earlier time.
			begun = begun || err != nil || !e.Time.Before(from)
			if begun && !yield(e, err) {
				return
			}
		}
	}
}

// WriteTimeline writes a line for each event of a session but for descriptions of the server, with the inputs
// of a script below its line, after lines with the owner, the parent and the children of the session. If
// columns is not 0, no event takes more than one row.
//
// Errors: the first error of events, or the error of writing.
func WriteTimeline(
	w io.Writer, session string, events iter.Seq2[*provenance.Event, error], children []string, columns int,
) error {
	var day string
	for e, err := range events {
		if err != nil {
			return err
		}
		if day == "" {
			writeFamily(w, session, e, children)
		}
		if d := e.Time.Local().Format(time.DateOnly); d != day {
			day = d
			fmt.Fprintln(w, day)
		}
		step := story.StepOf(e)
		if step.Action == story.Snapshot {
			// A snapshot is for programs; --json has it.
			continue
		}
		lines := append([]string{eventLine(step, columns)}, eventDetails(step, columns)...)
		if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
			return err
		}
	}
	return nil
}

// writeFamily writes the owner, the parent and the children of a session, from its first event.
func writeFamily(w io.Writer, session string, first *provenance.Event, children []string) {
	who := strings.TrimSuffix(first.Principal+", "+first.Client, ", ")
	fmt.Fprintf(w, "session %s (%s)\n", session, OneLine(who))
	switch info, err := first.SessionInfo(); {
	case err != nil || info == nil || first.Parent == "":
	case info.Child:
		fmt.Fprintf(w, "child of %s\n", OneLine(first.Parent))
	// In earlier versions, a session with a profile may be a child or a continuation.
	case info.Profile == "":
		fmt.Fprintf(w, "continues %s\n", OneLine(first.Parent))
	}
	for _, child := range children {
		fmt.Fprintf(w, "has the child %s\n", OneLine(child))
	}
}

// eventLine returns time, kind, subject and outcome of an event. The subject is truncated to fit.
func eventLine(s *story.Step, columns int) string {
	subject, outcome := OneLine(subjectOf(s.Skill, s.Path)), OneLine(s.Summary())
	line := s.Time.Local().Format("15:04:05.000") + "  " + Pad(string(s.Kind), 22) + "  "
	if columns > 0 {
		const gap, least = 2, 12
		left := max(columns-Cells(line), 2*least)
		outcome = Shorten(outcome, max(left-min(Cells(subject), least)-gap, least))
		subject = Shorten(subject, left-Cells(outcome)-gap)
	}
	if subject != "" {
		line += subject + "  "
	}
	return strings.TrimRight(line+outcome, " ")
}

// subjectOf names a skill, or a file of it.
func subjectOf(skill, path string) string {
	if path == "" {
		return skill
	}
	return skill + ":" + path
}

// eventDetails returns the lines below an event: how the user can change a refusal, or undo a run; and the
// origin of a skill, or the inputs of a script, then its digest, why it was permitted and the id of its
// output. The latter are truncated to the width of a line; --json has all of it.
func eventDetails(s *story.Step, columns int) []string {
	var lines []string
	if s.Action == story.Refused {
		// It is not truncated, because it may contain a command to copy.
		if x := s.Ruling().Skillsd; x != nil && x.Operator != "" {
			lines = append(lines, detailIndent+OneLine(x.Operator))
		}
	}
	if kept := s.Facts().Kept; kept != nil {
		undo := fmt.Sprintf("to undo its %s: skillsd undo %s", Plural(kept.Entries, "change"), s.Run.OutputID)
		if kept.Problem != "" {
			undo = "its changes cannot be undone: " + kept.Problem
		}
		lines = append(lines, detailIndent+OneLine(undo))
	}
	left := max(cmp.Or(columns, 80)-len(detailIndent), 20)
	given, facts := eventFacts(s)
	for _, words := range []string{given, strings.Join(facts, ", ")} {
		if words != "" {
			lines = append(lines, detailIndent+Shorten(words, left))
		}
	}
	return lines
}

// eventFacts returns the origin of a skill, or the inputs of a script; and the facts about the script, none
// of them empty.
func eventFacts(s *story.Step) (given string, facts []string) {
	var id string
	var sum digest.Digest
	switch {
	case s.Activation != nil && s.Activation.Skillsd != nil && s.Activation.Skillsd.Origin != nil:
		given = "from " + OneLine(s.Activation.Skillsd.Origin.String())
	case s.Action == story.Asked && s.Request != nil:
		row := s.Request
		given, sum, id = quoted(row.Args), row.Digest, row.OutputID
		facts = []string{row.Target}
		if row.CWD != "" {
			given += " in " + strconv.QuoteToASCII(row.CWD)
		}
		if row.Stdin != nil {
			given += fmt.Sprintf(" stdin %d bytes %s", row.Stdin.Bytes, shortDigest(row.Stdin.Digest))
		}
	case s.Run != nil:
		given, sum, id = quoted(s.Run.Args), s.Run.ObservedDigest, s.Run.OutputID
		if x := s.Ruling().Skillsd; x != nil {
			facts = []string{story.Permission(x.Evidence)}
		}
	}
	// session show --output also takes an id without the session.
	id = strings.TrimPrefix(id, s.Event.Session+":")
	facts = slices.Concat([]string{shortDigest(sum)}, facts, []string{id})
	facts = slices.DeleteFunc(facts, func(fact string) bool { return fact == "" })
	return strings.TrimSpace(given), facts
}

// quoted quotes arguments, so that they cannot be confused.
func quoted(args []string) string { return strings.Trim(fmt.Sprintf("%+q", args), "[]") }

func shortDigest(d digest.Digest) string {
	text := d.String()
	return text[:min(len(text), len("sha256:")+12)]
}
