package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/source/plugin"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Limits of the files from elsewhere in the source that skills are installed with: of all skills of a source,
// and of one skill with its own files, where a scan has the same limits.
const (
	maxTaken      = 20_000
	maxTakenBytes = 256 << 20
	maxSkillFiles = 2_000
	maxSkillBytes = 256 << 20
)

// sourceTree is all of a source, also outside of the part that is scanned. Its links are not followed out of
// it.
type sourceTree interface {
	fs.ReadLinkFS
	fs.ReadDirFS
}

// contents are the files that a skill is installed with: its own, those elsewhere in the source that its
// links lead to, and files of its plugin that it names.
type contents struct {
	skill *skills.Skill
	own   *skills.Index
	more  []store.File      // sorted by path
	from  map[string]string // the path in the source of each of more
	tree  digest.Digest
	left  []skills.Diagnostic // about files that are not installed
	links []string            // the links that were taken as what they lead to
	notes []string            // about files of the plugin

	// private are the paths in the skill of files and directories that the source may never have given away.
	private []string

	// hides is set if the modes of files elsewhere do not show whether they are private, see hidesAll.
	hides bool

	// unsettled is set if the skill uses the directory of its plugin, and nothing of it could be taken.
	unsettled bool
}

// files returns all files.
func (c *contents) files() []store.File {
	all := slices.Concat(c.own.Files, c.more)
	slices.SortFunc(all, comparePaths)
	return all
}

func comparePaths(a, b store.File) int { return strings.Compare(a.Path, b.Path) }

// taker collects files from elsewhere in a source for the contents of one skill.
type taker struct {
	f     *fetched
	into  *contents
	at    string // the skill in the source, without links
	files int    // that may still be taken
	bytes int64
}

// completions are the contents of the skills of a source, each computed once.
type completions struct {
	mu     sync.Mutex
	linked map[string]func() (*contents, error) // by the path of the skill
	whole  map[string]func() (*contents, error) // by the path and the plugin
	hashed map[hashKey]store.File
	files  int // taken for all skills
	bytes  int64
}

// hashKey is a path in the source, and how its mode is judged, see contents.
type hashKey struct {
	name  string
	hides bool
}

// once returns what compute returns for the skill at a path, computed by the first call.
func (f *fetched) once(
	all *map[string]func() (*contents, error), at string, compute func() (*contents, error),
) (*contents, error) {
	f.done.mu.Lock()
	if *all == nil {
		*all = map[string]func() (*contents, error){}
	}
	if (*all)[at] == nil {
		(*all)[at] = sync.OnceValues(compute)
	}
	get := (*all)[at]
	f.done.mu.Unlock()
	return get()
}

// linked returns the contents of a skill with the files that its links lead to, and no files of a plugin.
//
// Errors: *SourceError if there are too many; the errors of [skills.Skill.Index].
func (f *fetched) linked(ctx context.Context, sk *skills.Skill) (*contents, error) {
	return f.once(&f.done.linked, sk.Dir, func() (*contents, error) { return f.takeLinks(ctx, sk) })
}

// contents returns the contents of a skill, with the files of its plugin that it names.
func (f *fetched) contents(
	ctx context.Context, sk *skills.Skill, of *plugin.Plugin, signed bool,
) (*contents, error) {
	linked, err := f.linked(ctx, sk)
	// A signature of the skill alone does not cover files of the plugin, so a signed skill gets none.
	if err != nil || of == nil || signed && !f.vouched {
		return linked, err
	}
	// No path contains NUL, so two pairs never have one key.
	key := sk.Dir + "\x00" + of.Name
	return f.once(&f.done.whole, key, func() (*contents, error) { return f.takeNamed(ctx, linked, of) })
}

// taker returns a taker for contents, or nil if the directory of the skill cannot be found in the source.
func (f *fetched) taker(c *contents) *taker {
	at, _, err := source.Resolve(f.all, path.Join(f.origin.Path, c.skill.Dir))
	if err != nil {
		return nil
	}
	t := &taker{f: f, into: c, at: at, files: maxSkillFiles - len(c.own.Files) - len(c.more),
		bytes: maxSkillBytes}
	for _, file := range c.own.Files {
		t.bytes -= file.Size
	}
	return t
}

// takeLinks computes linked.
func (f *fetched) takeLinks(ctx context.Context, sk *skills.Skill) (*contents, error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return nil, err
	}
	c := &contents{skill: sk, own: index, from: map[string]string{}}
	defer func() { c.settle() }()
	t := f.taker(c)
	c.hides = t != nil && t.hidesAll()
	for _, d := range index.Diagnostics {
		isLeft := d.Code == skills.CodeResourceOutside || d.Code == skills.CodeUnreadableResource
		taken := false
		if isLeft && t != nil {
			taken, err = t.link(ctx, d.Path)
			if err != nil {
				return nil, err
			}
		}
		if taken {
			c.links = append(c.links, d.Path)
		} else {
			c.left = append(c.left, d)
		}
	}
	return c, nil
}

// settle sorts the files that were taken, and sets the digest of the tree.
func (c *contents) settle() {
	slices.SortFunc(c.more, comparePaths)
	c.tree = c.own.TreeDigest
	if len(c.more) > 0 {
		c.tree = store.TreeDigest(c.files())
	}
}

// link takes what a link in the skill leads to, and reports whether it is a file or a directory elsewhere in
// the source.
func (t *taker) link(ctx context.Context, name string) (bool, error) {
	link := path.Join(t.at, name)
	real, info, err := source.Resolve(t.f.all, link)
	// A directory that contains the link would contain itself.
	if err != nil || real == link || real == "." || strings.HasPrefix(link, real+"/") {
		return false, nil
	}
	if t.private(real, info.IsDir()) {
		t.into.refused(name)
		return false, nil
	}
	switch {
	case info.IsDir():
		return true, t.directory(ctx, real, name, 0)
	case info.Mode().IsRegular():
		return t.file(ctx, real, name)
	}
	return false, nil
}

// directory takes a directory of the source. Links to files in it are followed, links to directories are left
// out.
func (t *taker) directory(ctx context.Context, from, to string, depth int) error {
	const maxDepth = 32
	if depth == maxDepth {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Each file that is opened alone would start a git of its own.
	if lazy, ok := t.f.all.(*gitTree); ok && depth == 0 {
		if err := lazy.bringBelow(from); err != nil {
			return err
		}
	}
	entries, err := t.f.all.ReadDir(from)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := t.entry(ctx, e, from, path.Join(to, e.Name()), depth); err != nil {
			return err
		}
	}
	return nil
}

// entry takes an entry of a directory of the source as a file or a directory of the skill.
func (t *taker) entry(ctx context.Context, e fs.DirEntry, dir, to string, depth int) error {
	if clean, err := skills.CleanPath(to); err != nil || clean != to || skills.Ignored(e.Name()) {
		return nil
	}
	real, info, err := source.Resolve(t.f.all, path.Join(dir, e.Name()))
	switch {
	case err != nil:
		return nil
	case t.private(real, info.IsDir()):
		t.into.refused(to)
	// This is false for a link to a directory, which could lead back to a directory above it.
	case e.IsDir():
		return t.directory(ctx, real, to, depth+1)
	case info.Mode().IsRegular():
		_, err := t.file(ctx, real, to)
		return err
	}
	return nil
}

// file takes a file of the source, and reports whether it can be read.
func (t *taker) file(ctx context.Context, from, to string) (bool, error) {
	if t.into.from[to] != "" {
		return true, nil
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	file, err := t.f.hash(from, t.into.hides)
	if errors.Is(err, skills.ErrPermission) {
		t.into.refused(to)
	}
	if err != nil || file.Size > skills.MaxFile {
		// A file of the skill that cannot be read is left out in the same way.
		return false, nil
	}
	t.files--
	t.bytes -= file.Size
	if t.files < 0 || t.bytes < 0 {
		return false, refuse("ask its author",
			"%q has more than %d files or %d bytes, with those that it links to", clip(t.at),
			maxSkillFiles, int64(maxSkillBytes))
	}
	if err := t.f.count(file.Size); err != nil {
		return false, err
	}
	file.Path = to
	t.into.more = append(t.into.more, file)
	t.into.from[to] = from
	return true, nil
}

// count holds all that is taken from a source to its limits.
func (f *fetched) count(size int64) error {
	f.done.mu.Lock()
	defer f.done.mu.Unlock()
	f.done.files++
	f.done.bytes += size
	if f.done.files > maxTaken || f.done.bytes > maxTakenBytes {
		return refuse("name a part of it with --subdir",
			"the links in its skills lead to more than %d files or %d bytes", maxTaken, int64(maxTakenBytes))
	}
	return nil
}

// giveBack takes back a count.
func (f *fetched) giveBack(size int64) {
	f.done.mu.Lock()
	defer f.done.mu.Unlock()
	f.done.files--
	f.done.bytes -= size
}

// hash returns the size and the digest of a file of the source for a skill; hides is that of its contents.
func (f *fetched) hash(name string, hides bool) (store.File, error) {
	// A file that one skill may have can be private for another one.
	key := hashKey{name, hides}
	f.done.mu.Lock()
	known, ok := f.done.hashed[key]
	f.done.mu.Unlock()
	if ok {
		return known, nil
	}
	in, err := f.openFile(name, hides)
	if err != nil {
		return store.File{}, err
	}
	defer in.Close()
	sum := digest.SHA256.Digester()
	// One byte more than the limit shows the caller that the file exceeds it.
	size, err := io.Copy(sum.Hash(), io.LimitReader(in, skills.MaxFile+1))
	if err != nil {
		return store.File{}, err
	}
	file := store.File{Path: name, Size: size, Digest: sum.Digest()}
	f.done.mu.Lock()
	defer f.done.mu.Unlock()
	if f.done.hashed == nil {
		f.done.hashed = map[hashKey]store.File{}
	}
	f.done.hashed[key] = file
	return file, nil
}

// openFile opens a regular file of the source by its path without links, for a skill with these hides.
func (f *fetched) openFile(name string, hides bool) (fs.File, error) {
	file, err := f.all.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, errors.Join(err, file.Close())
	case !info.Mode().IsRegular():
		return nil, errors.Join(skills.ErrNotFile, file.Close())
	case info.Mode()&0o004 == 0 && (fsys.Names(info) > 1 || f.origin.Kind == KindDirectory && !hides):
		// As for files of skills: the owner of a private file may never have given it to the source. A
		// directory of this machine also has files of its user that no author publishes. If all files are
		// hidden, the mode does not show that: a plugin lost its shared files.
		return nil, errors.Join(skills.ErrPermission, file.Close())
	}
	return file, nil
}

// text reads a text of the source of at most maxNaming bytes; it returns nil for any other file.
func (f *fetched) text(name string, hides bool) []byte {
	file, err := f.openFile(name, hides)
	if err != nil {
		return nil
	}
	defer file.Close()
	data, err := fsys.ReadAll(file, maxNaming)
	if err != nil {
		return nil
	}
	return data
}

// stage stores the files of a skill.
func (c *contents) stage(ctx context.Context, f *fetched, st store.Putter) (*store.Tree, error) {
	if len(c.more) == 0 {
		return c.skill.Stage(ctx, st)
	}
	return c.skill.StageWith(ctx, st, c.more, func(name string) (io.ReadCloser, error) {
		return f.openFile(c.from[name], c.hides)
	})
}

// shownPath returns the path of a file of a skill for a message.
func shownPath(c *contents, name string) string {
	return fmt.Sprintf("%q", clip(c.skill.Path+"/"+name))
}

// noteTaken notes what the skills of a plan are installed with from elsewhere in their source.
func (p *Plan) noteTaken() {
	slices.SortFunc(p.elsewhere, func(a, b *contents) int {
		return strings.Compare(a.skill.Path, b.skill.Path)
	})
	var links, named, unsettled, private []string
	for _, c := range p.elsewhere {
		for _, link := range c.links {
			links = append(links, shownPath(c, link))
		}
		for _, name := range c.private {
			private = append(private, shownPath(c, name))
		}
		for _, name := range slices.Sorted(maps.Keys(c.from)) {
			if below, ok := strings.CutPrefix(name, skills.PluginDir+"/"); ok {
				named = append(named, c.skill.Path+": "+below)
			}
		}
		for _, note := range c.notes {
			p.notef("%s: %s", c.skill.Path, note)
		}
		if c.unsettled {
			unsettled = append(unsettled, c.skill.Path)
		}
	}
	slices.Sort(links)
	slices.Sort(named)
	slices.Sort(unsettled)
	slices.Sort(private)
	private = slices.Compact(private)
	if len(links) > 0 {
		p.notef("links of skills to other files of the source are taken as these files: %d, %s",
			len(links), listed(links, ""))
	}
	if len(private) > 0 {
		p.notef("files that may be private are left out (hidden, of version control, or not readable by "+
			"other users): %d, %s", len(private), listed(private, ""))
	}
	if len(named) > 0 {
		p.notef("files of plugins that their skills name are installed with them, in %s: %d, such as %s",
			skills.PluginDir, len(named), clip(named[0]))
	}
	if len(unsettled) > 0 {
		p.notef("the directory of the plugin (PLUGIN_ROOT) is used, and nothing in it is named, so the "+
			"variable is not set: %s", listed(unsettled, ""))
	}
}

// TakenFile is a file of a skill from elsewhere in its source.
type TakenFile struct {
	Path string `json:"path"` // in the skill
	From string `json:"from"` // in the source
}

// TakenFiles are sorted by Path.
type TakenFiles []TakenFile

// locked returns the files from elsewhere, as the lock file has them.
func (c *contents) locked() (taken TakenFiles) {
	for _, to := range slices.Sorted(maps.Keys(c.from)) {
		taken = append(taken, TakenFile{to, c.from[to]})
	}
	return taken
}

// check returns an error if these are not files of a skill with paths of a source.
func (taken TakenFiles) check(files []store.File) error {
	for i, t := range taken {
		_, known := slices.BinarySearchFunc(files, t.Path,
			func(f store.File, name string) int { return cmp.Compare(f.Path, name) })
		if !known || !fs.ValidPath(t.From) || i > 0 && t.Path <= taken[i-1].Path {
			return fmt.Errorf("taken: %q is not a file of the skill, is out of order, or has no path "+
				"in the source", clip(t.Path))
		}
	}
	return nil
}
