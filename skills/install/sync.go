package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store"
)

// Sync describes how to make an installation equal to a lock file.
type Sync struct {
	// Lock is the lock file; nil: the one of the installation, to repair changes on disk. An installed skill
	// keeps an earlier version of this machine: the version that is replaced, or else its current earlier
	// one. The rest comes from Lock, so the caller must decide whether to trust its tiers.
	Lock *Lock
	// TrustAccepted makes acceptances in Lock valid on this machine.
	TrustAccepted bool
	// Exact removes skills that are not in Lock.
	Exact bool
	// DropEarlier drops earlier versions that cannot be fetched again. Earlier versions that are new with a
	// Lock from another machine are dropped in any case.
	DropEarlier bool
	Access
}

// wanted returns the lock file that an installation with the lock file here is made equal to, with the
// assessments that this machine has.
func (s Sync) wanted(here *Lock) *Lock {
	if s.Lock == nil {
		return here
	}
	want := &Lock{}
	for _, e := range s.Lock.Skills {
		want.Skills = append(want.Skills, e.foreign(here.like(e.Name), s.TrustAccepted))
	}
	return want
}

// Sync compares the installation with a lock file. The plan makes it equal: with exactly the same bytes, from
// the store, or else by their digests, or from the recorded source at the recorded commit. If they cannot be
// fetched, Apply fails and changes nothing; an earlier version that cannot be fetched is reported as Lost and
// prevents no other change.
//
// Errors: errors of ctx; system errors. Apply also returns *SourceError, *FetchError and other errors of
// sources.
func (i *Installer) Sync(ctx context.Context, s Sync) (*Plan, error) {
	s.Offered, s.lock = nil, s.Lock
	want := s.wanted(i.lock)
	return i.newPlan(func(p *Plan) error {
		for _, e := range want.Skills {
			c, err := i.syncChange(ctx, s, e)
			if err != nil {
				return err
			}
			if c.What != "" {
				p.Changes = append(p.Changes, c)
			}
		}
		for _, e := range i.lock.Skills {
			if s.Exact && want.like(e.Name) == nil {
				c := Change{Name: e.Name, Before: e}
				c.What, _ = c.difference()
				p.Changes = append(p.Changes, c)
			}
		}
		p.prepare = func(ctx context.Context) error { return p.obtainAll(ctx, s) }
		return nil
	})
}

// syncChange returns the change of a Sync that makes an installed skill equal to an entry; its What is empty
// if the skill is.
//
// Errors: *SourceError if the entry may not be installed here; errors of ctx; system errors.
func (i *Installer) syncChange(ctx context.Context, s Sync, e *Entry) (Change, error) {
	here := i.lock.like(e.Name)
	// Checked before anything is compared, so that the plan of such a lock file is never shown.
	if err := e.startsProgram(here); err != nil {
		return Change{}, err
	}
	// The directory of one skill must not be made in the directory of another.
	if other := i.lock.clash(e.Name); other != nil && here == nil {
		return Change{}, refuse("`skillsd remove "+other.Name+"` first",
			"%s cannot be installed beside %s", e.Name, other.Name)
	}
	c := Change{Name: e.Name, Before: here, After: e}
	c.What, _ = c.difference()
	// If the entries differ, no file has to be read.
	if c.What == "" {
		problems, err := i.verifyEntry(ctx, here)
		if err != nil || len(problems) == 0 {
			return c, err
		}
		c.What = strings.TrimSpace(problems[0].Path + " " + problems[0].What)
		c.Earlier = problems[0].Kind == ProblemEarlier
	}
	switch {
	case c.Earlier:
		c.After, c.lockOnly = here, true
	case s.Lock != nil && here != nil:
		c.After = e.keepingEarlier(here)
	}
	return c, nil
}

// difference returns how the installed skill of a Sync differs from the wanted entry, and what making them
// equal does; empty if the entries are equal.
func (c *Change) difference() (what, done string) {
	here, e := c.Before, c.After
	switch {
	case here == nil:
		return "is not installed", "installed"
	case e == nil:
		return "is installed and not in the lock file", "removed"
	case here.Name != e.Name:
		return "is installed as " + here.Name, "renamed from " + here.Name
	case here.Tree != e.Tree:
		return "is of another version", "changed to the version of the lock file"
	case here.Tier != e.Tier || here.Enabled != e.Enabled || here.Served() != e.Served():
		return "has another tier or state", "changed to the tier and the state of the lock file"
	case here.Origin != e.Origin:
		return "is from elsewhere, or another commit", "changed to the source and the commit of the lock file"
	}
	return "", ""
}

// Done returns what a Sync that was applied has done about a change.
func (c *Change) Done() string {
	if _, done := c.difference(); done != "" {
		return done
	}
	if c.Earlier && c.Lost != "" {
		return c.What
	}
	return "restored: " + c.What
}

// obtainAll stages the trees of a Sync.
func (p *Plan) obtainAll(ctx context.Context, s Sync) (err error) {
	at := p.newSources(s.Access)
	defer p.disconnect()
	defer func() { err = errors.Join(err, at.Close()) }()
	for n := range p.Changes {
		c := &p.Changes[n]
		p.i.progress("skills restored", n, len(p.Changes))
		if c.After == nil {
			continue
		}
		if err := p.obtain(ctx, s, at, c); err != nil {
			return err
		}
		if err := p.obtainEarlier(ctx, s, at, c); err != nil {
			return err
		}
	}
	p.New, err = p.scan(ctx, "place")
	if err != nil {
		return err
	}
	paths := p.pathsByName()
	for _, c := range p.Changes {
		if err := p.i.taken(ctx, c.Before, paths[c.Name]); err != nil {
			return refuse("remove it from the lock file, or move the skill served there",
				"%s: %v", c.Name, err)
		}
	}
	if s.Lock != nil {
		if err := p.assessEarlier(ctx); err != nil {
			return err
		}
	}
	if err := p.scanOld(ctx); err != nil {
		return err
	}
	return p.assess(ctx)
}

// obtain stages the tree of a change of a Sync, unless only its earlier version changes.
func (p *Plan) obtain(ctx context.Context, s Sync, at *sources, c *Change) error {
	if c.Earlier {
		return nil
	}
	origins := []Origin{c.After.Origin}
	// A tree that needs no signer is the same from anywhere, so its digest is enough.
	if s.Files != nil && s.Lock != nil && c.After.Origin.Signer == "" {
		origins[0] = Origin{Kind: KindTree, Source: c.After.Tree.String(), Path: "."}
	}
	// The served copy on this machine is the cheapest source.
	if here := c.Before; here != nil && here.Served() && here.Tree == c.After.Tree {
		served := p.i.path(servedDir(here.Tier, here.Name))
		origins = slices.Insert(origins, 0, Origin{Kind: KindDirectory, Source: served, Path: "."})
	}
	tree, err := at.tree(ctx, c.After.Tree, origins...)
	if err == nil {
		err = p.stage(ctx, c.Name, tree, "")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// obtainEarlier stages the version of a change to which a rollback returns. If it is lost, the change has the
// reason, and drops the version if the Sync allows that.
func (p *Plan) obtainEarlier(ctx context.Context, s Sync, at *sources, c *Change) error {
	if c.After.Previous == nil {
		return nil
	}
	earlier, lost := at.tree(ctx, c.After.Previous.Tree, c.After.previousOrigin())
	if lost == nil && s.Lock != nil && c.Before == nil {
		at, err := p.room("earlier", c.Name)
		if err != nil {
			return err
		}
		if err := earlier.Copy(ctx, p.i.root, at); err != nil {
			return err
		}
	}
	// After a cancellation, an error does not mean that the version is lost.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if lost != nil {
		c.Lost, c.Dropped = lost.Error(), s.DropEarlier || s.Lock != nil
	}
	if c.Dropped {
		// The entry may belong to the caller's Lock.
		changed := *c.After
		changed.Previous = nil
		c.After = &changed
	}
	return nil
}

// sources are the sources that a Sync fetched. Close releases them.
type sources struct {
	plan    *Plan
	access  Access
	fetched map[Origin]func() (*fetched, error) // each is fetched once, even if that fails
}

// newSources returns the sources of a plan. The caller closes them.
func (p *Plan) newSources(access Access) *sources {
	return &sources{plan: p, access: access, fetched: map[Origin]func() (*fetched, error){}}
}

// fetch fetches the source of an origin, or returns what was fetched before.
func (a *sources) fetch(ctx context.Context, at Origin) (*fetched, error) {
	if a.fetched[at] == nil {
		a.fetched[at] = sync.OnceValues(func() (*fetched, error) { return a.plan.fetch(ctx, at, a.access) })
	}
	return a.fetched[at]()
}

func (a *sources) Close() (err error) {
	for _, fetch := range a.fetched {
		if from, failed := fetch(); failed == nil {
			err = errors.Join(err, from.close())
		}
	}
	return err
}

// tree returns a stored tree. If the store lost it, the tree is stored again from the first origin that still
// has it, at the recorded commit.
func (a *sources) tree(ctx context.Context, want digest.Digest, origins ...Origin) (*store.Tree, error) {
	// A signer in a lock file is not trusted unless its signature was verified here.
	if at := origins[len(origins)-1]; at.Signer != "" && !a.plan.i.lock.verified(want, at) {
		return a.storeAgain(ctx, want, at)
	}
	tree, err := a.plan.i.cfg.Trees.Tree(ctx, want)
	for _, origin := range origins {
		if err == nil || ctx.Err() != nil {
			break
		}
		tree, err = a.storeAgain(ctx, want, origin)
	}
	return tree, err
}

func (a *sources) storeAgain(ctx context.Context, want digest.Digest, origin Origin) (*store.Tree, error) {
	at := origin
	at.Path = cmp.Or(origin.Subdir, ".")
	from, err := a.fetch(ctx, at)
	if err != nil {
		return nil, err
	}
	there, err := from.find(origin.Path)
	if err != nil {
		return nil, err
	}
	files, err := from.linked(ctx, there.skill)
	if err != nil {
		return nil, err
	}
	by, _, err := from.signer(ctx, files, a.access)
	if err != nil {
		return nil, err
	}
	// An entry of an earlier version may be without the files of the plugin; and several plugins may list the
	// skill.
	all := from.plugins.Plugins
	if len(all) == 0 {
		// The files do not depend on the name.
		all = append(all, from.described(&PluginFacts{}))
	}
	for _, of := range all {
		if files.tree == want || len(from.plugins.Plugins) > 0 && !there.isOf(of) {
			continue
		}
		files, err = from.contents(ctx, there.skill, of, by != "")
		if err != nil {
			return nil, err
		}
	}
	// A directory or an archive has no commit, so it may have changed since the entry was written.
	if files.tree != want {
		return nil, refuse("bring the source back, or `skillsd remove` and install it anew",
			"%s does not match the lock file: tree %.19s, want %.19s",
			origin.Source, files.tree, want)
	}
	return a.plan.store(ctx, from, files)
}
