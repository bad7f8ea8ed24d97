package install

import (
	"context"
	"errors"
	"fmt"
)

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
				if c.After == nil || !c.After.Enabled {
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
