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

// one commits a change of one installed skill; edit returns what becomes of it.
func (i *Installer) one(ctx context.Context, name string, edit func(e *Entry) (*Entry, error)) (err error) {
	before := i.lock.Find(name)
	if before == nil {
		return &MissingError{name}
	}
	after, err := edit(before)
	if err != nil || after == before {
		return err
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
	if after != nil && after.Enabled {
		if err := i.before("place " + name); err != nil {
			return err
		}
		if err := stage.place(ctx, name, after.Tree); err != nil {
			return err
		}
	}
	return stage.commit(ctx, []change{{before, after}})
}

// Remove takes a skill from what is served and from the lock file. Its trees stay in the store.
//
// Errors: *MissingError, those of the system.
func (i *Installer) Remove(ctx context.Context, name string) error {
	return i.one(ctx, name, func(*Entry) (*Entry, error) { return nil, nil })
}

// SetEnabled serves a skill, or takes it from what is served without forgetting it.
//
// Errors: *MissingError; store.ErrNotFound and *store.CorruptError for a tree that is no longer in the
// store; those of the system.
func (i *Installer) SetEnabled(ctx context.Context, name string, enabled bool) error {
	return i.one(ctx, name, func(e *Entry) (*Entry, error) {
		if e.Enabled == enabled {
			return e, nil
		}
		changed := *e
		changed.Enabled = enabled
		return &changed, nil
	})
}

// Rollback goes back to the version before the last update; once more, and it is undone.
//
// Errors: *MissingError, ErrNoPrevious; store.ErrNotFound and *store.CorruptError for a tree that is no
// longer in the store; those of the system.
func (i *Installer) Rollback(ctx context.Context, name string) error {
	return i.one(ctx, name, func(e *Entry) (*Entry, error) {
		if e.Previous == nil {
			return nil, fmt.Errorf("%s: %w", name, ErrNoPrevious)
		}
		return e.with(e.Previous), nil
	})
}
