package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/doctor"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store"
)

// markInstalled adds to installed skills where they came from, and what is odd about that.
func (a *app) markInstalled(rows []report.SkillRow) (*install.Lock, error) {
	state, err := a.StateDir()
	if err != nil {
		return &install.Lock{}, nil // without a place for them nothing is installed
	}
	lock, err := a.readLock()
	if err != nil {
		return nil, lockFailure(err)
	}
	for i := range rows {
		row := &rows[i]
		below, err := filepath.Rel(filepath.Dir(install.RootDir(state, 0)), row.Root)
		if err != nil || !filepath.IsLocal(below) {
			continue
		}
		name, _, nested := strings.Cut(row.Path, "/")
		e := lock.Find(name)
		switch {
		case e == nil:
			row.Reasons = append(row.Reasons, "is not in the lock file: see `skillsd verify`")
		case !nested && row.TreeDigest != "" && e.Tree != row.TreeDigest:
			row.Reasons = append(row.Reasons, "changed since it was installed: see `skillsd verify`")
			fallthrough
		default:
			row.Origin = originText(e)
		}
	}
	return lock, nil
}

// withInstalled adds a row for each installed skill that is disabled, by what the lock file says.
func withInstalled(rows []report.SkillRow, lock *install.Lock) []report.SkillRow {
	for _, e := range lock.Skills {
		if e.Enabled {
			continue
		}
		row := report.EmptyRow(e.Name, e.Name, stateOff)
		row.Tier, row.Origin, row.TreeDigest = e.Tier.String(), originText(e), e.Tree
		row.Reasons = []string{"`skillsd enable " + report.ShellLine(e.Name) + "` serves it"}
		row.LastModified = e.InstalledAt.UTC().Format(time.RFC3339)
		for _, f := range e.Files {
			if f.Path != "SKILL.md" && f.Path != "skill.md" {
				row.Resources = append(row.Resources, skills.Resource{Path: f.Path, Digest: f.Digest})
			}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b report.SkillRow) int { return strings.Compare(a.Path, b.Path) })
	return rows
}

// stateOff is the state of an installed skill that is disabled.
const stateOff = "disabled"

// offOr returns the error for a skill that was not found: that it is installed and disabled, or another.
func (a *app) offOr(name string, other error) error {
	lock, err := a.readLock()
	if err != nil {
		return other
	}
	if e := lock.Find(name); e != nil && !e.Enabled {
		return exit.Errorf(exit.Failure, "`skillsd enable "+report.ShellLine(name)+"` serves it",
			"%s is installed and disabled (from %s)", name, report.Printable(originText(e)))
	}
	return other
}

// inspectTime is how long the doctor verifies what is installed: some ten thousand skills on a usual
// disk.
const inspectTime = 10 * time.Second

// maxInstalledProblems is how many problems of the installation the doctor names; `skillsd verify` names
// all.
const maxInstalledProblems = 10

// checkInstalled compares the installed skills with the lock file.
func (a *app) checkInstalled(ctx context.Context) (checks []doctor.Check) {
	add := func(verdict, fact, hint string) []doctor.Check {
		checks = append(checks, doctor.Check{Verdict: verdict, Area: "installed", Fact: fact, Hint: hint})
		return checks
	}
	state, err := a.StateDir()
	if err != nil {
		return nil // the check of the directories reports it
	}
	failed := func(err error) []doctor.Check {
		if _, unreadable := errors.AsType[*install.LockError](err); unreadable {
			return add(doctor.Fail, err.Error(), hintLock(install.LockFile(state)))
		}
		return add(doctor.Fail, "not verified: "+err.Error(), "repair it, then run: skillsd verify")
	}
	lock, err := a.readLock()
	if err != nil {
		return failed(err)
	}
	if len(lock.Skills) == 0 && len(a.InstalledRoots()) == 0 {
		return add(doctor.OK, "no skill is installed", "")
	}
	trees, err := store.Open(state)
	if err != nil {
		return add(doctor.Fail, "not verified: "+err.Error(),
			"make it writable for the user that runs skillsd: "+
				"chown -R \"$(id -un)\" "+report.ShellLine(state))
	}
	defer trees.Close()
	line := report.NewStatusLine(a.err)
	cfg := install.Config{State: state, Trees: trees, Progress: line.Count}
	found, err := install.Inspect(ctx, cfg, inspectTime)
	line.Clear()
	if err != nil {
		return failed(err)
	}
	if found.Busy {
		return add(doctor.Warn, "not verified: another skillsd is changing what is installed",
			"when it is done run: skillsd verify")
	}
	if found.Interrupted {
		add(doctor.Warn, "a command that changed what is installed was interrupted",
			"undo it, run: skillsd verify")
	}
	for _, p := range found.Problems[:min(len(found.Problems), maxInstalledProblems)] {
		fact := report.JoinPath(p.Name, p.Path) + ": " + p.What
		switch p.Kind {
		case install.ProblemEarlier:
			add(doctor.Warn, fact, "run: skillsd sync, or where that cannot get it: skillsd sync "+
				"--drop-earlier")
		case install.ProblemStray:
			add(doctor.Fail, fact, "nobody installed it; remove it: rm -r "+
				report.ShellLine(strayPath(state, p)))
		default:
			add(doctor.Fail, fact, "run: skillsd sync")
		}
	}
	if more := len(found.Problems) - maxInstalledProblems; more > 0 {
		add(doctor.Fail, report.Plural(more, "problem")+" more", "run: skillsd verify")
	}
	if left := len(found.Lock.Skills) - found.Verified; left > 0 {
		add(doctor.Warn, fmt.Sprintf("%s not verified within %v", report.Plural(left, "skill"), inspectTime),
			"run: skillsd verify")
	}
	if len(checks) == 0 {
		add(doctor.OK, fmt.Sprintf("%s, %s: every byte as it was installed",
			report.Plural(found.Verified, "skill"), report.Plural(fileCount(found.Lock), "file")), "")
	}
	return checks
}

// strayPath returns where an entry is that was not installed.
func strayPath(state string, p install.Problem) string {
	return filepath.Join(state, filepath.FromSlash(p.Dir))
}

// originText returns where an installed skill came from, in one line.
func originText(e *install.Entry) string {
	text := e.Origin.Source
	if e.Origin.Path != "." {
		text += " " + e.Origin.Path
	}
	if e.Origin.Commit != "" {
		text += " at " + e.Origin.Commit[:12]
	}
	if e.Origin.Ref != "" && e.Origin.Ref != e.Origin.Commit {
		text += " (" + e.Origin.Ref + ")"
	}
	return text
}

// collectTime is how long the records of sessions are searched for trees that they name. A server that
// starts meanwhile waits.
const collectTime = 3 * time.Second

// collectTrees removes the stored trees that neither the lock file nor a session names. While a server
// runs, or if the records cannot be read, all trees stay, which costs space only.
func (a *app) collectTrees(ctx context.Context, i *install.Installer) {
	state, errState := a.StateDir()
	records, errRecords := a.ArtifactDir()
	if errState != nil || errRecords != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	n, err := i.Collect(ctx, func(trees map[digest.Digest]bool) error {
		// Servers without an artifact root have their records in the state directory.
		for _, dir := range []string{records, filepath.Join(state, "sessions")} {
			sessions, err := filestore.OpenReader(dir)
			if err == nil {
				err = errors.Join(sessions.DropNamed(within, trees), sessions.Close())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && n > 0 {
		fmt.Fprintf(a.err, "skillsd: note: removed %s that nothing needs any more from the store\n",
			report.Plural(n, "tree"))
	}
}
