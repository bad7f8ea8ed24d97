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
		if e == nil {
			warn(row, "is not in the lock file: see `skillsd doctor`")
			continue
		}
		isTampered := row.TreeDigest != "" && e.Tree != row.TreeDigest
		if inside != "" {
			sk := snapshot.Skill(row.Path)
			isTampered = sk != nil && lock.In(state).Tampered(ctx, sk)
		}
		if isTampered {
			warn(row, "was changed where it is installed, and not by an update: "+
				"`skillsd sync` brings back what was installed")
		}
		// A changed skill still came from its origin, so the row shows that too.
		row.Origin = report.OriginText(e)
		if inside != "" {
			continue
		}
		row.Taken = e.Taken
		if h := held[e.Name]; h != nil {
			warn(row, h.Text()+"; "+h.Hint(e.Name))
		}
	}
}

// warn adds a reason for a user to look at a row.
func warn(row *report.SkillRow, reason string) {
	row.Reasons = append(row.Reasons, reason)
	row.NeedsLook = true
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
