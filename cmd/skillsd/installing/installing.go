// Package installing reports the outcome of an installation, for the commands that change installed skills:
// the remedy of a failure, the skills that are not served with reasons, and the changes to review. It reads
// the commands of other installers as commands of skillsd.
package installing

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// Failure adds an exit code and a remedy to an error of a plan.
func Failure(err error) error {
	if _, chosen := errors.AsType[*exit.Error](err); chosen {
		return err
	}
	fail := &exit.Error{Code: exit.Failure, Err: errors.New(report.Printable(err.Error()))}
	refused, isRefused := errors.AsType[*install.SourceError](err)
	fetch, isFetch := errors.AsType[*install.FetchError](err)
	bad, isArchive := errors.AsType[*archive.Error](err)
	lock, isLock := errors.AsType[*install.LockError](err)
	_, notAccepted := errors.AsType[*install.AcceptError](err)
	missing, isMissing := errors.AsType[*install.MissingError](err)
	_, isCorrupt := errors.AsType[*store.CorruptError](err)
	switch {
	case isRefused:
		fail.Code, fail.Hint = exit.Usage, refused.Hint
	case isLock:
		fail.Hint = report.HintLock(lock.File)
	case notAccepted:
		fail.Code, fail.Hint = exit.Usage, "`skillsd list` shows what needs a review, and its digest"
	case isMissing && len(missing.Skills) > 0:
		fail.Code, fail.Hint = exit.Usage, "name the skills that you mean: "+
			report.ShellLine(missing.Skills[:min(len(missing.Skills), report.MaxListed)]...)
	case isMissing:
		fail.Code, fail.Hint = exit.Usage, "`skillsd list` shows what is installed, and "+
			"`skillsd show NAME` where it came from"
	case errors.Is(err, install.ErrNoPrevious):
		fail.Hint = "only a skill that was updated can be rolled back: `skillsd update` updates it"
	case isCorrupt || errors.Is(err, store.ErrNotFound):
		fail.Hint = "`skillsd sync` restores the files of the lock file; then try again"
	case isFetch:
		fail.Hint = cmp.Or(fetch.Hint(), exit.SystemHint(err))
	case isArchive:
		fail.Err = errors.New(report.Printable(bad.Error()))
		fail.Hint = "ask its publisher for another archive, or install the directory that it was made of"
		if bad.Large {
			fail.Hint = "unpack it, and install the directory of a skill: skillsd install DIR"
		}
	default:
		fail.Hint = exit.SystemHint(err)
	}
	return fail
}

// NotServed returns the state of an installed skill that is not served, and the reason or the remedy. If the
// entry is served, its files are missing.
func NotServed(e *install.Entry) (state, reason string) {
	switch {
	case e.Served():
		return string(skills.StateUnavailable),
			"its files are missing: `skillsd sync` brings back what was installed"
	case !e.Quarantined():
		return string(skills.StateDisabled), "`skillsd enable " + report.ShellLine(e.Name) + "` serves it"
	case e.Verdict == policy.Refuse:
		return report.StateQuarantined, "it " + report.Reasons(e.Verdict, e.Why)
	}
	return report.StateQuarantined, "it " + report.Reasons(e.Verdict, e.Why) + "; " + HintQuarantined(e)
}

// HintQuarantined returns the advice for an installed skill that no user has accepted.
func HintQuarantined(e *install.Entry) string {
	if e.Verdict == policy.Refuse {
		return "remove it: skillsd remove " + report.ShellLine(e.Name)
	}
	return "review it, then: skillsd update --accept " + report.ShellLine(e.Name+"@"+e.Tree.String())
}

// Show prints what is to review in a change that waits to be accepted, in the installation of a state
// directory.
func Show(w io.Writer, state string, c *install.Change) {
	fmt.Fprintf(w, "%s %s\n", c.Name, report.Printable(report.Reasons(c.After.Verdict, c.After.Why)))
	fmt.Fprintf(w, "  from %s\n", report.Printable(report.OriginText(c.After)))
	fmt.Fprintf(w, "  files: %s\n", filepath.Join(config.TreesDir(state), c.After.Tree.Encoded()))
}

// Waiting returns a warning for each skill whose new content is not served, with a hint, which may be empty.
func Waiting(plan *install.Plan, dry bool) (rows [][2]string) {
	for _, c := range slices.Concat(plan.Changes, plan.Held) {
		if !c.NewContent() || !c.After.Quarantined() {
			continue
		}
		text, hint := "is installed and not served: it", HintQuarantined(c.After)
		switch {
		case c.Before != nil && c.Before.Served():
			text, hint = "was not updated: the new version", "review it, then: "+
				update(c.Name, c.Moves())+" --accept "+c.After.Tree.String()
		case dry:
			text, hint = "would not be served: it", ""
		}
		rows = append(rows, [2]string{c.Name + " " + text + " " +
			report.Reasons(c.After.Verdict, c.After.Why), hint})
	}
	return rows
}
