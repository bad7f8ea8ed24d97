package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills/source/signed"
)

// Update fetches the sources of the named skills again, or of all skills if no names are given, and stages
// the skills that changed. A skill that cannot be updated is refused and keeps its version, and so is one
// whose served files were changed: an update would overwrite somebody's work, or hide who did that. A skill
// that is no longer where it came from is refused with a [MovedError], unless moves has another decision.
//
// Errors: *MissingError; errors of ctx; system errors.
func (i *Installer) Update(ctx context.Context, names []string, moves Moves, access Access) (*Plan, error) {
	// Any skill of an index or a collection may be the one that an installed skill has become. An update
	// accepts no signer but the one in the lock file or in SignedBy, so it offers none.
	access.Offered, access.all = nil, true
	entries, err := i.named(names)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		entries = i.lock.Skills
	}
	// An update of changed files would overwrite somebody's work, or hide who changed them.
	entries, tampered, err := i.intact(ctx, entries)
	if err != nil {
		return nil, err
	}
	order, groups := byPart(entries, access.SignedBy)
	return i.newPlan(func(p *Plan) (err error) {
		p.Refused = tampered
		at := p.newSources(access)
		defer func() { err = errors.Join(err, at.Close()) }()
		for _, part := range order {
			if err := p.updateFrom(ctx, at, part, groups[part], moves); err != nil {
				return err
			}
		}
		if err := p.settle(ctx, access, moves); err != nil {
			return err
		}
		p.noteTaken()
		slices.SortFunc(p.Changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
		return p.judge(ctx)
	})
}

// byPart groups entries by the part of a source that they are in, and returns these parts in the order of the
// entries: the skills of one share a fetch. A signer, if not empty, replaces that in an entry.
func byPart(entries []*Entry, by signed.Signer) (order []Origin, groups map[Origin][]*Entry) {
	groups = map[Origin][]*Entry{}
	for _, e := range entries {
		part := e.Origin
		part.Path, part.Commit, part.Digest, part.Identity = cmp.Or(part.Subdir, "."), "", "", ""
		part.Signer = cmp.Or(by, part.Signer)
		if groups[part] == nil {
			order = append(order, part)
		}
		groups[part] = append(groups[part], e)
	}
	return order, groups
}

// intact returns the entries whose served files are those that were installed, and refusals of the others.
func (i *Installer) intact(ctx context.Context, entries []*Entry) ([]*Entry, []Refusal, error) {
	problems := make([][]Problem, len(entries))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallel())
	for n, e := range entries {
		group.Go(func() (err error) {
			problems[n], err = i.verifyServed(within, e)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	var left []*Entry
	var refused []Refusal
	for n, e := range entries {
		if len(problems[n]) == 0 {
			left = append(left, e)
			continue
		}
		refused = append(refused, Refusal{e.Name, e, e.Origin.Path, tamperedReason(problems[n])})
	}
	return left, refused, nil
}

// tamperedReason returns why a skill with problems where it is served is not updated.
func tamperedReason(problems []Problem) string {
	files := make([]string, len(problems))
	for n, p := range problems {
		files[n] = strings.TrimSpace(p.Path + " " + p.What)
	}
	slices.Sort(files)
	return "files of it were changed where it is installed, and not by an update (" + listed(files, "") +
		"): `skillsd sync` brings back what was installed"
}

// updateFrom stages the changed skills of one source. Errors of single skills become refusals.
func (p *Plan) updateFrom(
	ctx context.Context, at *sources, part Origin, entries []*Entry, moves Moves,
) error {
	entries = slices.DeleteFunc(entries, func(e *Entry) bool {
		same := e.Origin.Signer == part.Signer && kinds[e.Origin.Kind].unchanged(ctx, p, e, at.access)
		if same {
			p.Changes = append(p.Changes, Change{Name: e.Name, Before: e, After: e, lockOnly: true})
		}
		return same
	})
	if len(entries) == 0 {
		return nil
	}
	from, failed := at.fetch(ctx, part)
	if _, isGone := errors.AsType[*directoryError](failed); isGone {
		from, failed = at.fetch(ctx, part.whole()) // its skills may be elsewhere now
	}
	if failed != nil && ctx.Err() == nil {
		moved := p.branchGone(ctx, part, at.access)
		if moved != nil && moves.Follow {
			part.Ref = moved.To
			return p.updateFrom(ctx, at, part, entries, moves)
		}
		if moved != nil {
			failed = moved
		}
	}
	if ctx.Err() != nil {
		return cmp.Or(failed, ctx.Err())
	}
	if failed != nil {
		// An update of several sources goes on with the others.
		for _, e := range entries {
			p.refuse(e, failed)
		}
		return nil
	}
	p.Notes = append(p.Notes, from.notes...)
	for _, e := range entries {
		if err := p.updateOne(ctx, at, from, e, part.Ref); err != nil {
			return err
		}
	}
	return nil
}

// updateOne stages a skill of a fetched source if it changed. It refuses one that cannot be updated, and
// notes one that the source no longer has at its path. ref is the branch from now on.
//
// Errors: errors of ctx.
func (p *Plan) updateOne(ctx context.Context, at *sources, from *fetched, e *Entry, ref string) error {
	to := e.Origin
	to.Ref = ref // another one, if the branch of the entry is gone
	c, failed := p.update(ctx, from, e, to, at.access)
	if _, isAbsent := errors.AsType[*absentError](failed); isAbsent {
		failed = p.vanish(ctx, at, from, e, to)
		if failed == nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return cmp.Or(failed, ctx.Err())
	}
	if failed != nil {
		p.refuse(e, failed)
		return nil
	}
	p.Changes = append(p.Changes, c)
	return nil
}

// refuse makes a refusal of an error of one skill.
func (p *Plan) refuse(e *Entry, err error) {
	reason := err.Error()
	if source, ok := errors.AsType[*SourceError](err); ok && source.Hint != "" {
		reason += ": " + source.Hint
	}
	p.Refused = append(p.Refused, Refusal{e.Name, e, e.Origin.Path, reason})
}

// update stages the skill of an entry from the origin to if its files changed; else only the origin in the
// lock file may change.
func (p *Plan) update(
	ctx context.Context, from *fetched, e *Entry, to Origin, access Access,
) (Change, error) {
	there, err := from.find(to.Path)
	if err != nil {
		return Change{}, err
	}
	there = from.inPlugin(there, e.Plugin)
	files, err := from.linked(ctx, there.skill)
	if err != nil {
		return Change{}, err
	}
	by, identity, err := from.signer(ctx, files, access)
	if err != nil {
		return Change{}, err
	}
	files, err = from.contents(ctx, there.skill, there.plugin, by != "")
	if err != nil {
		return Change{}, err
	}
	c := Change{Name: e.Name, Before: e, After: e, lockOnly: true}
	if files.tree == e.Tree {
		now := to
		now.Commit, now.Digest = from.origin.Commit, from.digestOf(to.Path)
		now.Signer, now.Identity = by, identity
		facts := cmp.Or(factsOf(there.plugin), e.Plugin)
		if now != e.Origin || !facts.equal(e.Plugin) {
			same := *e
			same.Origin, same.Plugin = now, facts
			c.After = &same
		}
		return c, nil
	}
	p.elsewhere = append(p.elsewhere, files)
	version, left, err := p.ready(ctx, from, files, e.Name, "")
	if err != nil {
		return Change{}, errors.Join(err, p.batch.Drop(p.stagedDir(e.Name)))
	}
	version.Commit, version.Digest = from.origin.Commit, from.digestOf(to.Path)
	version.Plugin = cmp.Or(factsOf(there.plugin), e.Plugin)
	if by != e.Origin.Signer || identity != e.Origin.Identity || !to.Same(e.Origin) {
		origin := to
		origin.Signer, origin.Identity = by, identity
		version.Origin = &origin
	}
	return Change{Name: e.Name, Before: e, After: e.with(version).keepingCleared(e), Left: left}, nil
}

// scanOld reads the stored versions of the skills that change, so that edits made in place are ignored, and
// the versions that were cleared before those that wait.
func (p *Plan) scanOld(ctx context.Context) (err error) {
	for _, c := range p.Changes {
		if c.lockOnly || c.Before == nil || !c.NewContent() {
			continue
		}
		if err := p.copyStored(ctx, "before", c.Name, c.Before.Tree); err != nil {
			return err
		}
		if base := c.Before.cleared(); base != nil && c.Before.Quarantined() {
			if err := p.copyStored(ctx, "base", c.Name, base.Tree); err != nil {
				return err
			}
		}
	}
	p.base, err = p.scan(ctx, "base")
	if err != nil {
		return err
	}
	p.Old, err = p.scan(ctx, "before")
	return err
}

// copyStored copies a stored tree to a directory of the plan, to be scanned there. If the store lost the
// tree, the skill is missing there, and what follows it is assessed as a first version.
func (p *Plan) copyStored(ctx context.Context, dir, name string, sum digest.Digest) error {
	tree, lost := p.i.cfg.Trees.Tree(ctx, sum)
	if lost != nil {
		return ctx.Err()
	}
	at, err := p.room(dir, name)
	if err != nil {
		return err
	}
	return tree.Copy(ctx, p.i.root, at)
}

// named returns the entries with the given names, sorted and without duplicates.
func (i *Installer) named(names []string) ([]*Entry, error) {
	var entries []*Entry
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		e := i.lock.Find(name)
		if e == nil {
			return nil, &MissingError{name, i.lock.ofPlugin(name)}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// MissingError reports a name under which no skill is installed.
type MissingError struct {
	Name   string
	Skills []string // of the plugin with the name; empty if there is none
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("no skill is installed as %q", clip(e.Name))
	if len(e.Skills) > 0 {
		text += ": that is a plugin, with " + listed(e.Skills, "")
	}
	return text
}

// ofPlugin returns the names of the skills of a plugin.
func (l *Lock) ofPlugin(name string) (skills []string) {
	for _, e := range l.Skills {
		if e.Plugin != nil && strings.EqualFold(e.Plugin.Name, name) {
			skills = append(skills, e.Name)
		}
	}
	return skills
}

// ErrNoPrevious is the error of a rollback of a skill that was never updated.
var ErrNoPrevious = errors.New("there is no earlier version")

// edit returns a plan that changes installed skills; change returns the new entry, or nil to remove it.
// Applying the plan fails with store.ErrNotFound or *store.CorruptError if the store lost a tree that is to
// be served.
func (i *Installer) edit(names []string, change func(e *Entry) (*Entry, error)) (*Plan, error) {
	entries, err := i.named(names)
	if err != nil {
		return nil, err
	}
	return i.newPlan(func(p *Plan) error {
		for _, before := range entries {
			after, err := change(before)
			if err != nil {
				return fmt.Errorf("%s: %w", before.Name, err)
			}
			if after != before {
				p.Changes = append(p.Changes, Change{Name: before.Name, Before: before, After: after})
			}
		}
		p.prepare = func(ctx context.Context) error {
			for _, c := range p.Changes {
				// A version that waits may be accepted before Apply.
				if c.After == nil || !c.After.Served() && !c.KeepsServed() {
					continue
				}
				if err := p.stageStored(ctx, c.After); err != nil {
					return fmt.Errorf("%s: %w", c.Name, err)
				}
			}
			return nil
		}
		return nil
	})
}

// Remove removes skills from the served directories and the lock file. Their trees stay in the store until
// Collect removes them.
//
// Errors: *MissingError.
func (i *Installer) Remove(names ...string) (*Plan, error) {
	return i.edit(names, func(*Entry) (*Entry, error) { return nil, nil })
}

// Enable serves disabled skills again.
//
// Errors: *MissingError.
func (i *Installer) Enable(names ...string) (*Plan, error) { return i.enable(names, true) }

// Disable stops serving skills and keeps them in the lock file and the store.
//
// Errors: *MissingError.
func (i *Installer) Disable(names ...string) (*Plan, error) { return i.enable(names, false) }

func (i *Installer) enable(names []string, yes bool) (*Plan, error) {
	return i.edit(names, func(e *Entry) (*Entry, error) {
		if e.Enabled == yes {
			return e, nil
		}
		changed := *e
		changed.Enabled = yes
		return &changed, nil
	})
}

// Rollback returns to the version before the last update. A second Rollback undoes the first.
//
// Errors: *MissingError, ErrNoPrevious.
func (i *Installer) Rollback(names ...string) (*Plan, error) {
	return i.edit(names, func(e *Entry) (*Entry, error) {
		if e.Previous == nil {
			return nil, ErrNoPrevious
		}
		return e.with(e.Previous), nil
	})
}
