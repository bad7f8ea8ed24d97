package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/skills"
)

// Update is what an update makes of one skill.
type Update struct {
	Before, After *Entry // equal trees: nothing changes
	Err           error  // why it stays as it is; After is nil then
}

// Changes reports whether the skill has other content now.
func (u *Update) Changes() bool { return u.After != nil && u.After.Tree != u.Before.Tree }

// Updates are updates that are ready. Apply or Close ends them.
type Updates struct {
	Skills []Update // in byte order of name
	// Old and New have the skills that change, as they were installed and as they will be served; paths
	// are names. What is no longer in the store is not in Old.
	Old, New *skills.Snapshot
	Left     map[string][]skills.Diagnostic // as in Plan
	Notes    []string

	stage *stage
	done  bool
}

// group is what one fetch brings to hand.
type group struct {
	kind                Kind
	source, ref, subdir string
}

// Update fetches the sources of skills again, of all when no names are given, and makes ready what
// changed. What cannot be updated stays as it is and says why.
//
// Errors: *MissingError, those of ctx and of the system.
func (i *Installer) Update(ctx context.Context, names []string, insecure bool) (u *Updates, err error) {
	entries := i.lock.Skills
	if len(names) > 0 {
		entries = nil
		for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
			e := i.lock.Find(name)
			if e == nil {
				return nil, &MissingError{name}
			}
			entries = append(entries, e)
		}
	}
	stage, err := i.newStage()
	if err != nil {
		return nil, err
	}
	u = &Updates{stage: stage, Left: map[string][]skills.Diagnostic{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.Close())
			u = nil
		}
	}()
	groups := map[group][]*Entry{}
	var order []group
	for _, e := range entries {
		g := group{e.Origin.Kind, e.Origin.Source, e.Origin.Ref, e.Origin.Subdir}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], e)
	}
	found := map[string]Update{}
	for _, g := range order {
		if err := u.group(ctx, g, groups[g], insecure, found); err != nil {
			return u, err
		}
	}
	for _, e := range entries {
		u.Skills = append(u.Skills, found[e.Name])
	}
	return u, u.scan(ctx)
}

// group fetches one source and makes its skills ready.
func (u *Updates) group(ctx context.Context, g group, entries []*Entry, insecure bool, found map[string]Update) (err error) {
	subdir := g.subdir
	if subdir == "" {
		subdir = "."
	}
	from, err := u.stage.fetch(ctx, Origin{Kind: g.kind, Source: g.source, Ref: g.ref, Path: subdir}, insecure)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		for _, e := range entries {
			found[e.Name] = Update{Before: e, Err: err}
		}
		return nil
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	u.Notes = append(u.Notes, from.notes...)
	for _, e := range entries {
		update, err := u.one(ctx, from, e)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			update = Update{Before: e, Err: err}
		}
		found[e.Name] = update
	}
	return nil
}

// one makes the skill of an entry ready when it changed.
func (u *Updates) one(ctx context.Context, from *fetched, e *Entry) (Update, error) {
	sk, err := from.find(e.Origin.Path)
	if err != nil {
		return Update{}, err
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return Update{}, err
	}
	if index.TreeDigest == e.Tree {
		same := *e
		same.Origin.Commit = from.origin.Commit
		return Update{Before: e, After: &same}, nil
	}
	left, err := leftOut(ctx, sk)
	if err != nil {
		return Update{}, err
	}
	version, err := u.stage.add(ctx, sk, e.Name)
	if err != nil {
		return Update{}, errors.Join(err, u.stage.i.root.RemoveAll(u.stage.placed(e.Name)))
	}
	version.Commit = from.origin.Commit
	if len(left) > 0 {
		u.Left[e.Name] = left
	}
	return Update{Before: e, After: e.with(version)}, nil
}

// scan reads the skills that change, as they are stored and as they will be.
func (u *Updates) scan(ctx context.Context) error {
	if err := u.stage.i.root.Mkdir(u.stage.dir+"/before", 0o700); err != nil {
		return err
	}
	options := &skills.ScanOptions{MaxDirs: maxSourceDirs, StrictRoots: true}
	var err error
	if u.New, err = u.stage.scan(ctx); err != nil {
		return err
	}
	paths := pathsByName(u.New)
	for n := range u.Skills {
		one := &u.Skills[n]
		if !one.Changes() {
			continue
		}
		sk := u.New.Skill(one.After.Name)
		if sk == nil {
			one.After, one.Err = nil, errors.New("does not load any more")
			continue
		}
		if err := u.stage.i.takenSince(ctx, one.Before, paths[one.After.Name]); err != nil {
			one.After, one.Err = nil, err
			continue
		}
		index, err := sk.Index(ctx)
		if err != nil || index.TreeDigest != one.After.Tree {
			return fmt.Errorf("%s: is not what was stored", one.After.Name)
		}
		// It is compared with what was installed, whoever changed that in its place since.
		if tree, err := u.stage.i.cfg.Trees.Tree(ctx, one.Before.Tree); err == nil {
			if err := u.stage.copy(ctx, tree, u.stage.dir+"/before/"+one.Before.Name); err != nil {
				return err
			}
		}
	}
	u.Old, err = skills.Scan(ctx, []skills.Root{{Dir: u.stage.path("before"), Tier: skills.TierThirdParty}}, options)
	return err
}

// Apply puts what changed in place and writes the lock file. When it fails nothing is changed.
func (u *Updates) Apply(ctx context.Context) error {
	var changes []change
	var same []*Entry
	for _, one := range u.Skills {
		switch {
		case one.Changes():
			changes = append(changes, change{one.Before, one.After})
		case one.After != nil && one.After.Origin.Commit != one.Before.Origin.Commit:
			same = append(same, one.After)
		}
	}
	if len(changes)+len(same) == 0 {
		return u.Close()
	}
	u.stage.same = same
	if err := u.stage.commit(ctx, changes); err != nil {
		return errors.Join(err, u.Close())
	}
	u.done = true
	return nil
}

// Close drops updates that were not applied.
func (u *Updates) Close() error {
	if u.done {
		return nil
	}
	u.done = true
	return u.stage.abandon()
}
