package catalog

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"github.com/skillsd/skillsd/skills"
)

// DefaultLead explains the list and its use to a model that reads files.
const DefaultLead = "These skills have instructions for particular tasks. When a task matches the " +
	"description of one, read the file at its location first; paths in it are relative to the directory " +
	"of that file."

// Location returns the path of a skill's SKILL.md, with links in its directory resolved, or the skill:// URI
// of a skill whose root is not a directory of this machine.
func Location(sk *skills.Skill) string {
	name := cmp.Or(sk.File, "SKILL.md")
	if sk.Root == nil || sk.Root.FS != nil {
		return sk.URI(name)
	}
	dir := filepath.Join(sk.Root.Dir, filepath.FromSlash(sk.Dir))
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return filepath.Join(dir, name)
}

// LoadAndRender scans roots and renders the skills that may be offered to a model. It is all that a program
// needs to show a model its skills: the list has a lead, DefaultLead if it is empty and there is room, and
// the location of each skill. Skills that the scan pins or shortens are added to the options. Skills that the
// scan skips are omitted silently; a program that reports them calls [skills.Scan], [Offered] and [Render]
// itself.
//
// Errors: the errors of [skills.Scan].
func LoadAndRender(ctx context.Context, roots []skills.Root, scan *skills.ScanOptions, opts Options) (
	string, error) {
	snapshot, err := skills.Scan(ctx, roots, scan)
	if err != nil {
		return "", err
	}
	all, chosen := Offered(snapshot)
	opts.Budget = cmp.Or(opts.Budget, DefaultBudget)
	if opts.Location == nil {
		opts.Location = Location
	}
	opts.Pinned = slices.Concat(chosen.Pinned, opts.Pinned)
	opts.NameOnly = slices.Concat(chosen.NameOnly, opts.NameOnly)
	if opts.Lead == "" {
		// The list is more important than the lead.
		opts.Lead = DefaultLead
		if text := Render(all, opts); text != "" {
			return text, nil
		}
		opts.Lead = ""
	}
	return Render(all, opts), nil
}

// Offered returns the skills of a snapshot that may be offered to a model, and options with the operator's
// choices for them, without a budget.
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
