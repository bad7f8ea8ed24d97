package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// detailIndent is where the lines below that of an event begin.
const detailIndent = "              "

// details are the lines below that of a script: what it was given, and its digest, what showed that a
// user wants it and the id of its output. Each is cut to the width of a line; --json has all of it.
func (o *sessionShowOptions) details(e *provenance.Event) []string {
	var given, facts []string
	switch e.Kind {
	case provenance.KindApprovalAsked:
		row, err := rowOf[cfharness.ScriptRequest](e)
		if err != nil || row == nil {
			return nil
		}
		given, facts = inputs(row.Args, row.CWD), []string{shortDigest(row.Digest), row.Target, shortOutput(e, row.OutputID)}
		if row.Stdin != nil {
			given = append(given, "stdin "+strconv.FormatInt(row.Stdin.Bytes, 10)+" bytes "+shortDigest(row.Stdin.Digest))
		}
	case provenance.KindScriptExecuted:
		row, err := rowOf[cfharness.ScriptExecution](e)
		if err != nil || row == nil {
			return nil
		}
		given, facts = inputs(row.Args, ""), []string{shortDigest(row.ObservedDigest), evidenceOf(e), shortOutput(e, row.OutputID)}
	}
	room := o.app.columns(o.app.out) - len(detailIndent)
	var lines []string
	for _, words := range []string{strings.Join(given, " "), joinWords(facts)} {
		if words != "" {
			lines = append(lines, detailIndent+report.Shorten(words, max(room, 20)))
		}
	}
	return lines
}

// inputs shows arguments so that none can pass for another.
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

// evidenceOf is what showed that a user wants the run: prompt-slot, approval or operator.
func evidenceOf(e *provenance.Event) string {
	var row cfharness.PolicyDecision
	if len(e.Decision) == 0 || json.Unmarshal(e.Decision, &row) != nil || row.Skillsd == nil {
		return ""
	}
	return row.Skillsd.Evidence
}

// shortOutput is an output id without the session it begins with; --output takes it so.
func shortOutput(e *provenance.Event, id string) string {
	return strings.TrimPrefix(id, e.Session+":")
}

func shortDigest(d digest.Digest) string {
	const digits = 12
	text := d.String()
	return text[:min(len(text), len("sha256:")+digits)]
}

// joinWords puts what is not empty into a line.
func joinWords(words []string) string {
	var full []string
	for _, word := range words {
		if word != "" {
			full = append(full, word)
		}
	}
	return strings.Join(full, ", ")
}
