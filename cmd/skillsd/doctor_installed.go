package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store"
)

// inspectTime is how long the doctor looks at what is installed: some ten thousand skills on a usual
// disk.
const inspectTime = 10 * time.Second

// maxInstalledProblems is how many problems of what is installed the doctor names; `skillsd verify` names all.
const maxInstalledProblems = 10

// checkInstalled holds the installed skills to the lock file.
func (o *doctorOptions) checkInstalled(ctx context.Context) []check {
	state, err := o.app.stateDir()
	if err != nil {
		return nil // which the check of the directories says
	}
	lock, err := install.ReadLock(install.LockFile(state))
	if err != nil {
		return []check{lockCheck(install.LockFile(state), err)}
	}
	if len(lock.Skills) == 0 && len(o.app.InstalledRoots()) == 0 {
		return []check{{Verdict: ok, Area: "installed", Fact: "no skill is installed"}}
	}
	trees, err := store.Open(state)
	if err != nil {
		return []check{{Verdict: fail, Area: "installed", Fact: "not verified: " + err.Error(), Hint: "make it writable for the user that runs skillsd: chown -R \"$(id -un)\" " + shellLine([]string{state})}}
	}
	defer trees.Close()
	found, err := install.Inspect(ctx, install.Config{State: state, Trees: trees, Progress: o.app.progress()}, inspectTime)
	o.app.endProgress()
	if err != nil {
		return []check{lockCheck(install.LockFile(state), err)}
	}
	return installedChecks(state, found)
}

// lockCheck is the line for an installation that cannot be looked at.
func lockCheck(file string, err error) check {
	c := check{Verdict: fail, Area: "installed", Fact: "not verified: " + err.Error(), Hint: "mend it, then run: skillsd verify"}
	if _, unreadable := errors.AsType[*install.LockError](err); unreadable {
		c.Fact, c.Hint = err.Error(), hintLock(file)
	}
	return c
}

// installedChecks are the lines for what was found.
func installedChecks(state string, found *install.Inspection) []check {
	var checks []check
	if found.Busy {
		return append(checks, check{Verdict: warn, Area: "installed", Fact: "not verified: another skillsd is changing what is installed", Hint: "when it is done run: skillsd verify"})
	}
	if found.Interrupted {
		checks = append(checks, check{Verdict: warn, Area: "installed", Fact: "a command that changed what is installed was interrupted", Hint: "undo it, run: skillsd verify"})
	}
	for _, p := range found.Problems[:min(len(found.Problems), maxInstalledProblems)] {
		c := check{Verdict: fail, Area: "installed", Fact: joinPath(p.Name, p.Path) + ": " + p.What, Hint: "run: skillsd sync"}
		switch p.Kind {
		case install.ProblemEarlier:
			c.Verdict, c.Hint = warn, "run: skillsd sync, or where that cannot get it: skillsd sync --drop-earlier"
		case install.ProblemStray:
			c.Hint = "nobody installed it; remove it: " + removeStray(state, p)
		}
		checks = append(checks, c)
	}
	if more := len(found.Problems) - maxInstalledProblems; more > 0 {
		checks = append(checks, check{Verdict: fail, Area: "installed", Fact: fmt.Sprintf("%s more", report.Plural(more, "problem")), Hint: "run: skillsd verify"})
	}
	if left := len(found.Lock.Skills) - found.Verified; left > 0 {
		checks = append(checks, check{Verdict: warn, Area: "installed", Fact: fmt.Sprintf("%s not verified within %v", report.Plural(left, "skill"), inspectTime), Hint: "run: skillsd verify"})
	}
	if len(checks) == 0 {
		files := 0
		for _, e := range found.Lock.Skills {
			files += len(e.Files)
		}
		checks = append(checks, check{Verdict: ok, Area: "installed", Fact: fmt.Sprintf("%s, %s: every byte as it was installed", report.Plural(found.Verified, "skill"), report.Plural(files, "file"))})
	}
	return checks
}

// removeStray is the command that removes what lies among the installed skills and was not installed.
func removeStray(state string, p install.Problem) string {
	return "rm -r " + shellLine([]string{filepath.Join(state, filepath.FromSlash(p.Dir))})
}
