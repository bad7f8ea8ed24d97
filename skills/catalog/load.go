package catalog

import (
	"cmp"
	"context"

	"github.com/skillsd/skillsd/skills"
)

// DefaultBudget is the budget of LoadAndRender where none is given, in characters. It is what
// clients show of the description of a tool.
const DefaultBudget = 4_096

// LoadOptions say what to load and how to render it. The zero value is fine.
type LoadOptions struct {
	Format Format
	Budget int // see Options.Budget; 0: DefaultBudget
	// Pinned and NameOnly are paths as in Options; those of Scan, which may also be names, are added.
	Pinned, NameOnly []string
	Tail             func(n int) string            // see Options.Tail
	Location         func(sk *skills.Skill) string // see Options.Location
	Scan             *skills.ScanOptions           // nil: defaults
}

// LoadAndRender scans roots and renders the skills that may be offered to a model: all that a
// program needs to tell a model of its skills. What was skipped in the scan is skipped silently; a
// program that is to say why calls [skills.Scan], [Offered] and [Render] itself.
//
// Errors: those of skills.Scan.
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
// budget that hold what the operator chose for them.
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
