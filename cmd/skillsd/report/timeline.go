package report

import (
	"cmp"
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
)

// detailIndent indents the details of an event.
const detailIndent = "              "

// WriteTimeline writes a line for each event of a session, and below the line of a script what it was given,
// after a line that says whose session it is. Where columns is known, not 0, no line takes more than one row.
//
// Errors: the first error of events, or the error of writing.
func WriteTimeline(
	w io.Writer, session string, events iter.Seq2[*provenance.Event, error], columns int,
) error {
	var day string
	for e, err := range events {
		if err != nil {
			return err
		}
		if day == "" {
			who := strings.TrimSuffix(e.Principal+", "+e.Client, ", ")
			fmt.Fprintf(w, "session %s (%s)\n", session, OneLine(who))
		}
		if d := e.Time.Local().Format(time.DateOnly); d != day {
			day = d
			fmt.Fprintln(w, day)
		}
		lines := append([]string{eventLine(e, columns)}, eventDetails(e, columns)...)
		if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
			return err
		}
	}
	return nil
}

// eventLine returns time, kind, subject and outcome of an event. What does not fit is cut from the subject.
func eventLine(e *provenance.Event, columns int) string {
	subject, outcome := OneLine(subjectOf(e.Skill, e.Path)), OneLine(cfharness.Summary(e))
	line := e.Time.Local().Format("15:04:05.000") + "  " + Pad(string(e.Kind), 22) + "  "
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

// subjectOf names a skill, or a file of one.
func subjectOf(skill, path string) string {
	if path == "" {
		return skill
	}
	return skill + ":" + path
}

// eventDetails returns the lines below the line of a script: its inputs, then its digest, the evidence that a
// user wants it and the id of its output. Each is cut to the width of a line; --json has all of it.
func eventDetails(e *provenance.Event, columns int) []string {
	var given, facts []string
	var sum digest.Digest
	var id string
	switch e.Kind {
	case provenance.KindApprovalAsked:
		row, err := rowOf[cfharness.ScriptRequest](e)
		if err != nil || row == nil {
			return nil
		}
		given, sum, id = quoted(row.Args), row.Digest, row.OutputID
		facts = []string{row.Target}
		if row.CWD != "" {
			given = append(given, "in "+strconv.QuoteToASCII(row.CWD))
		}
		if row.Stdin != nil {
			stdin := fmt.Sprintf("stdin %d bytes %s", row.Stdin.Bytes, shortDigest(row.Stdin.Digest))
			given = append(given, stdin)
		}
	case provenance.KindScriptExecuted:
		row, err := rowOf[cfharness.ScriptExecution](e)
		if err != nil || row == nil {
			return nil
		}
		given, sum, id = quoted(row.Args), row.ObservedDigest, row.OutputID
		var decision cfharness.PolicyDecision
		if json.Unmarshal(e.Decision, &decision) == nil && decision.Skillsd != nil {
			facts = []string{decision.Skillsd.Evidence}
		}
	}
	// session show --output takes an id without the session as well.
	facts = slices.Concat([]string{shortDigest(sum)}, facts, []string{strings.TrimPrefix(id, e.Session+":")})
	facts = slices.DeleteFunc(facts, func(fact string) bool { return fact == "" })
	left := max(cmp.Or(columns, 80)-len(detailIndent), 20)
	var lines []string
	for _, words := range []string{strings.Join(given, " "), strings.Join(facts, ", ")} {
		if words != "" {
			lines = append(lines, detailIndent+Shorten(words, left))
		}
	}
	return lines
}

// quoted quotes arguments, so that none can pass for another.
func quoted(args []string) []string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = strconv.QuoteToASCII(arg)
	}
	return words
}

func shortDigest(d digest.Digest) string {
	text := d.String()
	return text[:min(len(text), len("sha256:")+12)]
}

// rowOf decodes the row of an event; it is nil for an event without one.
func rowOf[T any](e *provenance.Event) (*T, error) {
	if len(e.Row) == 0 {
		return nil, nil
	}
	row := new(T)
	if err := json.Unmarshal(e.Row, row); err != nil {
		return nil, fmt.Errorf("row of event %d: %w", e.Seq, err)
	}
	return row, nil
}
