package catalog

import (
	"cmp"
	"context"
	"slices"

	"github.com/skillsd/skillsd/skills"
)

// DefaultBudget is the budget of LoadAndRender if none is given, in characters. Clients show as much of
// the description of a tool.
const DefaultBudget = 4_096

// LoadAndRender scans roots and renders the skills that may be offered to a model. A program that only
// shows a model its skills needs nothing else. The skills that the scan pins or shortens are added to the
// options. Skills that the scan skips are left out silently; a program that reports them calls
// [skills.Scan], [Offered] and [Render] itself.
//
// Errors: as for [skills.Scan].
func LoadAndRender(ctx context.Context, roots []skills.Root, scan *skills.ScanOptions, opts Options) (
	string, error) {
	snapshot, err := skills.Scan(ctx, roots, scan)
	if err != nil {
		return "", err
	}
	all, chosen := Offered(snapshot)
	opts.Budget = cmp.Or(opts.Budget, DefaultBudget)
	opts.Pinned = slices.Concat(chosen.Pinned, opts.Pinned)
	opts.NameOnly = slices.Concat(chosen.NameOnly, opts.NameOnly)
	return Render(all, opts), nil
}

// Offered returns the skills of a snapshot that may be offered to a model, and options without a
// budget that have the operator's choices for them.
func Offered(snapshot *skills.Snapshot) ([]*skills.Skill, Options) {
	all := make([]*skills.Skill, 0, len(snapshot.Skills))
	var opts Options
	for _, sk := range snapshot.Skills {
		if sk.Hidden() {
			continue
		}
		all = append(all, sk)
		status := snapshot.Status(sk)
		if status.Pinned {
			opts.Pinned = append(opts.Pinned, sk.Path)
		}
		if status.NameOnly {
			opts.NameOnly = append(opts.NameOnly, sk.Path)
		}
	}
	return all, opts
}
