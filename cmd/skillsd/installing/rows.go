package installing

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

// Mark adds the origins of installed skills to rows of a snapshot, with warnings about them.
func Mark(
	ctx context.Context, rows []report.SkillRow, snapshot *skills.Snapshot, lock *install.Lock, state string,
) {
	held := ReadHeld(state, lock)
	for i := range rows {
		row := &rows[i]
		if !install.IsRoot(state, row.Root) {
			continue
		}
		e, inside := lock.Holding(row.Path)
		switch {
		case e == nil:
			row.Reasons = append(row.Reasons, "is not in the lock file: see `skillsd doctor`")
			row.NeedsLook = true
		case row.TreeDigest != "" && (inside == "" && e.Tree != row.TreeDigest ||
			inside != "" && isTampered(ctx, snapshot.Skill(row.Path), lock.In(state))):
			row.Reasons = append(row.Reasons, "was changed where it is installed, and not by an update: "+
				"`skillsd sync` brings back what was installed")
			row.NeedsLook = true
			// A changed skill still came from its origin, so the row shows that too.
			fallthrough
		default:
			row.Origin = report.OriginText(e)
			if h := held[e.Name]; h != nil && inside == "" {
				row.Reasons = append(row.Reasons, h.Text()+"; "+h.Hint(e.Name))
				row.NeedsLook = true
			}
		}
		if e != nil && inside == "" {
			row.Taken = e.Taken
		}
	}
}

// isTampered reports whether a skill, if it is served, is not what was installed.
func isTampered(ctx context.Context, sk *skills.Skill, installed install.Installed) bool {
	return sk != nil && installed.Tampered(ctx, sk)
}

// WithInstalled adds a row, from the lock file, for each skill installed in a state directory that is not
// served.
func WithInstalled(rows []report.SkillRow, lock *install.Lock, dir string) []report.SkillRow {
	listed := map[string]bool{}
	for i := range rows {
		listed[rows[i].Path] = true
	}
	for _, e := range lock.Skills {
		if e.Served() && (listed[e.Name] || !lock.In(dir).Missing(e.Name)) {
			continue
		}
		state, reason := NotServed(e)
		row := report.EmptyRow(e.Name, e.Name, state)
		row.Tier, row.Origin, row.TreeDigest = e.Tier.String(), report.OriginText(e), e.Tree
		row.Reasons, row.Taken = []string{reason}, e.Taken
		row.LastModified = e.InstalledAt.UTC().Format(time.RFC3339)
		for _, f := range e.Files {
			if !strings.EqualFold(f.Path, "SKILL.md") {
				row.Resources = append(row.Resources, skills.Resource{Path: f.Path, Digest: f.Digest})
			}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b report.SkillRow) int { return strings.Compare(a.Path, b.Path) })
	return rows
}
