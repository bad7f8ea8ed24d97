package main

import (
	"cmp"
	"io"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// knownColumns is report.Columns for this process: 0 for a file or a pipe.
func (a *app) knownColumns(w io.Writer) int { return report.Columns(a.Env, w) }

// columns is how wide a line of w may be; 80 where that is not known.
func (a *app) columns(w io.Writer) int { return cmp.Or(a.knownColumns(w), 80) }

// folded breaks a line of a result at the width of a.out.
func (a *app) folded(line string) string { return a.foldedFor(a.out, line) }

// foldedFor is folded for a line of w.
func (a *app) foldedFor(w io.Writer, line string) string { return report.Wrap(line, a.knownColumns(w)) }
