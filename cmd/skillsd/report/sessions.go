package report

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// A SessionRow is a session with the skills it loaded.
type SessionRow struct {
	provenance.Session
	Skills []string // each once, in the order they were loaded
}

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
		text, err := fsys.ReadAll(view, 4<<20)
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
	_, err := fmt.Fprintln(w, strings.Join(sessionLines(sessions, columns, local, now), "\n"))
	return err
}

func sessionLines(sessions []SessionRow, columns int, local string, now time.Time) []string {
	ids := make([]string, len(sessions))
	for i, s := range sessions {
		ids[i] = s.ID
	}
	// Skills, principal and client share what the other columns leave, the first one first.
	skill, who, client := math.MaxInt, math.MaxInt, math.MaxInt
	principals := columns == 0 ||
		slices.ContainsFunc(sessions, func(s SessionRow) bool { return s.Principal != local })
	if columns > 0 {
		ids = shortIDs(ids)
		skill, who, client = len("SKILLS"), len("PRINCIPAL"), len("claude-code")
		left := columns - len("01-02 15:04  RUN  DENY  damaged") - 3*len(Gap) - skill - client
		if principals {
			client -= len(Gap) // the gap before the principals
			left -= who
		}
		wide, needSkill, needWho := len("SESSION"), 0, 0
		for i, s := range sessions {
			wide = max(wide, Cells(ids[i]))
			needSkill = max(needSkill, Cells(strings.Join(s.Skills, ", ")))
			needWho = max(needWho, Cells(OneLine(s.Principal)))
		}
		left -= wide
		share := func(least, need int) int {
			more := max(0, min(left, need-least))
			left -= more
			return least + more
		}
		skill = share(skill, needSkill)
		if principals {
			who = share(who, needWho)
		}
		client += max(0, left)
	}
	rows := [][]string{{"SESSION", "START", "SKILLS", "RUN", "DENY", "STATE", "PRINCIPAL", "CLIENT"}}
	for i, s := range sessions {
		start := s.CreatedAt.Local().Format(time.DateOnly)
		if s.CreatedAt.Local().Year() == now.Year() {
			start = s.CreatedAt.Local().Format("01-02 15:04")
		}
		names := strings.Join(s.Skills, ", ")
		if others := fmt.Sprintf(" +%d", len(s.Skills)-1); Cells(names) > skill && len(s.Skills) > 1 {
			names = Shorten(s.Skills[0], max(skill-len(others), 1)) + others
		}
		program := OneLine(s.Client)
		if Cells(program) > client {
			program, _, _ = strings.Cut(program, " ")
		}
		rows = append(rows, []string{ids[i], start, Shorten(names, skill), fmt.Sprint(s.Counts.Runs),
			fmt.Sprint(s.Counts.Denials), string(s.State), Shorten(s.Principal, who),
			Shorten(program, client)})
	}
	if !principals {
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 6, 7)
		}
	}
	return padded(rows)
}

// shortIDs returns beginnings of one length that distinguish ids.
func shortIDs(ids []string) []string {
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
		say("a torn last line of %s is not part of the record", Plural(int(found.Torn), "byte"))
	}
	return notes
}
