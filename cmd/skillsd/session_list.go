package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// The columns of session list; what is left of the line has principal and client.
const (
	shortSession = len("ses_019aa6f0-7c00")
	minPrincipal = len("PRINCIPAL")
	minClient    = 11
)

// table prints a line for each session. Where a width is known it takes at most one row, and ids are cut to what
// tells them apart; elsewhere nothing is cut.
func (o *sessionListOptions) table(sessions []provenance.Session) error {
	for _, line := range sessionLines(sessions, o.app.knownColumns(o.app.out), time.Now()) {
		if _, err := fmt.Fprintln(o.app.out, line); err != nil {
			return err
		}
	}
	return nil
}

// sessionLines is the table under its heading. With columns 0 its lines are as long as they need.
func sessionLines(sessions []provenance.Session, columns int, now time.Time) []string {
	ids, wide, who, client := shortIDs(sessions, columns == 0), len("SESSION"), minPrincipal, minClient
	for i, s := range sessions {
		wide, who, client = max(wide, cells(ids[i])), max(who, cells(oneLine(s.Principal))), max(client, cells(oneLine(s.Client)))
	}
	row := func(id, start, loads, runs, denials, state string) string {
		return fmt.Sprintf("%s  %s  %s  %s  %s  %s  ", pad(id, wide), pad(start, 11), pad(loads, 4), pad(runs, 3), pad(denials, 4), pad(state, 7))
	}
	head := row("SESSION", "START", "LOAD", "RUN", "DENY", "STATE")
	if columns > 0 {
		room := max(columns-len(head)-2, minPrincipal+minClient)
		who = min(who, room-minClient)
		client = room - who
	}
	lines := []string{head + pad("PRINCIPAL", who) + "  CLIENT"}
	for i, s := range sessions {
		program := oneLine(s.Client)
		if name, _, _ := strings.Cut(program, " "); cells(program) > client {
			program = name
		}
		line := row(ids[i], startOf(s.CreatedAt.Local(), now), fmt.Sprint(s.Counts.Activations), fmt.Sprint(s.Counts.Runs), fmt.Sprint(s.Counts.Denials), string(s.State)) +
			pad(shorten(s.Principal, who), who) + "  " + shorten(program, client)
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// startOf is a time of this year without the year, and of another as a day.
func startOf(at, now time.Time) string {
	if at.Year() == now.Year() {
		return at.Format("01-02 15:04")
	}
	return at.Format(time.DateOnly)
}

// shortIDs are the ids whole, or the beginnings that tell them apart, of one length.
func shortIDs(sessions []provenance.Session, whole bool) []string {
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
