package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/install"
)

// markInstalled says of installed skills where they came from, and what is odd about that.
func (a *app) markInstalled(rows []skillRow) (*install.Lock, error) {
	state, err := a.stateDir()
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
func withInstalled(rows []skillRow, lock *install.Lock) []skillRow {
	for _, e := range lock.Skills {
		if e.Enabled {
			continue
		}
		row := skillRow{
			Path: e.Name, Name: e.Name, Tier: e.Tier.String(), Origin: originText(e), State: stateOff, Reasons: []string{fmt.Sprintf("`skillsd enable %s` serves it", shellLine([]string{e.Name}))},
			TreeDigest: e.Tree, LastModified: e.InstalledAt.UTC().Format(time.RFC3339), Tags: []string{}, Resources: []resourceRow{}, Scripts: []scriptRow{},
			Shadows: []shadowRow{}, Diagnostics: []diagnosticRow{}, Violations: []problem{},
		}
		for _, f := range e.Files {
			if f.Path != "SKILL.md" && f.Path != "skill.md" {
				row.Resources = append(row.Resources, resourceRow{Path: f.Path, Digest: f.Digest})
			}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b skillRow) int { return strings.Compare(a.Path, b.Path) })
	return rows
}

// stateOff is the state of an installed skill that is disabled.
const stateOff = "disabled"

// offOr is the error of a skill that is not found: that it is installed and disabled, or another.
func (a *app) offOr(name string, other error) error {
	lock, err := a.readLock()
	if err != nil {
		return other
	}
	if e := lock.Find(name); e != nil && !e.Enabled {
		return &exitError{Code: exitFailure, Err: fmt.Errorf("%s is installed and disabled (from %s)", name, report.Printable(originText(e))), Hint: "`skillsd enable " + shellLine([]string{name}) + "` serves it"}
	}
	return other
}
