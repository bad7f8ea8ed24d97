package install

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/opencontainers/go-digest"
	"golang.org/x/text/unicode/norm"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source/plugin"
)

// fetched is a fetched and scanned source.
type fetched struct {
	origin   Origin // Path is the scanned directory
	snapshot *skills.Snapshot
	notes    []string
	base     string                   // name of the source, for a skill that is all of it
	failed   map[string]error         // errors of the parts that could not be fetched, by path
	digests  map[string]digest.Digest // digests of the fetched parts, by path
	own      string                   // directory with the parts, used by this plan alone
	plugins  *plugin.Source           // what the source declares about plugins
	all      sourceTree               // all of the source, also outside of the scanned directory
	top      catalogue                // its skills
	done     completions              // of its skills
	vouched  bool                     // the signature of the whole source was verified
	unsigned error                    // why no signature of the whole was verified
	close    func() error             // releases it; its skills can no longer be read
}

// maxSourceDirs is the maximum number of directories in a source.
const maxSourceDirs = 1_000_000

// missed lists the codes of diagnostics for files that a scan left out.
var missed = []skills.Code{skills.CodeOutsideRoot, skills.CodeMaxDepth,
	skills.CodeInvalidPath, skills.CodeUnreadableDir}

// fetch opens the source of an origin and scans the directory origin.Path. For git, it fetches the commit of
// the origin if set, else the ref.
//
// Errors: *SourceError, *FetchError, *archive.Error; system errors.
func (p *Plan) fetch(ctx context.Context, origin Origin, access Access) (_ *fetched, err error) {
	if err := p.i.before("fetch"); err != nil {
		return nil, err
	}
	f := &fetched{origin: origin, close: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	root, err := kinds[origin.Kind].fetch(ctx, p, f, access)
	isHere := filepath.IsAbs(origin.Source)
	if isHere && errors.Is(err, fs.ErrNotExist) {
		err = refuse("bring it back, or `skillsd remove` the skill and install it again from its new path",
			"there is no %q on this machine", clip(origin.Source))
	}
	if err != nil {
		return nil, err
	}
	f.plugins = plugin.Read(f.all)
	p.i.progress("skills looked for", 0, 0)
	root.Tier = skills.LeastTrusted()
	f.snapshot, err = skills.Scan(ctx, []skills.Root{root},
		&skills.ScanOptions{MaxDirs: maxSourceDirs, StrictRoots: true})
	if err != nil {
		return nil, err
	}
	for _, d := range f.snapshot.Diagnostics {
		if d.Code == skills.CodeScanLimit && !isSkillFile(d.Path) {
			return nil, refuse("name a part of it with --subdir",
				"the source exceeds a limit of the scan: %s", d.Detail)
		}
		// A skill that does not load is a candidate, and has the diagnostic as its reason.
		isCandidate := d.Severity == skills.Error && isSkillFile(d.Path)
		if slices.Contains(missed, d.Code) && !isCandidate {
			at := clip(path.Join(origin.Path, d.Path))
			f.notes = append(f.notes, fmt.Sprintf("%q: %s: %s", at, d.Code, d.Detail))
		}
	}
	return f, nil
}

// sourceDir makes a directory of the plan for the files of a source, and others in it. It returns the path
// relative to the state directory. f.close removes the directory.
func (p *Plan) sourceDir(f *fetched, kind Kind, below ...string) (dir string, err error) {
	// A plan may fetch several sources of one kind.
	dir = p.dir + "/" + string(kind) + "-" + rand.Text()
	f.close = func() error { return p.i.root.RemoveAll(dir) }
	if err := p.i.root.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for _, name := range below {
		if err := p.i.root.Mkdir(dir+"/"+name, 0o700); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func isSkillFile(p string) bool { return strings.EqualFold(path.Base(p), "SKILL.md") }

// candidate is a skill of a source.
type candidate struct {
	path   string // in the source
	skill  *skills.Skill
	err    string // why it cannot be installed, if skill is nil
	failed bool   // its files could not be fetched
	name   string // to install it under
	plugin *plugin.Plugin
}

// called reports whether the directory of a candidate has a name, or the skill if it loads.
func (c *candidate) called(name string) bool {
	return path.Base(c.path) == name || c.skill != nil && c.skill.Frontmatter.Name == name
}

// ownDir returns the directory with the files of this skill alone, relative to the state directory, or "".
func (f *fetched) ownDir(at string) string {
	if _, part := f.digests[at]; part {
		return f.own + "/" + at
	}
	return ""
}

// digestOf returns the digest of the skill at a path, if each skill is fetched by itself, else of the source.
func (f *fetched) digestOf(at string) digest.Digest { return cmp.Or(f.digests[at], f.origin.Digest) }

// catalogue holds the candidates of a source. An update looks for each skill among them, so it would take
// quadratic time if each search collected and sorted them again.
type catalogue struct {
	once   sync.Once
	all    []candidate
	byPath map[string]int    // in all
	owners map[string]string // see own
}

// candidates returns the skills of a source that are not nested in another, by path, and those that do not
// load. The caller may change the slice.
func (f *fetched) candidates() []candidate { return slices.Clone(f.listed().all) }

func (f *fetched) listed() *catalogue {
	f.top.once.Do(func() {
		f.top.all, f.top.byPath, f.top.owners = f.list(), map[string]int{}, map[string]string{}
		for n, c := range f.top.all {
			if _, ok := f.top.byPath[c.path]; !ok {
				f.top.byPath[c.path] = n
			}
			f.top.own(c)
		}
	})
	return &f.top
}

// list collects the candidates.
func (f *fetched) list() []candidate {
	var all []candidate
	for _, sk := range slices.Concat(f.snapshot.Skills, f.snapshot.Withheld) {
		all = append(all, candidate{path: path.Join(f.origin.Path, sk.Dir), skill: sk,
			plugin: f.plugins.Of(path.Join(f.origin.Path, sk.Dir))})
	}
	for _, d := range f.snapshot.Diagnostics {
		if d.Severity == skills.Error && isSkillFile(d.Path) {
			all = append(all, candidate{path: path.Join(f.origin.Path, path.Dir(d.Path)),
				err: "does not load: " + string(d.Code) + ": " + d.Detail})
		}
	}
	for name, reason := range f.failed {
		all = append(all, candidate{path: name, err: "does not load: " + reason.Error(), failed: true})
	}
	// By segments, a skill comes directly before those nested in it; as text, a-b is between a and a/b.
	slices.SortFunc(all, func(a, b candidate) int {
		return slices.Compare(strings.Split(a.path, "/"), strings.Split(b.path, "/"))
	})
	var top []candidate
	outer := ""
	for _, c := range all {
		if outer != "" && (outer == "." || strings.HasPrefix(c.path, outer+"/")) {
			continue
		}
		top = append(top, c)
		if c.skill != nil {
			outer = c.path
		}
	}
	return top
}

// find returns the skill at a path of the source.
func (f *fetched) find(at string) (candidate, error) {
	top := f.listed()
	n, ok := top.byPath[at]
	if !ok {
		return candidate{}, &absentError{at}
	}
	if c := top.all[n]; c.skill == nil {
		return c, errors.New(c.err)
	}
	return top.all[n], nil
}

// absentError reports a path at which a source has no skill.
type absentError struct{ path string }

func (e *absentError) Error() string {
	return fmt.Sprintf("the source has no skill at %q", clip(e.path))
}

// name returns the name to install a skill under: the name of its directory; or the name of the skill, if the
// former is not usable here and no other skill of the source has the latter; or one that is derived. It does
// not depend on which skills are chosen. Only a skill that is all of the source gets the name of the source.
func (f *fetched) name(c candidate) string {
	base, own := path.Base(c.path), c.skill.Frontmatter.Name
	switch {
	case c.path != "." && checkName(base) == nil:
		return base
	case checkName(own) == nil && (c.path == "." || f.listed().owners[ownerKey(c, own)] == base):
		return own
	case c.path != ".":
		return derived(base)
	case f.base != "" && checkName(f.base) == nil:
		return f.base
	}
	return derived(cmp.Or(own, f.base))
}

// own notes which directory name has a name that no directory name of another candidate has.
func (top *catalogue) own(c candidate) {
	if c.skill == nil {
		return
	}
	base := path.Base(c.path)
	name := base
	if checkName(base) != nil {
		name = c.skill.Frontmatter.Name
	}
	key := ownerKey(c, name)
	if other, ok := top.owners[key]; ok && other != base {
		base = several
	}
	top.owners[key] = base
}

// several stands for more than one directory name. No directory has it.
const several = "/"

// ownerKey returns a name of a skill as a key. Skills of two plugins may have one name, and file systems may
// ignore case.
func ownerKey(c candidate, name string) string {
	of := ""
	if c.plugin != nil {
		of = c.plugin.Name
	}
	return of + "\x00" + strings.ToLower(name)
}

// derived returns a name that can be installed for one that cannot: its ASCII letters and digits, without
// accents, and a digest, since different names may have these letters.
func derived(name string) string {
	const most = 64
	var kept strings.Builder
	for _, r := range norm.NFKD.String(name) {
		switch {
		case r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			kept.WriteRune(r)
		case !unicode.Is(unicode.Mn, r) && kept.Len() > 0 && !strings.HasSuffix(kept.String(), "-"):
			kept.WriteByte('-')
		}
		if kept.Len() == most {
			break
		}
	}
	// Some file systems return a name in another normalization form than the one that an author used.
	sum := digest.FromString(norm.NFC.String(name)).Encoded()
	return cmp.Or(strings.Trim(kept.String(), "-"), "skill") + "-" + sum[:8]
}
