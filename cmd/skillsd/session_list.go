package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// The columns of session list; what is left of the line has skills, principal and client.
const (
	shortSession = len("ses_019aa6f0-7c00")
	minSkills    = len("SKILLS")
	minPrincipal = len("PRINCIPAL")
	minClient    = 9
)

// sessionRow is a session with the skills it loaded.
type sessionRow struct {
	provenance.Session
	skills []string // each once, in the order they were loaded
}

// maxActivations is how much of a view of activations is read, in bytes.
const maxActivations = 4 << 20

// sessionRows adds to sessions below dir what they loaded, as far as their records say.
func sessionRows(dir string, sessions []provenance.Session) []sessionRow {
	rows := make([]sessionRow, len(sessions))
	for i, s := range sessions {
		rows[i].Session = s
		text, err := config.ReadFile(filepath.Join(dir, s.ID, provenance.ActivationsFile), maxActivations)
		if err != nil {
			continue
		}
		_, loads, err := cfharness.ParseActivations(text)
		if err != nil {
			continue
		}
		for _, load := range loads {
			name := load.Name
			if load.Skillsd != nil {
				name = load.Skillsd.Path
			}
			if name = report.OneLine(name); name != "" && !slices.Contains(rows[i].skills, name) {
				rows[i].skills = append(rows[i].skills, name)
			}
		}
	}
	return rows
}

// table prints a line for each session. Where a width is known it takes at most one row, and ids are cut to what
// tells them apart; elsewhere nothing is cut.
func (o *sessionListOptions) table(sessions []sessionRow) error {
	for _, line := range sessionLines(sessions, o.app.knownColumns(o.app.out), time.Now()) {
		if _, err := fmt.Fprintln(o.app.out, line); err != nil {
			return err
		}
	}
	return nil
}

// sessionLines is the table under its heading. With columns 0 its lines are as long as they need;
// else principals stand in it only when one is not this machine's user.
func sessionLines(sessions []sessionRow, columns int, now time.Time) []string {
	ids, wide, skill, who, client := shortIDs(sessions, columns == 0), len("SESSION"), minSkills, 0, minClient
	local := mcpserver.LocalPrincipal().Name
	for i, s := range sessions {
		wide, skill, client = max(wide, report.Cells(ids[i])), max(skill, report.Cells(strings.Join(s.skills, ", "))), max(client, report.Cells(report.OneLine(s.Client)))
		if columns == 0 || s.Principal != local {
			who = max(who, minPrincipal, report.Cells(report.OneLine(s.Principal)))
		}
	}
	if columns > 0 {
		const others = 11 + 3 + 4 + 7 + 5*2
		skill, who, client = sessionRoom(columns-wide-others, skill, who, client)
	}
	row := func(id, start, skills, runs, denials, state, principal, client string) string {
		line := fmt.Sprintf("%s  %s  %s  %s  %s  %s  ", report.Pad(id, wide), report.Pad(start, 11), report.Pad(skills, skill), report.Pad(runs, 3), report.Pad(denials, 4), report.Pad(state, 7))
		if who > 0 {
			line += report.Pad(principal, who) + "  "
		}
		return strings.TrimRight(line+client, " ")
	}
	lines := []string{row("SESSION", "START", "SKILLS", "RUN", "DENY", "STATE", "PRINCIPAL", "CLIENT")}
	for i, s := range sessions {
		program := report.OneLine(s.Client)
		if name, _, _ := strings.Cut(program, " "); report.Cells(program) > client {
			program = name
		}
		lines = append(lines, row(ids[i], startOf(s.CreatedAt.Local(), now), fewSkills(s.skills, skill), fmt.Sprint(s.Counts.Runs), fmt.Sprint(s.Counts.Denials), string(s.State),
			report.Shorten(s.Principal, max(who, 1)), report.Shorten(program, client)))
	}
	return lines
}

// sessionRoom shares out the columns that skills, principal and client have with what parts them, which
// would like more: the skills first, then the principal.
func sessionRoom(room, skill, who, client int) (int, int, int) {
	room -= 2 + minSkills + minClient
	if who > 0 {
		room -= 2 + minPrincipal
	}
	more := func(least, wanted int) int {
		n := max(0, min(room, wanted-least))
		room -= n
		return least + n
	}
	if who == 0 {
		// Without principals a client with its usual name has room beside the skills.
		client = more(minClient, min(client, minClient+2))
		return more(minSkills, skill), 0, client + max(0, room)
	}
	skill, who = more(minSkills, min(skill, minSkills+6)), more(minPrincipal, who)
	return skill, who, more(minClient, client)
}

// fewSkills names skills in so many columns, and counts those that do not fit.
func fewSkills(names []string, columns int) string {
	text := strings.Join(names, ", ")
	if report.Cells(text) <= columns || len(names) < 2 {
		return report.Shorten(text, columns)
	}
	rest := fmt.Sprintf(" +%d", len(names)-1)
	return report.Shorten(names[0], max(columns-len(rest), 1)) + rest
}

// startOf is a time of this year without the year, and of another as a day.
func startOf(at, now time.Time) string {
	if at.Year() == now.Year() {
		return at.Format("01-02 15:04")
	}
	return at.Format(time.DateOnly)
}

// shortIDs are the ids whole, or the beginnings that tell them apart, of one length.
func shortIDs(sessions []sessionRow, whole bool) []string {
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
