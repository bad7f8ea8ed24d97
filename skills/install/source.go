package install

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/source/oci"
	"github.com/skillsd/skillsd/skills/store/fsys"
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
	vouched  bool                     // the signature of the whole source was verified
	unsigned error                    // why no signature of the whole was verified
	close    func() error             // releases it; its skills can no longer be read
}

// maxSourceDirs is the maximum number of directories in a source.
const maxSourceDirs = 1_000_000

// missed lists the codes of diagnostics for files that a scan left out.
var missed = []skills.Code{skills.CodeMisspeltFile, skills.CodeOutsideRoot, skills.CodeMaxDepth,
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
	var root skills.Root
	switch origin.Kind {
	case KindGit:
		root, err = p.fetchGit(ctx, f, access)
	case KindZip:
		f.base = strings.TrimSuffix(filepath.Base(origin.Source), filepath.Ext(origin.Source))
		root, err = f.zipRoot(origin.Source)
	case KindURL:
		root, err = p.fetchURL(ctx, f, access)
	case KindIndex:
		root, err = p.fetchIndex(ctx, f, access)
	case KindOCI:
		root, err = p.fetchOCI(ctx, f, access)
	case KindMCP:
		root, err = p.fetchServed(ctx, f, access)
	case KindTree:
		root, err = p.fetchTree(ctx, f, access)
	case KindDirectory:
		f.base = filepath.Base(origin.Source)
		root, err = f.directoryRoot(origin.Source)
	}
	if err != nil {
		return nil, err
	}
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
		if slices.Contains(missed, d.Code) {
			at := clip(path.Join(origin.Path, d.Path))
			f.notes = append(f.notes, fmt.Sprintf("%q: %s: %s", at, d.Code, d.Detail))
		}
	}
	return f, nil
}

func (p *Plan) fetchGit(ctx context.Context, f *fetched, access Access) (root skills.Root, err error) {
	p.i.progress("fetching from git", 0, 0)
	name := "git-" + rand.Text() // a plan may fetch from several repositories
	dir := p.dir + "/" + name
	f.close = func() error { return p.i.root.RemoveAll(dir) }
	for _, made := range []string{"/repository", "/files"} {
		if err := p.i.root.MkdirAll(dir+made, 0o700); err != nil {
			return root, err
		}
	}
	repo, commit, err := fetch(ctx, p.i.cfg.Git, p.path(name+"/repository"), f.origin.Source,
		cmp.Or(f.origin.Commit, f.origin.Ref), access)
	if err != nil {
		return root, &FetchError{f.origin.Source, err, KindGit}
	}
	f.origin.Commit, f.base = commit, baseName(f.origin.Source)
	into, err := p.i.root.OpenRoot(dir + "/files")
	if err != nil {
		return root, err
	}
	defer into.Close()
	f.notes, err = repo.checkout(ctx, commit, f.origin.Path, into, func(done, total int) {
		p.i.progress("files checked out", done, total)
	})
	if err != nil {
		return root, fmt.Errorf("read %s: %w", f.origin.Source, err)
	}
	return f.directoryRoot(p.path(name + "/files"))
}

// directoryRoot returns the root for the requested part of a directory. No other process writes to the files
// of git or of an extracted archive. Any other directory is read in its current state. A part of it is held
// open, so that a link that replaces it cannot lead elsewhere: other users may have write access there.
func (f *fetched) directoryRoot(top string) (skills.Root, error) {
	handle, err := os.OpenRoot(top)
	if err != nil {
		return skills.Root{}, err
	}
	part, err := handle.OpenRoot(filepath.FromSlash(f.origin.Path))
	if err := errors.Join(err, handle.Close()); err != nil {
		return skills.Root{}, noDirectory(f.origin.Path)
	}
	root := skills.Root{Dir: filepath.Join(top, filepath.FromSlash(f.origin.Path))}
	if f.origin.Kind != KindDirectory || f.origin.Path == "." {
		return root, part.Close()
	}
	f.close = part.Close
	root.FS, root.Name = heldDir{part}, path.Base(f.origin.Path)
	return root, nil
}

func noDirectory(dir string) error {
	return refuse("look at it, and name one with --subdir", "the source has no directory %q", clip(dir))
}

// zipRoot returns the root for the requested part of an archive.
func (f *fetched) zipRoot(place string) (skills.Root, error) {
	archive, release := source.NewZip(place), f.close
	f.close = func() error { return errors.Join(archive.Close(), release()) }
	pinned, err := archive.Pin()
	if err != nil {
		return skills.Root{}, err
	}
	part, err := fs.Sub(pinned, f.origin.Path)
	if err != nil {
		return skills.Root{}, err
	}
	if info, err := fs.Stat(part, "."); err != nil || !info.IsDir() {
		return skills.Root{}, noDirectory(f.origin.Path)
	}
	return skills.Root{Dir: place, FS: part, Name: path.Base(path.Join(f.base, f.origin.Path))}, nil
}

func isSkillFile(p string) bool { return strings.EqualFold(path.Base(p), "SKILL.md") }

// candidate is a skill of a source.
type candidate struct {
	path  string // in the source
	skill *skills.Skill
	err   string // why it does not load, if skill is nil
	name  string // to install it under
}

// ownDir returns the directory with the files of this skill alone, relative to the state directory, or "".
func (f *fetched) ownDir(at string) string {
	if _, part := f.digests[at]; part {
		return f.own + "/" + at
	}
	return ""
}

// candidates returns the skills of a source that are not nested in another, by path, and those that do not
// load.
func (f *fetched) candidates() []candidate {
	var all []candidate
	for _, sk := range slices.Concat(f.snapshot.Skills, f.snapshot.Withheld) {
		all = append(all, candidate{path: path.Join(f.origin.Path, sk.Dir), skill: sk})
	}
	for _, d := range f.snapshot.Diagnostics {
		if d.Severity == skills.Error && isSkillFile(d.Path) {
			all = append(all, candidate{path: path.Join(f.origin.Path, path.Dir(d.Path)),
				err: string(d.Code) + ": " + d.Detail})
		}
	}
	for name, reason := range f.failed {
		all = append(all, candidate{path: name, err: reason.Error()})
	}
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
func (f *fetched) find(at string) (*skills.Skill, error) {
	for _, c := range f.candidates() {
		if c.path != at {
			continue
		}
		if c.skill == nil {
			return nil, errors.New(c.err)
		}
		return c.skill, nil
	}
	return nil, fmt.Errorf("the source has no skill at %q", clip(at))
}

// name returns the name to install a skill under: the name of its directory, or the name of the skill if the
// former is not usable here.
func (f *fetched) name(c candidate) (string, error) {
	choices := []string{path.Base(c.path), c.skill.Frontmatter.Name, f.base}
	if c.path == "." {
		choices = []string{c.skill.Frontmatter.Name, f.base}
	}
	for _, name := range choices {
		if name != "" && checkName(name) == nil {
			return name, nil
		}
	}
	return "", checkName(choices[0])
}

// resolve returns the origin for a source given by the user.
func resolve(given, ref string, insecure bool) (Origin, error) {
	if strings.HasPrefix(strings.ToLower(given), oci.Scheme) {
		return resolveOCI(given, ref)
	}
	if strings.HasPrefix(given, mcpPrefix) {
		return resolveServer(given, ref, insecure)
	}
	if index, ok := isIndexURL(given); ok {
		return resolveIndex(index, ref, insecure)
	}
	if isArchive(given) && isURL(given) {
		return resolveURL(given, ref, insecure)
	}
	if isURL(given) {
		if _, err := parseURL(given, insecure); err != nil {
			return Origin{}, err
		}
		if scheme, rest, ok := strings.Cut(given, "://"); ok {
			given = strings.ToLower(scheme) + "://" + rest // git accepts only this spelling
		}
		return Origin{Kind: KindGit, Source: given, Ref: ref}, checkRef(ref)
	}
	if ref != "" {
		return Origin{}, refuse("leave it out", "--ref goes with a git URL only")
	}
	const sources = "give a directory, a zip archive, or a URL such as https://host/owner/repository, " +
		"https://host/skills.tar.gz or oci://host/skill:1.0"
	if given == "" {
		return Origin{}, refuse(sources, "the source is empty")
	}
	place, err := filepath.Abs(given)
	if err != nil {
		return Origin{}, err
	}
	info, err := os.Stat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Origin{}, refuse(sources, "there is no %q", given)
	case err != nil:
		return Origin{}, err
	case info.IsDir():
		return Origin{Kind: KindDirectory, Source: place}, nil
	case info.Mode().IsRegular() && strings.EqualFold(filepath.Ext(place), ".zip"):
		return Origin{Kind: KindZip, Source: place}, nil
	}
	return Origin{}, refuse("give a directory, a file that ends in .zip, or a URL",
		"%q is neither a directory nor a zip archive", given)
}

// heldDir is a directory that is held open, so that renaming it or replacing it has no effect. No link leads
// out of it, and opening a named pipe does not block.
type heldDir struct{ root *os.Root }

func (h heldDir) Open(name string) (fs.File, error) { return h.open(name, 0) }

func (h heldDir) open(name string, flag int) (*os.File, error) {
	return h.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|fsys.NonBlock|flag, 0)
}

func (h heldDir) Stat(name string) (fs.FileInfo, error) { return h.root.Stat(filepath.FromSlash(name)) }

func (h heldDir) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := h.open(name, fsys.Directory)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	const most = 100_000
	entries, err := dir.ReadDir(most + 1)
	if len(entries) > most {
		return nil, fmt.Errorf("%s has more than %d entries", name, most)
	}
	if err == io.EOF {
		err = nil
	}
	return entries, err
}
