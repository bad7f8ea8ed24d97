package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// MissingError is a name that is not installed.
type MissingError struct{ Name string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("no skill is installed as %q", clip(e.Name))
}

// ErrNoPrevious is the error of a rollback of a skill that was never updated.
var ErrNoPrevious = errors.New("there is no earlier version")

// each commits a change of installed skills, of all or of none; edit returns what becomes of one.
func (i *Installer) each(ctx context.Context, names []string, edit func(e *Entry) (*Entry, error)) (err error) {
	var changes []change
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		before := i.lock.Find(name)
		if before == nil {
			return &MissingError{name}
		}
		after, err := edit(before)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if after != before {
			changes = append(changes, change{before, after})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	stage, err := i.newStage()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stage.abandon())
		}
	}()
	for _, c := range changes {
		if c.after == nil || !c.after.Enabled {
			continue
		}
		if err := i.before("place " + c.name()); err != nil {
			return err
		}
		if err := stage.place(ctx, c.name(), c.after.Tree); err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
	}
	return stage.commit(ctx, changes)
}

// Remove takes skills from what is served and from the lock file. Their trees stay in the store until
// they are collected.
//
// Errors: *MissingError, those of the system. Nothing is changed then.
func (i *Installer) Remove(ctx context.Context, names ...string) error {
	return i.each(ctx, names, func(*Entry) (*Entry, error) { return nil, nil })
}

// Enable serves skills again that were disabled.
//
// Errors: *MissingError; store.ErrNotFound and *store.CorruptError for a tree that is no longer in the
// store; those of the system. Nothing is changed then.
func (i *Installer) Enable(ctx context.Context, names ...string) error {
	return i.each(ctx, names, func(e *Entry) (*Entry, error) { return e.enabled(true), nil })
}

// Disable takes skills from what is served without forgetting them.
//
// Errors: *MissingError, those of the system. Nothing is changed then.
func (i *Installer) Disable(ctx context.Context, names ...string) error {
	return i.each(ctx, names, func(e *Entry) (*Entry, error) { return e.enabled(false), nil })
}

func (e *Entry) enabled(yes bool) *Entry {
	if e.Enabled == yes {
		return e
	}
	changed := *e
	changed.Enabled = yes
	return &changed
}

// Rollback goes back to the version before the last update; once more, and it is undone.
//
// Errors: *MissingError, ErrNoPrevious; store.ErrNotFound and *store.CorruptError for a tree that is no
// longer in the store; those of the system. Nothing is changed then.
func (i *Installer) Rollback(ctx context.Context, names ...string) error {
	return i.each(ctx, names, func(e *Entry) (*Entry, error) {
		if e.Previous == nil {
			return nil, ErrNoPrevious
		}
		return e.with(e.Previous), nil
	})
}
