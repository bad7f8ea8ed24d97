package install

import (
	"context"
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
	Parts []string // the skills that are below Path now
	Ref   string   // the branch that is gone; To is then the default branch
}

const byFollow = "`skillsd update --follow` takes it from there"

func (e *MovedError) Error() string {
	switch {
	case e.Ref != "":
		return fmt.Sprintf("the branch %s is gone; the default branch is %s: %s", clip(e.Ref), clip(e.To),
			byFollow)
	case e.To != "" && e.Same:
		return fmt.Sprintf("it moved from %q to %q: ", clip(e.Path), clip(e.To)) + byFollow
	case e.To != "":
		return fmt.Sprintf("it moved from %q to %q, and changed: ", clip(e.Path), clip(e.To)) + byFollow
	case len(e.Parts) > 0:
		return fmt.Sprintf("it was split into %d skills: %s: install those that you want, "+
			"and `skillsd remove` this one", len(e.Parts), listed(e.Parts, ""))
	}
	return fmt.Sprintf("the source no longer has it at %q: `skillsd update --prune` removes it here",
		clip(e.Path))
}

// gone reports whether the source no longer has the skill in any form.
func (e *MovedError) gone() bool { return e.To == "" && len(e.Parts) == 0 }

// moved returns where the skill of an entry is in a newer version of its source, all of which is fetched and
// which has no skill at its path.
func (f *fetched) moved(ctx context.Context, e *Entry) (*MovedError, error) {
	at := e.Origin.Path
	found := &MovedError{Path: at}
	var named []string
	for _, c := range f.candidates() {
		if c.skill == nil {
			continue
		}
		files, err := f.contents(ctx, c.skill, c.plugin, e.Origin.Signer != "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.path, err)
		}
		if files.tree == e.Tree && (found.To == "" || rank(c.path) < rank(found.To)) {
			found.To, found.Same = c.path, true
		}
		if strings.HasPrefix(c.path, at+"/") {
			found.Parts = append(found.Parts, c.path)
		}
		if path.Base(c.path) == path.Base(at) || c.skill.Frontmatter.Name == path.Base(at) {
			named = append(named, c.path)
		}
	}
	if found.To != "" {
		return found, nil
	}
	slices.SortStableFunc(named, func(a, b string) int { return rank(a) - rank(b) })
	// Among several skills of one name, nothing shows which is the one.
	if len(named) > 0 && (len(named) == 1 || rank(named[0]) < rank(named[1])) {
		found.To = named[0]
	}
	return found, nil
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

// branchGone returns the default branch of a repository whose branch is gone; nil if it is there, or if its
// server does not tell: then the error of the fetch has another cause.
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
