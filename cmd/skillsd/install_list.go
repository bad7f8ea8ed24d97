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

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

// markInstalled adds to installed skills where they came from, and what is odd about that.
func (a *app) markInstalled(rows []report.SkillRow) (*install.Lock, error) {
	state, err := a.StateDir()
	if err != nil {
		return &install.Lock{}, nil // without a place for them nothing is installed
	}
	lock, err := a.readLock()
	if err != nil {
		return nil, installing.Failure(err)
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
			row.Origin = report.OriginText(e)
		}
	}
	return lock, nil
}

// withInstalled adds a row for each installed skill that is not served, by what the lock file says.
func withInstalled(rows []report.SkillRow, lock *install.Lock) []report.SkillRow {
	for _, e := range lock.Skills {
		if e.Served() {
			continue
		}
		state, reason := installing.NotServed(e)
		row := report.EmptyRow(e.Name, e.Name, state)
		row.Tier, row.Origin, row.TreeDigest = e.Tier.String(), report.OriginText(e), e.Tree
		row.Reasons = []string{reason}
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

// offOr returns the error for a skill that was not found: that it is installed and not served, or another.
func (a *app) offOr(name string, other error) error {
	lock, err := a.readLock()
	if err != nil {
		return other
	}
	if e := lock.Find(name); e != nil && !e.Served() {
		state, reason := installing.NotServed(e)
		return exit.Errorf(exit.Failure, report.Printable(reason),
			"%s is installed and %s (from %s)", name, state, report.Printable(report.OriginText(e)))
	}
	return other
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
