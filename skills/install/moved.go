package install

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Moves decides about skills that are no longer where they came from.
type Moves struct {
	// Follow updates from the new place, if there is one: another path of the source, or the default branch
	// of a repository whose branch is gone.
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
		shown := e.Parts[:min(len(e.Parts), 5)]
		return fmt.Sprintf("it was split into %d skills: %s: install those that you want, "+
			"and `skillsd remove` this one", len(e.Parts), strings.Join(shown, ", "))
	}
	return fmt.Sprintf("the source no longer has it at %q: `skillsd update --prune` removes it here",
		clip(e.Path))
}

// gone reports whether the source no longer has the skill in any form.
func (e *MovedError) gone() bool { return e.To == "" && len(e.Parts) == 0 }

// moved returns where the skill of an entry is in a newer version of its source, of which the part with the
// skill lacks it. whole is the scan of the whole source.
func (f *fetched) moved(ctx context.Context, e *Entry) (*MovedError, error) {
	at := e.Origin.Path
	found := &MovedError{Path: at}
	var named []string
	for _, c := range f.candidates() {
		if c.skill == nil {
			continue
		}
		index, err := c.skill.Index(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.path, err)
		}
		if index.TreeDigest == e.Tree && (found.To == "" || rank(c.path) < rank(found.To)) {
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

// defaultBranch returns the name of the default branch of a repository, "" if its server does not tell.
func (p *Plan) defaultBranch(ctx context.Context, o Origin, access Access) (string, error) {
	dir := p.dir + "/head-" + rand.Text()
	if err := p.i.root.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	defer func() { _ = p.i.root.RemoveAll(dir) }() // Close removes what is left
	r, err := open(ctx, p.i.cfg.Git, p.i.path(dir), o.Source, access)
	if err != nil {
		return "", err
	}
	out, err := r.output(ctx, 1<<16, "ls-remote", "--quiet", "--symref", "--", o.Source, "HEAD")
	if err != nil {
		return "", err
	}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		target, ok := strings.CutPrefix(lines.Text(), "ref: refs/heads/")
		if name, _, tab := strings.Cut(target, "\t"); ok && tab && checkRef(name) == nil {
			return name, nil
		}
	}
	return "", nil
}

// refetch fetches a source again whose part, or whose branch, is gone: the whole of it, or the default
// branch. It returns the error of the first fetch if neither is the cause.
func (p *Plan) refetch(
	ctx context.Context, part Origin, failed error, access Access,
) (*fetched, *MovedError, error) {
	if kinds[part.Kind].single() {
		return nil, nil, failed
	}
	if _, isPart := errors.AsType[*directoryError](failed); isPart && part.Path != "." {
		whole := part
		whole.Path, whole.Subdir = ".", ""
		from, err := p.fetch(ctx, whole, access)
		return from, nil, err
	}
	if part.Kind != KindGit || part.Ref == "" || commitID().MatchString(part.Ref) {
		return nil, nil, failed
	}
	refs, err := p.refs(ctx, Request{Source: part.Source, Access: access})
	if err != nil || slices.Contains(refs, part.Ref) {
		return nil, nil, failed // the server is the cause
	}
	branch, err := p.defaultBranch(ctx, part, access)
	if err != nil || branch == "" {
		return nil, nil, failed
	}
	return nil, &MovedError{Path: part.Path, Ref: part.Ref, To: branch}, nil
}
