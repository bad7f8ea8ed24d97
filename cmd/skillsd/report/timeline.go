package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
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
	first := true
	for e, err := range events {
		if err != nil {
			return err
		}
		if first {
			who := e.Principal
			if e.Client != "" {
				who += ", " + e.Client
			}
			fmt.Fprintf(w, "session %s (%s)\n", session, OneLine(who))
			first = false
		}
		if d := e.Time.Local().Format(time.DateOnly); d != day {
			day = d
			fmt.Fprintln(w, day)
		}
		for _, line := range append([]string{eventLine(e, columns)}, eventDetails(e, columns)...) {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
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

// eventDetails returns the lines below the line of a script: its inputs, then its digest, what showed that a
// user wants it and the id of its output. Each is cut to the width of a line; --json has all of it.
func eventDetails(e *provenance.Event, columns int) []string {
	var given, facts []string
	switch e.Kind {
	case provenance.KindApprovalAsked:
		row, err := rowOf[cfharness.ScriptRequest](e)
		if err != nil || row == nil {
			return nil
		}
		given = inputs(row.Args, row.CWD)
		facts = []string{shortDigest(row.Digest), row.Target, shortOutput(e, row.OutputID)}
		if row.Stdin != nil {
			stdin := fmt.Sprintf("stdin %d bytes %s", row.Stdin.Bytes, shortDigest(row.Stdin.Digest))
			given = append(given, stdin)
		}
	case provenance.KindScriptExecuted:
		row, err := rowOf[cfharness.ScriptExecution](e)
		if err != nil || row == nil {
			return nil
		}
		given = inputs(row.Args, "")
		facts = []string{shortDigest(row.ObservedDigest), evidenceOf(e), shortOutput(e, row.OutputID)}
	}
	left := cmp.Or(columns, 80) - len(detailIndent)
	var lines []string
	for _, words := range []string{strings.Join(given, " "), joinWords(facts)} {
		if words != "" {
			lines = append(lines, detailIndent+Shorten(words, max(left, 20)))
		}
	}
	return lines
}

// inputs quotes arguments, so that none can pass for another.
func inputs(args []string, dir string) []string {
	words := make([]string, 0, len(args)+1)
	for _, arg := range args {
		words = append(words, strconv.QuoteToASCII(arg))
	}
	if dir != "" {
		words = append(words, "in "+strconv.QuoteToASCII(dir))
	}
	return words
}

// evidenceOf returns what showed that a user wants the run: prompt-slot, approval or operator.
func evidenceOf(e *provenance.Event) string {
	var row cfharness.PolicyDecision
	if len(e.Decision) == 0 || json.Unmarshal(e.Decision, &row) != nil || row.Skillsd == nil {
		return ""
	}
	return row.Skillsd.Evidence
}

// shortOutput returns an output id without the session it begins with; session show --output accepts that.
func shortOutput(e *provenance.Event, id string) string {
	return strings.TrimPrefix(id, e.Session+":")
}

func shortDigest(d digest.Digest) string {
	const digits = 12
	text := d.String()
	return text[:min(len(text), len("sha256:")+digits)]
}

// joinWords joins the words that are not empty.
func joinWords(words []string) string {
	var full []string
	for _, word := range words {
		if word != "" {
			full = append(full, word)
		}
	}
	return strings.Join(full, ", ")
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
