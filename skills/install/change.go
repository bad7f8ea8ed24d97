package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Update fetches the sources of skills again, of all if no names are given, and makes the skills that
// changed ready. A skill that cannot be updated is refused and stays as it is.
//
// Errors: *MissingError; errors of ctx; system errors.
func (i *Installer) Update(ctx context.Context, names []string, access Access) (*Plan, error) {
	access.Offered = nil
	entries, err := i.named(names)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		entries = i.lock.Skills
	}
	// One fetch serves all skills that are in the same part of a source.
	groups := map[Origin][]*Entry{}
	var order []Origin
	for _, e := range entries {
		part := e.Origin
		part.Path, part.Commit, part.Digest, part.Identity = cmp.Or(part.Subdir, "."), "", "", ""
		if access.SignedBy != "" {
			part.Signer = access.SignedBy
		}
		if groups[part] == nil {
			order = append(order, part)
		}
		groups[part] = append(groups[part], e)
	}
	return i.newPlan(func(p *Plan) error {
		for _, part := range order {
			if err := p.updateFrom(ctx, part, groups[part], access); err != nil {
				return err
			}
		}
		slices.SortFunc(p.Changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
		return p.judge(ctx)
	})
}

// updateFrom fetches one source and makes its skills ready.
func (p *Plan) updateFrom(ctx context.Context, part Origin, entries []*Entry, access Access) (err error) {
	entries = slices.DeleteFunc(entries, func(e *Entry) bool {
		same := e.Origin.Signer == part.Signer && p.unchanged(ctx, e, access)
		if same {
			p.Changes = append(p.Changes, Change{Name: e.Name, Before: e, After: e, lockOnly: true})
		}
		return same
	})
	if len(entries) == 0 {
		return nil
	}
	from, err := p.fetch(ctx, part, access)
	if err == nil {
		defer func() { err = errors.Join(err, from.close()) }()
		p.Notes = append(p.Notes, from.notes...)
	}
	for _, e := range entries {
		c, failed := Change{}, err
		if failed == nil {
			c, failed = p.update(ctx, from, e, access)
		}
		if ctx.Err() != nil {
			return failed
		}
		if failed != nil {
			p.Refused = append(p.Refused, Refusal{e.Name, e, e.Origin.Path, failed.Error()})
			continue
		}
		p.Changes = append(p.Changes, c)
	}
	return nil
}

// update makes the skill of an entry ready if it changed.
func (p *Plan) update(ctx context.Context, from *fetched, e *Entry, access Access) (Change, error) {
	sk, err := from.find(e.Origin.Path)
	if err != nil {
		return Change{}, err
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return Change{}, err
	}
	by, identity, err := from.signer(ctx, sk, index, access)
	if err != nil {
		return Change{}, err
	}
	c := Change{Name: e.Name, Before: e, After: e, lockOnly: true}
	if index.TreeDigest == e.Tree {
		now := e.Origin
		now.Commit, now.Digest = from.origin.Commit, from.origin.Digest
		now.Signer, now.Identity = by, identity
		if now != e.Origin {
			same := *e
			same.Origin = now
			c.After = &same
		}
		return c, nil
	}
	version, left, err := p.ready(ctx, sk, index, e.Name, "")
	if err != nil {
		return Change{}, errors.Join(err, p.batch.Drop(p.placed(e.Name)))
	}
	version.Commit, version.Digest = from.origin.Commit, from.origin.Digest
	if by != e.Origin.Signer || identity != e.Origin.Identity {
		origin := e.Origin
		origin.Signer, origin.Identity = by, identity
		version.Origin = &origin
	}
	return Change{Name: e.Name, Before: e, After: e.with(version), Left: left}, nil
}

// scanOld reads the skills that change as they were installed, whoever changed them in place since.
func (p *Plan) scanOld(ctx context.Context) (err error) {
	for _, c := range p.Changes {
		if c.lockOnly || c.Before == nil || !c.NewContent() {
			continue
		}
		if tree, err := p.i.cfg.Trees.Tree(ctx, c.Before.Tree); err == nil {
			if err := tree.Copy(ctx, p.i.root, p.dir+"/before/"+c.Name); err != nil {
				return err
			}
		}
	}
	p.Old, err = p.scan(ctx, "before")
	return err
}

// named returns the entries of names, in byte order and each once.
func (i *Installer) named(names []string) ([]*Entry, error) {
	var entries []*Entry
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		e := i.lock.Find(name)
		if e == nil {
			return nil, &MissingError{name}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// MissingError is a name that is not installed.
type MissingError struct{ Name string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("no skill is installed as %q", clip(e.Name))
}

// ErrNoPrevious is the error of a rollback of a skill that was never updated.
var ErrNoPrevious = errors.New("there is no earlier version")

// edit returns the plan of a change of installed skills; change returns the entry after it. To apply
// the plan fails with store.ErrNotFound or *store.CorruptError if a tree that is to be served is no
// longer in the store.
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
				if c.After == nil || !c.After.Served() {
					continue
				}
				if err := p.placeStored(ctx, c.After); err != nil {
					return fmt.Errorf("%s: %w", c.Name, err)
				}
			}
			return nil
		}
		return nil
	})
}

// Remove takes skills out of the directories that are served and out of the lock file. Their trees stay
// in the store until they are collected.
//
// Errors: *MissingError.
func (i *Installer) Remove(names ...string) (*Plan, error) {
	return i.edit(names, func(*Entry) (*Entry, error) { return nil, nil })
}

// Enable serves skills again that were disabled.
//
// Errors: *MissingError.
func (i *Installer) Enable(names ...string) (*Plan, error) { return i.enable(names, true) }

// Disable takes skills out of the directories that are served without forgetting them.
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

// Rollback returns to the version before the last update. A second one undoes the first.
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
