package install

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
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
}

const byFollow = "`skillsd update --follow` takes it from there"

func (e *MovedError) Error() string {
	switch {
	case e.Ref != "":
		return fmt.Sprintf("the branch %s is gone; the default branch is %s: %s", clip(e.Ref), clip(e.To),
			byFollow)
	case e.Alike:
		return fmt.Sprintf("the source no longer has it at %q; it may be %q now, which is nearly the same: ",
			clip(e.Path), clip(e.To)) + byFollow + "; `skillsd remove` removes it here"
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
// has no skill at its path.
func (p *Plan) moved(ctx context.Context, f *fetched, e *Entry) (*MovedError, error) {
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
	if !found.gone() {
		return found, nil
	}
	var err error
	found.To, err = p.renamed(ctx, f, e)
	found.Alike = found.To != ""
	return found, err
}

// Two skills are alike from this share of their bytes on; git takes a file for renamed from a half on. The
// next best must have clearly less: many sources have skills that are made from one template.
const (
	leastAlike = 0.6
	clearly    = 0.15
)

// renamed returns the path of the skill that is like the one of an entry and clearly more so than any other,
// or "": authors who rename a skill change its directory and the name in its SKILL.md together.
func (p *Plan) renamed(ctx context.Context, f *fetched, e *Entry) (string, error) {
	was, err := p.i.cfg.Trees.Tree(ctx, e.Tree)
	if err != nil {
		// Without the stored files only this advice is missing.
		return "", ctx.Err()
	}
	best, next, at := 0.0, 0.0, ""
	for _, c := range f.candidates() {
		// A skill that is installed from the source too is another one.
		if c.skill == nil || p.i.lock.from(f.origin, c.path) != nil {
			continue
		}
		files, err := f.contents(ctx, c.skill, c.plugin, e.Origin.Signer != "")
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.path, err)
		}
		share, err := alike(ctx, was, files)
		if err != nil {
			return "", err
		}
		if share <= best {
			next = max(next, share)
			continue
		}
		best, next, at = share, best, c.path
	}
	if best < leastAlike || best-next < clearly {
		return "", nil
	}
	return at, nil
}

// alike returns the share of bytes that a stored skill and a fetched one have in common, from 0 to 1: equal
// files, whatever their names are, and equal lines of the two SKILL.md.
func alike(ctx context.Context, was *store.Tree, now *contents) (float64, error) {
	sizes, before, after, common := map[digest.Digest]int64{}, int64(0), int64(0), int64(0)
	var text []byte
	for _, f := range was.Files {
		before += f.Size
		if strings.Contains(f.Path, "/") || !isSkillFile(f.Path) {
			sizes[f.Digest] = f.Size
			continue
		}
		var err error
		text, err = was.ReadFile(f.Path)
		if err != nil {
			return 0, err
		}
	}
	for _, f := range now.files() {
		after += f.Size
		common += sizes[f.Digest]
		// A second copy of a file is not common to both.
		delete(sizes, f.Digest)
	}
	fresh, err := now.skill.Read(ctx, now.skill.File, skills.MaxSkillFile)
	if err != nil {
		return 0, err
	}
	common += commonLines(text, fresh.Data)
	return float64(common) / float64(max(before, after, 1)), nil
}

// commonLines returns the bytes of the lines that two texts have in common, in any order.
func commonLines(a, b []byte) (common int64) {
	lines := map[string]int{}
	for line := range bytes.Lines(a) {
		lines[string(line)]++
	}
	for line := range bytes.Lines(b) {
		if lines[string(line)] > 0 {
			lines[string(line)]--
			common += int64(len(line))
		}
	}
	return common
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
