package catalog

import (
	"cmp"
	"context"

	"github.com/skillsd/skillsd/skills"
)

// DefaultBudget is the budget of LoadAndRender if none is given, in characters. Clients show as much of
// the description of a tool.
const DefaultBudget = 4_096

// LoadOptions are the options of LoadAndRender. The zero value is fine.
type LoadOptions struct {
	Format Format
	Budget int // see Options.Budget; 0: DefaultBudget
	// Pinned and NameOnly are paths as in Options. The skills that Scan pins or shortens are added.
	Pinned, NameOnly []string
	Tail             func(n int) string            // see Options.Tail
	Location         func(sk *skills.Skill) string // see Options.Location
	Scan             *skills.ScanOptions           // nil: defaults
}

// LoadAndRender scans roots and renders the skills that may be offered to a model. A program that only
// shows a model its skills needs nothing else. Skills that the scan skips are left out silently; a
// program that reports them calls [skills.Scan], [Offered] and [Render] itself.
//
// Errors: as for [skills.Scan].
func LoadAndRender(ctx context.Context, roots []skills.Root, opts LoadOptions) (string, error) {
	snapshot, err := skills.Scan(ctx, roots, opts.Scan)
	if err != nil {
		return "", err
	}
	all, render := Offered(snapshot)
	render.Format, render.Budget = opts.Format, cmp.Or(opts.Budget, DefaultBudget)
	render.Pinned = append(render.Pinned, opts.Pinned...)
	render.NameOnly = append(render.NameOnly, opts.NameOnly...)
	render.Tail, render.Location = opts.Tail, opts.Location
	return Render(all, render), nil
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
