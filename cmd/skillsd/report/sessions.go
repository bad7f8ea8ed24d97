package report

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// The columns of the table of sessions; skills, principal and client share the rest of the line.
const (
	shortSession = len("ses_019aa6f0-7c00")
	minSkills    = len("SKILLS")
	minPrincipal = len("PRINCIPAL")
	minClient    = 9
)

// A SessionRow is a session with the skills it loaded.
type SessionRow struct {
	provenance.Session
	Skills []string // each once, in the order they were loaded
}

// maxActivations is how much of a view of activations is read, in bytes.
const maxActivations = 4 << 20

// SessionRows adds to sessions the skills they loaded, as far as their records say.
func SessionRows(ctx context.Context, records provenance.Reader, sessions []provenance.Session) []SessionRow {
	rows := make([]SessionRow, len(sessions))
	for i, s := range sessions {
		rows[i].Session = s
		// The view may lag behind the record. Reading every record instead would take far longer.
		view, err := records.Stored(ctx, s.ID, provenance.ActivationsFile)
		if err != nil {
			continue
		}
		text, err := fsys.ReadAll(view, maxActivations)
		view.Close()
		if err != nil {
			continue
		}
		var loaded struct {
			Type        string                 `json:"type"`
			Activations []cfharness.Activation `json:"activations"`
		}
		if json.Unmarshal(text, &loaded) != nil || loaded.Type != cfharness.TypeActivations {
			continue
		}
		for _, load := range loaded.Activations {
			name := load.Name
			if load.Skillsd != nil {
				name = load.Skillsd.Path
			}
			if name = OneLine(name); name != "" && !slices.Contains(rows[i].Skills, name) {
				rows[i].Skills = append(rows[i].Skills, name)
			}
		}
	}
	return rows
}

// WriteSessions writes the sessions as a table with a heading. With columns 0 its lines are as long as they
// need; otherwise each takes at most one row, ids are cut to what distinguishes them, and principals are
// shown only if one is not local, the principal of this machine's user.
func WriteSessions(w io.Writer, sessions []SessionRow, columns int, local string, now time.Time) error {
	for _, line := range sessionLines(sessions, columns, local, now) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func sessionLines(sessions []SessionRow, columns int, local string, now time.Time) []string {
	ids, wide, skill, who, client := shortIDs(sessions, columns == 0), len("SESSION"), minSkills, 0, minClient
	for i, s := range sessions {
		wide = max(wide, Cells(ids[i]))
		skill = max(skill, Cells(strings.Join(s.Skills, ", ")))
		client = max(client, Cells(OneLine(s.Client)))
		if columns == 0 || s.Principal != local {
			who = max(who, minPrincipal, Cells(OneLine(s.Principal)))
		}
	}
	if columns > 0 {
		const others = 11 + 3 + 4 + 7 + 5*2
		skill, who, client = shareColumns(columns-wide-others, skill, who, client)
	}
	row := func(id, start, skills, runs, denials, state, principal, client string) string {
		line := fmt.Sprintf("%s  %s  %s  %s  %s  %s  ",
			Pad(id, wide), Pad(start, 11), Pad(skills, skill), Pad(runs, 3), Pad(denials, 4), Pad(state, 7))
		if who > 0 {
			line += Pad(principal, who) + "  "
		}
		return strings.TrimRight(line+client, " ")
	}
	lines := []string{row("SESSION", "START", "SKILLS", "RUN", "DENY", "STATE", "PRINCIPAL", "CLIENT")}
	for i, s := range sessions {
		program := OneLine(s.Client)
		if name, _, _ := strings.Cut(program, " "); Cells(program) > client {
			program = name
		}
		lines = append(lines, row(ids[i], startOf(s.CreatedAt.Local(), now), fewSkills(s.Skills, skill),
			fmt.Sprint(s.Counts.Runs), fmt.Sprint(s.Counts.Denials), string(s.State),
			Shorten(s.Principal, max(who, 1)), Shorten(program, client)))
	}
	return lines
}

// shareColumns divides columns between skills, principal and client, which would like more: the skills come
// first, then the principal.
func shareColumns(columns, skill, who, client int) (int, int, int) {
	columns -= 2 + minSkills + minClient
	if who > 0 {
		columns -= 2 + minPrincipal
	}
	more := func(least, wanted int) int {
		n := max(0, min(columns, wanted-least))
		columns -= n
		return least + n
	}
	if who == 0 {
		// Without principals there is space for a client's usual name as well as the skills.
		client = more(minClient, min(client, minClient+2))
		return more(minSkills, skill), 0, client + max(0, columns)
	}
	skill, who = more(minSkills, min(skill, minSkills+6)), more(minPrincipal, who)
	return skill, who, more(minClient, client)
}

// fewSkills names skills within a number of columns, and counts those that do not fit.
func fewSkills(names []string, columns int) string {
	text := strings.Join(names, ", ")
	if Cells(text) <= columns || len(names) < 2 {
		return Shorten(text, columns)
	}
	others := fmt.Sprintf(" +%d", len(names)-1)
	return Shorten(names[0], max(columns-len(others), 1)) + others
}

// startOf returns a time of this year without the year, and another one as a day.
func startOf(at, now time.Time) string {
	if at.Year() == now.Year() {
		return at.Format("01-02 15:04")
	}
	return at.Format(time.DateOnly)
}

// shortIDs returns the whole ids, or beginnings of one length that distinguish them.
func shortIDs(sessions []SessionRow, whole bool) []string {
	for size := shortSession; ; size++ {
		ids, seen, all := make([]string, len(sessions)), make(map[string]bool), true
		for i, s := range sessions {
			ids[i] = s.ID
			if !whole {
				ids[i] = s.ID[:min(len(s.ID), size)]
			}
			all = all && len(s.ID) <= size
			seen[ids[i]] = true
		}
		if whole || all || len(seen) == len(sessions) {
			return ids
		}
	}
}

// VerifyNotes returns what is worth knowing about a record that agrees with its files.
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
		say("%d scripts were requested and have no outcome, the first is %s", n, found.Unfinished[0])
	}
	if n := found.NotKept; n > 0 {
		say("%d of the texts shown are not kept, and the record does not say that they must be", n)
	}
	if found.Removed > 0 {
		say("%d outputs were removed to make room, as the record says", found.Removed)
	}
	if found.Torn > 0 {
		say("a torn last line of %s is no part of the record", Plural(int(found.Torn), "byte"))
	}
	return notes
}
