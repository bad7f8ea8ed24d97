package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Moves decides about skills that are no longer where they came from.
type Moves struct {
	// Follow updates from the new location, if there is one: another path of the source, or the default
	// branch of a repository whose branch is gone.
	Follow bool
	// Prune removes the skills that their source no longer has.
	Prune bool
}

// MovedError reports a skill that is no longer at its path of its source.
type MovedError struct {
	Path  string   // where it was
	To    string   // where it is now; empty if it is gone or was split
	Same  bool     // the skill at To has the same files
	Alike bool     // the skill at To has another name, and most of the files and lines
	Parts []string // the skills that are below Path now
	Ref   string   // the branch that is gone; To is then the default branch
	Maybe string   // the skill that one of Tied may be now; To is then empty
	Tied  []string // this skill, and the other lost ones that are as much like the one at Maybe
	// Either are the skills that this one may be now, if nothing shows which one is; To is then empty.
	Either []string
}

const byFollow = "`skillsd update --follow` takes it from there"

func (e *MovedError) Error() string {
	switch {
	case e.Ref != "":
		return fmt.Sprintf("the branch or tag %s is gone; the default branch is %s: %s", clip(e.Ref),
			clip(e.To), byFollow)
	case e.Alike:
		return fmt.Sprintf("the source no longer has it at %q; it may be %q now, which is nearly the same: ",
			clip(e.Path), clip(e.To)) + byFollow + "; `skillsd remove` removes it here"
	case e.To != "" && e.Same:
		return fmt.Sprintf("it moved from %q to %q: ", clip(e.Path), clip(e.To)) + byFollow
	case e.To != "":
		return fmt.Sprintf("it moved from %q to %q, and changed: ", clip(e.Path), clip(e.To)) + byFollow
	case e.Maybe != "":
		return fmt.Sprintf("the source no longer has it at %q; one of %s may be %q now: install that if you "+
			"want it, and `skillsd remove` this one", clip(e.Path), listed(e.Tied, ""), clip(e.Maybe))
	case len(e.Either) == 1:
		return fmt.Sprintf("the source no longer has it at %q; it may be %q now: install that if you want "+
			"it, and `skillsd remove` this one", clip(e.Path), clip(e.Either[0]))
	case len(e.Either) > 0:
		return fmt.Sprintf("the source no longer has it at %q; it may be %s now: install the one that you "+
			"want, and `skillsd remove` this one", clip(e.Path), oneOf(e.Either))
	case len(e.Parts) > 0:
		return fmt.Sprintf("it was split into %d skills: %s: install those that you want, "+
			"and `skillsd remove` this one", len(e.Parts), listed(e.Parts, ""))
	}
	return fmt.Sprintf("the source no longer has it at %q: `skillsd update --prune` removes it here",
		clip(e.Path))
}

// gone reports whether the source no longer has the skill in any form.
func (e *MovedError) gone() bool {
	return e.To == "" && len(e.Parts) == 0 && e.Maybe == "" && len(e.Either) == 0
}

// oneOf lists some paths, of which one counts.
func oneOf(paths []string) string {
	const most = 4
	var quoted []string
	for _, at := range paths[:min(len(paths), most)] {
		quoted = append(quoted, fmt.Sprintf("%q", clip(at)))
	}
	if more := len(paths) - most; more > 0 {
		quoted = append(quoted, fmt.Sprintf("one of %d more", more))
	}
	return strings.Join(quoted, " or ")
}

// vanished is an installed skill that its source no longer has at its path.
type vanished struct {
	entry *Entry
	to    Origin   // of the entry, with the default branch if its own is gone
	from  *fetched // all of the source
	found *MovedError
	maybe []string // paths that it may have now, by name
	err   error    // why it cannot be looked for
}

// place is a path of a source.
type place struct {
	kind         Kind
	source, path string
}

func (o Origin) place() place { return place{o.Kind, o.Source, o.Path} }

// at returns the place of a path in the source of the skill.
func (v *vanished) at(path string) place {
	return place{v.entry.Origin.Kind, v.entry.Origin.Source, path}
}

// vanish notes that the source has no skill at the path of an entry. The skill may be outside of the part
// that was fetched.
func (p *Plan) vanish(ctx context.Context, at *sources, from *fetched, e *Entry, to Origin) (err error) {
	if from.origin.Path != "." && !kinds[from.origin.Kind].single() {
		from, err = at.fetch(ctx, from.origin.whole())
		if err != nil {
			return err
		}
	}
	v := &vanished{entry: e, to: to, from: from, found: &MovedError{Path: e.Origin.Path}}
	p.lost = append(p.lost, v)
	return nil
}

// settle finds where the skills are that vanished from their paths, and carries out the decision about them.
func (p *Plan) settle(ctx context.Context, access Access, moves Moves) error {
	if len(p.lost) == 0 {
		return nil
	}
	search := &search{i: p.i, taken: map[place]place{}, target: map[place]string{},
		surveys: map[surveyKey]*survey{}}
	if err := search.all(ctx, p.lost); err != nil {
		return err
	}
	for _, v := range p.lost {
		var c Change
		err := v.err
		switch {
		case err != nil:
		case v.found.To != "" && moves.Follow:
			c, err = p.update(ctx, v.from, v.entry, v.to.follow(v.found.To), access)
		case v.found.gone() && moves.Prune:
			c = Change{Name: v.entry.Name, Before: v.entry}
		default:
			err = v.found
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.refuse(v.entry, err)
			continue
		}
		p.Changes = append(p.Changes, c)
	}
	return nil
}

// search finds where vanished skills are. Each place becomes that of the skills of one former place at most:
// otherwise two skills that were different would become copies of one.
type search struct {
	i       *Installer
	taken   map[place]place  // the former place, by the new one; that of an installed skill is its own
	target  map[place]string // the new path, by the former place
	surveys map[surveyKey]*survey
}

// surveyKey tells surveys apart: a signed skill has no files of its plugin.
type surveyKey struct {
	from   *fetched
	signed bool
}

// survey is what a source has where vanished skills may be. All of it is read once, for all of these.
type survey struct {
	skills  []surveyed // sorted as candidates are
	err     error
	byPath  map[string]int   // in skills
	alike   map[string][]int // by tree, and by tree and directory name; the first by rank first
	byName  map[string][]int // by the names of the directory and of the skill
	sorted  []string         // all paths
	likes   *likeness
	compare []int // the skills in likes
}

type surveyed struct {
	candidate
	files *contents
}

// all finds the new places, from certain ones to likely ones.
//
// Errors: errors of ctx.
func (s *search) all(ctx context.Context, lost []*vanished) error {
	for _, e := range s.i.lock.Skills {
		// A skill that is installed from the source too is another one.
		s.taken[e.Origin.place()] = e.Origin.place()
	}
	for _, step := range []func(context.Context, []*vanished) error{s.equal, s.named, s.parts, s.similar} {
		left := slices.DeleteFunc(slices.Clone(lost), func(v *vanished) bool {
			return v.err != nil || !v.found.gone()
		})
		if err := step(ctx, left); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// survey returns the survey for a vanished skill.
func (s *search) survey(ctx context.Context, v *vanished) *survey {
	key := surveyKey{v.from, v.entry.Origin.Signer != ""}
	if s.surveys[key] == nil {
		s.surveys[key] = newSurvey(ctx, v.from, key.signed)
	}
	return s.surveys[key]
}

func newSurvey(ctx context.Context, f *fetched, signed bool) *survey {
	s := &survey{byPath: map[string]int{}, alike: map[string][]int{}, byName: map[string][]int{}}
	for _, c := range f.listed().all {
		if c.skill == nil {
			continue
		}
		files, err := f.contents(ctx, c.skill, c.plugin, signed)
		if err != nil {
			s.err = fmt.Errorf("%s: %w", c.path, err)
			return s
		}
		n, base, own := len(s.skills), path.Base(c.path), c.skill.Frontmatter.Name
		s.skills = append(s.skills, surveyed{c, files})
		s.byPath[c.path] = n
		s.sorted = append(s.sorted, c.path)
		tree := files.tree.String()
		s.alike[tree] = append(s.alike[tree], n)
		if rank(c.path) != copyRank {
			s.alike[tree+"/"+base] = append(s.alike[tree+"/"+base], n)
		}
		s.byName[base] = append(s.byName[base], n)
		if own != base {
			s.byName[own] = append(s.byName[own], n)
		}
	}
	for _, lists := range []map[string][]int{s.alike, s.byName} {
		for _, list := range lists {
			slices.SortStableFunc(list, func(a, b int) int {
				return rank(s.skills[a].path) - rank(s.skills[b].path)
			})
		}
	}
	slices.Sort(s.sorted)
	return s
}

// take gives a place to a vanished skill.
func (s *search) take(v *vanished, to string) {
	was := v.entry.Origin.place()
	s.taken[v.at(to)], s.target[was] = was, to
	v.found.To = to
}

// isTaken reports whether a place of the source of a vanished skill is that of another skill.
func (s *search) isTaken(v *vanished, to string) bool {
	_, ok := s.taken[v.at(to)]
	return ok
}

// equal finds the skills whose files did not change. Of several equal ones, each takes one with its own name
// first.
func (s *search) equal(ctx context.Context, lost []*vanished) error {
	for _, byName := range []bool{true, false} {
		for _, v := range lost {
			from := s.survey(ctx, v)
			if from.err != nil {
				v.err = from.err
			}
			if v.err != nil || v.found.To != "" {
				continue
			}
			key := v.entry.Tree.String()
			if byName {
				key += "/" + path.Base(v.entry.Origin.Path)
			}
			if s.again(v, from) {
				continue
			}
			// A place stays taken, so the next search starts after it.
			list := from.alike[key]
			for len(list) > 0 && s.isTaken(v, from.skills[list[0]].path) {
				list = list[1:]
			}
			from.alike[key] = list
			if len(list) > 0 {
				s.take(v, from.skills[list[0]].path)
				v.found.Same = true
			}
		}
	}
	return nil
}

// again gives a skill the new place of another one that was installed from the same path.
func (s *search) again(v *vanished, from *survey) bool {
	to, ok := s.target[v.entry.Origin.place()]
	n, exists := from.byPath[to]
	if !ok || !exists {
		return false
	}
	v.found.To, v.found.Same = to, from.skills[n].files.tree == v.entry.Tree
	return true
}

// claim is a place that a vanished skill may have now.
type claim struct {
	v     *vanished
	to    string
	share float64 // see likeness
}

// byPlace groups claims by the places that they are to.
func byPlace(claims []claim) map[place][]claim {
	groups := map[place][]claim{}
	for _, c := range claims {
		at := c.v.at(c.to)
		groups[at] = append(groups[at], c)
	}
	return groups
}

// grant gives a place to the skill that is most like it, of those that claim it. If unsure is set, nothing
// shows which one that is if two are equally like it, and neither gets the place or is gone. It returns the
// claims that were granted.
func (s *search) grant(claims []claim, unsure bool) (granted []claim) {
	if len(claims) == 0 {
		return nil
	}
	slices.SortStableFunc(claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(b.share, a.share),
			strings.Compare(a.v.entry.Origin.Path, b.v.entry.Origin.Path))
	})
	best := claims[0]
	was := best.v.entry.Origin.place()
	tied := slices.DeleteFunc(slices.Clone(claims), func(c claim) bool { return c.share != best.share })
	isOther := func(c claim) bool { return c.v.entry.Origin.place() != was }
	if unsure && slices.ContainsFunc(tied, isOther) {
		doubt(tied)
		return nil
	}
	// The path may be installed under two names.
	granted = slices.DeleteFunc(claims, isOther)
	for _, c := range granted {
		s.take(c.v, c.to)
	}
	return granted
}

// doubt notes that each of several skills may have the place that they claim.
func doubt(tied []claim) {
	var paths []string
	for _, c := range tied {
		paths = append(paths, clip(c.v.entry.Origin.Path))
	}
	// A path may be installed under two names.
	paths = slices.Compact(paths)
	for _, c := range tied {
		c.v.found.Maybe, c.v.found.Tied = c.to, paths
	}
}

// named finds the skills that are elsewhere with their own names.
func (s *search) named(ctx context.Context, lost []*vanished) error {
	type key struct {
		from *survey
		name string
	}
	found := map[key]string{}
	var claims []claim
	for _, v := range lost {
		from := s.survey(ctx, v)
		if s.again(v, from) {
			continue
		}
		k := key{from, path.Base(v.entry.Origin.Path)}
		to, ok := found[k]
		if !ok {
			list := slices.DeleteFunc(slices.Clone(from.byName[k.name]), func(n int) bool {
				return s.isTaken(v, from.skills[n].path)
			})
			// Among several skills of one name, nothing shows which is the one.
			if len(list) == 1 ||
				len(list) > 1 && rank(from.skills[list[0]].path) < rank(from.skills[list[1]].path) {
				to = from.skills[list[0]].path
			}
			found[k] = to
		}
		if to == "" {
			for _, n := range from.byName[k.name] {
				v.maybe = append(v.maybe, from.skills[n].path)
			}
		}
		if to != "" {
			claims = append(claims, claim{v: v, to: to})
		}
	}
	for _, some := range byPlace(claims) {
		if len(some) > 1 {
			s.share(ctx, some)
		}
		s.grant(slices.DeleteFunc(some, func(c claim) bool { return c.v.err != nil }), false)
	}
	return nil
}

// share sets the shares of claims to one place.
func (s *search) share(ctx context.Context, claims []claim) {
	from := s.survey(ctx, claims[0].v)
	skill := from.skills[from.byPath[claims[0].to]]
	one := newLikeness([]surveyed{skill})
	failed := one.addSkill(ctx, skill.files)
	for n, c := range claims {
		near, err := s.nearest(ctx, c.v, one)
		claims[n].share, c.v.err = near.best, cmp.Or(failed, err)
	}
}

// parts finds the skills that were split.
func (s *search) parts(ctx context.Context, lost []*vanished) error {
	for _, v := range lost {
		sorted, below := s.survey(ctx, v).sorted, v.entry.Origin.Path+"/"
		n, _ := slices.BinarySearch(sorted, below)
		for ; n < len(sorted) && strings.HasPrefix(sorted[n], below); n++ {
			v.found.Parts = append(v.found.Parts, sorted[n])
		}
		// A skill that is alone below the former place is no part of it.
		if len(v.found.Parts) == 1 {
			v.maybe, v.found.Parts = append(v.maybe, v.found.Parts...), nil
		}
	}
	return nil
}

// Two skills are alike from this share of their bytes on; git takes a file for renamed from a half on. The
// next best must have clearly less: many sources have skills that are made from one template.
const (
	leastAlike = 0.6
	clearly    = 0.15
)

// similar finds the skills that are like a vanished one and clearly more so than any other: authors who
// rename a skill change its directory and the name in its SKILL.md together.
func (s *search) similar(ctx context.Context, lost []*vanished) error {
	var claims []claim
	alike := map[*vanished][]int{}
	for _, v := range lost {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		from := s.survey(ctx, v)
		if from.likes == nil {
			s.compare(ctx, v, from)
		}
		near, err := s.nearest(ctx, v, from.likes)
		v.err = cmp.Or(from.err, err)
		if v.err == nil && near.best >= leastAlike && near.best-near.next >= clearly {
			claims = append(claims, claim{v, from.skills[from.compare[near.at]].path, near.best})
		}
		if v.err == nil && near.best >= leastPart {
			alike[v] = from.likes.candidates(near)
		}
	}
	for _, some := range byPlace(claims) {
		for _, c := range s.grant(some, true) {
			c.v.found.Alike = true
		}
	}
	for _, v := range lost {
		if v.err == nil && v.found.gone() {
			s.either(v, s.survey(ctx, v), alike[v])
		}
	}
	return nil
}

// compare makes the likeness of the skills in the survey for a vanished one, without those at places of
// others.
func (s *search) compare(ctx context.Context, v *vanished, from *survey) {
	from.likes = newLikeness(from.skills)
	for n, c := range from.skills {
		if s.isTaken(v, c.path) {
			continue
		}
		if err := from.likes.addSkill(ctx, c.files); err != nil {
			from.err = fmt.Errorf("%s: %w", c.path, err)
			return
		}
		from.compare = append(from.compare, n)
	}
}

// either notes which skills a vanished one may be, if nothing shows which one is: those that are like it, by
// number in the likeness of the source, or else those that have its name or are below its place.
func (s *search) either(v *vanished, from *survey, alike []int) {
	for _, n := range alike {
		if to := from.skills[from.compare[n]].path; !s.isTaken(v, to) {
			v.found.Either = append(v.found.Either, to)
		}
	}
	if len(v.found.Either) > 0 {
		return
	}
	for _, to := range v.maybe {
		if !s.isTaken(v, to) {
			v.found.Either = append(v.found.Either, to)
		}
	}
}

// nearest compares the stored files of a vanished skill with others.
func (s *search) nearest(ctx context.Context, v *vanished, others *likeness) (near, error) {
	was, err := s.i.cfg.Trees.Tree(ctx, v.entry.Tree)
	if err != nil {
		// Without the stored files only this advice is missing.
		return near{}, ctx.Err()
	}
	found, err := others.nearest(was, v.entry.Taken)
	if errors.Is(err, errTooMuch) {
		err = refuse("look for it there, or `skillsd remove` it",
			"the source no longer has it at %q, and has too much to find it under another name",
			clip(v.entry.Origin.Path))
	}
	return found, err
}

// follow returns the origin of a skill at another path of the source.
func (o Origin) follow(to string) Origin {
	switch {
	case o.Subdir == o.Path:
		o.Subdir = to
	case o.Subdir != "" && !strings.HasPrefix(to, o.Subdir+"/"):
		o.Subdir = ""
	}
	o.Path = to
	return o
}

// whole returns the origin of all of a source.
func (o Origin) whole() Origin {
	o.Path, o.Subdir = ".", ""
	return o
}

// branchGone returns the default branch of a repository whose branch is gone. It returns nil if the branch
// exists or the server does not answer: then the error of the fetch has another cause.
func (p *Plan) branchGone(ctx context.Context, part Origin, access Access) *MovedError {
	if part.Kind != KindGit || part.Ref == "" || commitID().MatchString(part.Ref) {
		return nil
	}
	refs, head, err := p.refs(ctx, part.Source, access)
	if err != nil || head == "" || slices.Contains(refs, part.Ref) {
		return nil
	}
	return &MovedError{Path: part.Path, Ref: part.Ref, To: head}
}
