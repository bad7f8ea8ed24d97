package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// elided stands for what is the same on both sides.
const elided = "…"

// lineDiff is the difference of two texts in one unified hunk. What both have is not shown, be it a
// line or a part of one: it may be somebody's secret.
func lineDiff(name string, before, after []byte) string {
	if bytes.Equal(before, after) {
		return ""
	}
	head := commonPrefix(before, after)
	tail := commonSuffix(before[head:], after[head:])
	a, b := changedLines(before, head, tail), changedLines(after, head, tail)
	first := bytes.Count(before[:head], []byte("\n"))
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n@@ -%s +%s @@\n", name, name, hunkRange(first, len(a)), hunkRange(first, len(b)))
	for len(a) > 0 || len(b) > 0 {
		switch same := slices.Index(b, firstOf(a)); {
		case len(a) > 0 && same == 0:
			out.WriteString(" " + elided + "\n")
			a, b = a[1:], b[1:]
		case len(a) > 0 && same < 0:
			out.WriteString("-" + a[0] + "\n")
			a = a[1:]
		default:
			out.WriteString("+" + b[0] + "\n")
			b = b[1:]
		}
	}
	return out.String()
}

// firstOf is the first line, and what is no line when there is none.
func firstOf(lines []string) string {
	if len(lines) == 0 {
		return "\n"
	}
	return lines[0]
}

// hunkRange is a range of lines. One without lines is named by the line before it.
func hunkRange(first, n int) string {
	if n == 0 {
		return fmt.Sprintf("%d,0", first)
	}
	return fmt.Sprintf("%d,%d", first+1, n)
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// changedLines are the lines that hold anything between a common head and a common tail, fit for a
// terminal, with the parts elided that belong to those. A last line without its end says so.
func changedLines(text []byte, head, tail int) []string {
	end := len(text) - tail
	from, to := lineStart(text, head), end
	if to > from && text[to-1] != '\n' || from < head {
		to = afterLine(text, to)
	}
	if from >= to {
		return nil
	}
	part := bytes.Clone(text[head:end])
	if shared := text[from:head]; len(bytes.TrimSpace(shared)) > 0 {
		part = append([]byte(indentAt(text, head)+elided), part...)
	} else {
		part = append(bytes.Clone(shared), part...)
	}
	if shared := text[end:to]; len(bytes.TrimSpace(shared)) > 0 && !bytes.HasSuffix(part, []byte(elided)) {
		part = append(part, elided...)
	}
	part = bytes.TrimSuffix(bytes.TrimSuffix(part, []byte("\n")), []byte("\r"))
	var lines []string
	for line := range bytes.SplitSeq(part, []byte("\n")) {
		lines = append(lines, report.Printable(strings.ReplaceAll(strings.TrimSuffix(string(line), "\r"), "\t", "    ")))
	}
	if text[to-1] != '\n' {
		lines[len(lines)-1] += "\n\\ No newline at end of file"
	}
	return lines
}
