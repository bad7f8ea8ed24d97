package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
)

// Sync is how an installation is made to be what a lock file says.
type Sync struct {
	// Lock is what it says; nil: the lock file of the installation itself, to mend what was changed.
	Lock *Lock
	// Exact removes what is installed and not in Lock.
	Exact bool
	// Insecure is as in Request.
	Insecure bool
}

// Difference is a skill that is not what a lock file says.
type Difference struct {
	Name string `json:"name"`
	What string `json:"what"`

	before, after *Entry
}

// Differences tells what Sync would change, in byte order of name.
//
// Errors: those of ctx and of the system.
func (i *Installer) Differences(ctx context.Context, s Sync) ([]Difference, error) {
	want := s.Lock
	if want == nil {
		want = i.lock
	}
	var found []Difference
	for _, e := range want.Skills {
		here := i.lock.clash(e.Name)
		d := Difference{Name: e.Name, before: here, after: e}
		switch {
		case here == nil:
			d.What = "is not installed"
		case here.Name != e.Name:
			d.What = "is installed as " + here.Name
		case here.Tree != e.Tree:
			d.What = "is of another version"
		case here.Tier != e.Tier || here.Enabled != e.Enabled:
			d.What = "has another tier or state"
		default:
			problems, err := i.verifyPlaced(ctx, here)
			if err != nil {
				return nil, err
			}
			problems = append(problems, i.verifyStored(ctx, &Entry{Name: here.Name, Tree: here.Tree})...)
			if len(problems) == 0 {
				continue
			}
			d.What = problems[0].What
			if problems[0].Path != "" {
				d.What = problems[0].Path + " " + d.What
			}
		}
		found = append(found, d)
	}
	if s.Exact {
		for _, e := range i.lock.Skills {
			if want.clash(e.Name) == nil {
				found = append(found, Difference{Name: e.Name, What: "is installed and not in the lock file", before: e})
			}
		}
	}
	return found, nil
}

// Sync makes the installation what a lock file says: exactly its bytes, from the store, or else from
// the recorded source at the recorded commit. Where they cannot be had nothing is changed.
//
// Errors: *SourceError and others of the sources; those of ctx and of the system.
func (i *Installer) Sync(ctx context.Context, s Sync) (did []Difference, err error) {
	did, err = i.Differences(ctx, s)
	if err != nil || len(did) == 0 {
		return nil, err
	}
	stage, err := i.newStage()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			did, err = nil, errors.Join(err, stage.abandon())
		}
	}()
	open := map[string]*fetched{}
	defer func() {
		for _, from := range open {
			err = errors.Join(err, from.Close())
		}
	}()
	var changes []change
	for n, d := range did {
		i.progress("skills restored", n, len(did))
		if d.before != nil && d.after != nil && d.before.Name != d.after.Name {
			changes = append(changes, change{before: d.before})
			d.before = nil
		}
		if d.after != nil {
			if err := stage.obtain(ctx, d.after, s.Insecure, open); err != nil {
				return nil, fmt.Errorf("%s: %w", d.Name, err)
			}
			if !d.after.Enabled {
				if err := i.root.RemoveAll(stage.placed(d.Name)); err != nil {
					return nil, err
				}
			}
		}
		changes = append(changes, change{d.before, d.after})
	}
	return did, stage.commit(ctx, changes)
}

// obtain makes the tree of an entry ready: from the store, or from where it came from.
func (s *stage) obtain(ctx context.Context, e *Entry, insecure bool, open map[string]*fetched) error {
	if s.place(ctx, e.Name, e.Tree) == nil {
		return nil
	}
	if err := s.i.root.RemoveAll(s.placed(e.Name)); err != nil {
		return err
	}
	subdir := e.Origin.Subdir
	if subdir == "" {
		subdir = "."
	}
	key := fmt.Sprintf("%q %q %q", e.Origin.Source, e.Origin.Commit, subdir)
	from := open[key]
	if from == nil {
		var err error
		origin := e.Origin
		origin.Path = subdir
		if from, err = s.fetch(ctx, origin, insecure); err != nil {
			return err
		}
		open[key] = from
	}
	sk, err := from.find(e.Origin.Path)
	if err != nil {
		return err
	}
	version, err := s.add(ctx, sk, e.Name)
	if err != nil {
		return err
	}
	return same(e.Tree, version.Tree, e.Origin.Source)
}

func same(want, got digest.Digest, source string) error {
	if want == got {
		return nil
	}
	return &SourceError{Reason: fmt.Sprintf("%s has another version than the lock file: tree %s, want %s", source, got, want), Hint: "bring the source back, or `skillsd remove` and install it anew"}
}

// Import reads the lock file of another machine.
//
// Errors: fs.ErrNotExist, *LockError, those of the system.
func Import(file string) (*Lock, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return ReadLock(file)
}
