package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/compare"
	"github.com/skillsd/skillsd/skills/policy"
)

// Assessment is what was decided about one content of a skill when it arrived. The zero Assessment is that
// of a content that is clean, or was installed before contents were assessed.
type Assessment struct {
	Verdict policy.Verdict `json:"verdict,omitempty" yaml:"verdict,omitempty"` // empty for clean
	Why     string         `json:"why,omitempty" yaml:"why,omitempty"`         // the reasons, in one line
	// Accepted is the tree that somebody accepted; of any other tree it says nothing.
	Accepted digest.Digest `json:"accepted,omitempty" yaml:"accepted,omitempty"`
}

// clears reports whether a tree may be served.
func (a *Assessment) clears(tree digest.Digest) bool {
	return a.Verdict == "" || a.Verdict == policy.Look && a.Accepted == tree
}

// check returns why an assessment cannot be one.
func (a *Assessment) check() error {
	if a.Verdict != "" && a.Verdict != policy.Look && a.Verdict != policy.Refuse {
		return errors.New("verdict: is neither look nor refuse")
	}
	if a.Accepted != "" && a.Accepted.Validate() != nil {
		return errors.New("accepted: is not the digest of a tree")
	}
	return nil
}

// Served reports whether the skill is in a directory that is served.
func (e *Entry) Served() bool { return e.Enabled && !e.Quarantined() }

// Quarantined reports whether the skill is installed and not served because nobody has accepted its content.
func (e *Entry) Quarantined() bool { return !e.Assessment.clears(e.Tree) }

// foreign returns the entry of a lock file from elsewhere with what this machine knows of its content. What
// the file says somebody accepted counts if trusted.
func (e *Entry) foreign(here *Entry, trusted bool) *Entry {
	changed := *e
	known := Assessment{}
	if here != nil && here.Tree == e.Tree {
		known = here.Assessment
	}
	if trusted && e.Accepted == e.Tree {
		known.Accepted = e.Tree
	}
	changed.Assessment = known
	if e.Previous != nil {
		previous := *e.Previous
		previous.Assessment = Assessment{} // obtainAll assesses it
		changed.Previous = &previous
	}
	return &changed
}

// AcceptError is why a skill cannot be accepted.
type AcceptError struct{ Why string }

func (e *AcceptError) Error() string { return e.Why }

// Accept serves skills that wait for somebody to accept them. The tree that was looked at may be given for
// each name; any other content is refused.
//
// Errors: *MissingError, *AcceptError.
func (i *Installer) Accept(trees map[string]digest.Digest) (*Plan, error) {
	return i.edit(slices.Collect(maps.Keys(trees)), func(e *Entry) (*Entry, error) {
		switch want := trees[e.Name]; {
		case e.Verdict == policy.Refuse:
			return nil, &AcceptError{"is refused: " + e.Why}
		case want != "" && want != e.Tree:
			return nil, &AcceptError{fmt.Sprintf("has the tree %s, not %s", e.Tree, want)}
		case e.Accepted == e.Tree:
			return e, nil
		}
		changed := *e
		changed.Accepted = e.Tree
		return &changed, nil
	})
}

// Waiting returns the changes that bring a content that nobody has accepted. Applied, such a content is not
// served: it is installed in quarantine, or, if a version of the skill is served, that version stays.
func (p *Plan) Waiting() (waiting []*Change) {
	for n := range p.Changes {
		if c := &p.Changes[n]; c.NewContent() && c.After.Quarantined() {
			waiting = append(waiting, c)
		}
	}
	return waiting
}

// Accept lets a change of the plan be served.
func (p *Plan) Accept(c *Change) { c.After.Accepted = c.After.Tree }

// keepsServed reports whether a change is not made because its content waits and another one is served.
func (c *Change) keepsServed() bool {
	return c.NewContent() && c.After.Quarantined() && c.Before != nil && c.Before.Served()
}

// hold takes the changes out of the plan that are not made, and makes them Held.
func (p *Plan) hold() {
	p.Changes = slices.DeleteFunc(p.Changes, func(c Change) bool {
		if c.keepsServed() {
			p.Held = append(p.Held, c)
		}
		return c.keepsServed()
	})
}

// assess decides about the contents that the plan brings, which are in New, compared with those in Old.
//
// Errors: errors of ctx; system errors.
func (p *Plan) assess(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel())
	for n := range p.Changes {
		if c := &p.Changes[n]; c.NewContent() {
			group.Go(func() error {
				found, err := assessment(ctx, c.Name, p.Old, p.New)
				found.Accepted = c.After.Accepted
				c.After.Assessment = found
				return errors.Join(err, p.same(ctx, c))
			})
		}
	}
	return group.Wait()
}

// same makes sure that what is ready to be served of a skill is what was stored. It costs nothing: the
// assessment has read every byte.
func (p *Plan) same(ctx context.Context, c *Change) error {
	sk := p.New.Skill(c.Name)
	if sk == nil {
		return nil
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return err
	}
	if index.TreeDigest != c.After.Tree {
		err = fmt.Errorf("%s changed while it was installed: it has the tree %s, not %s",
			c.Name, index.TreeDigest, c.After.Tree)
	}
	return err
}

// assessment decides about the skill of a name and those that lie in it.
func assessment(ctx context.Context, name string, was, is *skills.Snapshot) (Assessment, error) {
	all := policy.Arrival{First: was == nil || was.Skill(name) == nil}
	for _, at := range compare.Below(name, was, is) {
		before, err := compare.ContentOf(ctx, was, at)
		if err != nil {
			return Assessment{}, err
		}
		after, err := compare.ContentOf(ctx, is, at)
		if err != nil {
			return Assessment{}, err
		}
		facts, err := compare.Versions(ctx, before, after)
		if err != nil {
			return Assessment{}, err
		}
		all.Signals = append(all.Signals, facts.Signals...)
		all.Scripts = append(all.Scripts, facts.Scripts...)
		all.Hosts = append(all.Hosts, facts.Hosts...)
		all.Tools = append(all.Tools, facts.ToolsAdded...)
		all.Unsearched = all.Unsearched || facts.Unsearched
	}
	verdict, why := all.Assess()
	if verdict == policy.Clean {
		return Assessment{}, nil
	}
	const most = 10
	if more := len(why) - most; more > 0 {
		why = append(why[:most], fmt.Sprintf("and %d more", more))
	}
	return Assessment{Verdict: verdict, Why: strings.Join(why, "; ")}, nil
}

// assessEarlier decides about the earlier versions that came with a lock file from elsewhere.
//
// Errors: errors of ctx; system errors.
func (p *Plan) assessEarlier(ctx context.Context) error {
	earlier, err := p.scan(ctx, "earlier")
	for _, c := range p.Changes {
		if c.Before == nil && c.After.Previous != nil && err == nil {
			c.After.Previous.Assessment, err = assessment(ctx, c.Name, nil, earlier)
		}
	}
	return err
}

// AssessAll decides about all contents of the lock file that a Sync is about, as far as the store has them,
// and about those that are served too. It returns a row for each that nobody has accepted and that is not
// clean, in byte order of Name.
//
// Errors: errors of ctx; system errors.
func (p *Plan) AssessAll(ctx context.Context, s Sync) (rows []Change, err error) {
	want := s.Lock
	if want == nil {
		want = p.i.lock
	}
	entries := slices.Clone(want.Skills)
	for n, e := range entries {
		if s.Lock != nil {
			e = e.foreign(p.i.lock.clash(e.Name), s.TrustAccepted)
			entries[n] = e
		}
		trees := map[string]digest.Digest{"place": e.Tree}
		if e.Previous != nil {
			trees["before"] = e.Previous.Tree
		}
		for dir, sum := range trees {
			// What the store has lost is reported by the comparison with the lock file.
			tree, lost := p.i.cfg.Trees.Tree(ctx, sum)
			if lost == nil {
				err = errors.Join(err, tree.Copy(ctx, p.i.root, p.dir+"/"+dir+"/"+e.Name))
			}
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
	}
	p.New, err = p.scan(ctx, "place")
	if err == nil {
		p.Old, err = p.scan(ctx, "before")
	}
	for _, e := range entries {
		found := e.Assessment
		if err == nil && found.Verdict == "" {
			found, err = assessment(ctx, e.Name, p.Old, p.New)
		}
		if found.Verdict != "" && (e.Accepted != e.Tree || found.Verdict == policy.Refuse) {
			rows = append(rows, Change{Name: e.Name, Before: e, After: e, What: "nobody has accepted it",
				Verdict: found.Verdict, Why: found.Why, lockOnly: true})
		}
	}
	return rows, err
}
