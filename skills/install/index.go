package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/source/discovery"
	"github.com/skillsd/skillsd/skills/source/web"
	"github.com/skillsd/skillsd/skills/store"
)

// Limits of the skills of an index, in bytes.
const (
	maxArtifact   = 64 << 20 // one skill, as fetched
	maxArtifacts  = 2 << 30  // all files of a command
	maxFetches    = 8        // at the same time
	maxIndexFiles = 2_000    // skills of an index that one command fetches
)

// indexKind is the skills that a web server publishes.
type indexKind struct{ plain }

func (indexKind) resolve(given, ref string, insecure bool) (Origin, bool, error) {
	at, ok := isIndexURL(given)
	if !ok {
		return Origin{}, false, nil
	}
	origin, err := resolveURL(at, ref, insecure)
	origin.Kind = KindIndex
	return origin, err == nil, err
}

func (indexKind) check(o Origin) error {
	_, err := web.Parse(o.Source, true)
	if at, ok := isIndexURL(o.Source); err != nil || !ok || at != o.Source {
		return errors.New("source: is not the URL of an index")
	}
	if o.Commit != "" || o.Ref != "" || o.Subdir != o.Path || !discovery.ValidName(o.Path) {
		return errors.New("path: is not a skill of an index, or there is a ref or a commit")
	}
	if o.Digest.Validate() != nil {
		return errors.New("digest: is missing")
	}
	return nil
}

func (indexKind) single() bool { return true }

func (indexKind) unchanged(ctx context.Context, p *Plan, e *Entry, access Access) bool {
	index, _, err := p.index(ctx, e.Origin.Source, access)
	if err != nil {
		// The fetch that follows returns the error.
		return false
	}
	there := index.Find(e.Origin.Path)
	return there != nil && there.Problem == "" && there.Digest == e.Origin.Digest
}

// isIndexURL returns the URL of the index that a source names, and whether it names one.
func isIndexURL(given string) (string, bool) {
	if !isWeb(given) {
		return "", false
	}
	return discovery.IsIndex(given)
}

// fetch fetches skills of an index: the one at the path of the origin, or all. If the origin has a
// digest, only that version of the skill is accepted. If one of several skills fails, its error is in
// f.failed.
func (indexKind) fetch(
	ctx context.Context, p *Plan, f *fetched, access Access,
) (root skills.Root, err error) {
	index, client, err := p.index(ctx, f.origin.Source, access)
	if err != nil {
		return root, err
	}
	parts := make([]part, len(index.Skills))
	for n, e := range index.Skills {
		parts[n] = part{e.Name, e.Digest, func(ctx context.Context, packed, into string) error {
			return p.artifact(ctx, client, e, packed, into)
		}}
	}
	parts, err = f.wanted("index", parts, access)
	if err != nil {
		return root, err
	}
	return p.fetchParts(ctx, f, parts, maxArtifacts)
}

// index fetches the index of a server, at most once per plan.
func (p *Plan) index(ctx context.Context, from string, access Access) (
	*discovery.Index, *web.Client, error,
) {
	home, err := access.parse(from)
	if err != nil {
		return nil, nil, err
	}
	client := p.client(home, access)
	if known := p.indexes[from]; known != nil {
		return known, client, nil
	}
	p.i.progress("fetching the index", 0, 0)
	var text bytes.Buffer
	if _, err := client.Fetch(ctx, home, discovery.MaxIndex, &text); err != nil {
		return nil, nil, fetchError(home, err)
	}
	found, err := discovery.Parse(text.Bytes(), home)
	if err != nil {
		return nil, nil, &FetchError{from, err, KindIndex}
	}
	p.indexes[from] = found
	return found, client, nil
}

// expects returns an error if the origin has a digest in the lock file and got is another one.
func (o *Origin) expects(name string, got digest.Digest) error {
	if o.Digest == "" || o.Digest == got {
		return nil
	}
	return refuse("bring the version back, or `skillsd remove` and install it anew",
		"%s has another version of %s than the lock file: %.19s, want %.19s", o.Source, name, got, o.Digest)
}

// part is a skill of an index, of a collection or of an MCP server.
type part struct {
	name   string
	digest digest.Digest // as recorded in the lock file; empty: the digest of the tree of what get writes
	// get writes the files of the skill to a new directory. It may first download to a file at packed.
	get func(ctx context.Context, packed, into string) error
}

// fetchParts fetches skills into one directory: at most most bytes in total, including bytes of parts that
// fail. If one of several skills fails, its error is in f.failed and its files are removed.
func (p *Plan) fetchParts(
	ctx context.Context, f *fetched, wanted []part, most int64,
) (root skills.Root, err error) {
	dir, err := p.sourceDir(f, f.origin.Kind)
	if err != nil {
		return root, err
	}
	f.own = dir
	f.failed, f.digests = map[string]error{}, map[string]digest.Digest{}
	var mu sync.Mutex
	left, done := most, 0
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(maxFetches)
	for _, one := range wanted {
		group.Go(func() error {
			sum, took, err := p.fetchPart(within, one, dir+"/"+one.name)
			if within.Err() != nil {
				return within.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			f.digests[one.name] = sum
			if err != nil {
				f.failed[one.name] = err
			}
			left -= took
			if left < 0 {
				return refuse("name skills of it with --subdir",
					"the skills of the source have more than %d bytes", most)
			}
			done++
			p.i.progress("skills fetched", done, len(wanted))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return root, err
	}
	if len(wanted) == 1 {
		only := wanted[0].name
		err := cmp.Or(f.failed[only], f.origin.expects(only, f.digests[only]))
		if err != nil {
			return root, err
		}
		f.origin.Digest = f.digests[only]
	}
	return f.ownRoot(p.i.path(dir))
}

// fetchPart fetches a skill into a new directory. It returns the digest of the skill and the bytes on disk
// that the fetch took. If it fails, the files are removed.
func (p *Plan) fetchPart(
	ctx context.Context, one part, into string,
) (sum digest.Digest, took int64, err error) {
	packed := p.dir + "/packed-" + rand.Text()
	err = one.get(ctx, packed, into)
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	sum = one.digest
	if err == nil && sum == "" {
		sum, err = p.i.treeOf(into)
	}
	// Measured before the removal: a site could make a command fetch any number of parts that fail.
	took = size(p.i.path(packed)) + size(p.i.path(into))
	if gone := p.i.root.RemoveAll(packed); err != nil || gone != nil {
		err = errors.Join(err, gone, p.i.root.RemoveAll(into))
	}
	return sum, took, err
}

// wanted returns the parts of a source to fetch: the one at the path of the origin, which must match the
// digest of the origin if set, or all. A single part sets the digest of the origin.
//
// Errors: *directoryError if the source has no such part; *SeveralError; *SourceError.
func (f *fetched) wanted(source string, parts []part, access Access) (_ []part, err error) {
	if len(access.named) > 0 {
		parts, err = withNames(source, parts, access.named)
		if err != nil {
			return nil, err
		}
	}
	if f.origin.Path != "." {
		at := slices.IndexFunc(parts, func(one part) bool { return one.name == f.origin.Path })
		if at < 0 {
			return nil, &directoryError{refuse("look at it, and name a skill of it with --subdir",
				"the %s has no skill %q", source, clip(f.origin.Path))}
		}
		parts = parts[at : at+1]
		// Without a digest, the version is known only when its files are here.
		if parts[0].digest != "" {
			if err := f.origin.expects(parts[0].name, parts[0].digest); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case len(parts) > 1 && !access.all:
		several := &SeveralError{}
		for _, one := range parts {
			several.Paths = append(several.Paths, one.name)
		}
		return nil, several
	case len(parts) > maxIndexFiles:
		return nil, refuse("name skills of it with --subdir", "the index has %d skills, more than %d",
			len(parts), maxIndexFiles)
	}
	return parts, nil
}

// withNames returns the parts of a source with some names.
func withNames(source string, parts []part, names []string) (found []part, err error) {
	var all []string
	for _, one := range parts {
		all = append(all, one.name)
		if slices.Contains(names, one.name) {
			found = append(found, one)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, refuse("it has "+nearestFirst(name, all, all),
				"the %s has no skill %q", source, clip(name))
		}
	}
	return found, nil
}

// artifact downloads one entry of an index and writes its files to a directory.
func (p *Plan) artifact(
	ctx context.Context, client *web.Client, e *discovery.Entry, packed, into string,
) error {
	if e.Problem != "" {
		return fmt.Errorf("the entry in the index %s", e.Problem)
	}
	if e.Type == discovery.TypeFiles {
		return p.artifactFiles(ctx, client, e, into)
	}
	got, err := p.download(ctx, client, e.At, packed, maxArtifact)
	if err != nil {
		return err
	}
	// Nothing is parsed before the digest matches.
	if got.Digest != e.Digest.String() {
		return fmt.Errorf("%s does not match the index: digest %.19s, want %.19s",
			e.Name, got.Digest, e.Digest)
	}
	if err := p.i.root.Mkdir(into, 0o700); err != nil {
		return err
	}
	if e.Type == discovery.TypeSkill {
		return p.i.root.Rename(packed, into+"/SKILL.md")
	}
	if err := p.unpack(packed, into, got.Size); err != nil {
		return err
	}
	if _, err := p.i.root.Stat(into + "/SKILL.md"); err != nil {
		return errors.New("the archive has no SKILL.md at its root")
	}
	return nil
}

// unpack extracts a downloaded archive of size bytes. Servers often send archives with a wrong type, and URLs
// may lack an extension, so the content decides about its form.
func (p *Plan) unpack(packed, into string, size int64) error {
	file, err := p.i.root.Open(packed)
	if err != nil {
		return err
	}
	mark := make([]byte, 4)
	_, err = io.ReadFull(file, mark)
	if closed := file.Close(); err != nil || closed != nil {
		return errors.Join(err, closed)
	}
	if string(mark) == "PK\x03\x04" {
		return p.unzip(packed, into)
	}
	return p.untar(packed, into, size)
}

// artifactFiles downloads the files that an entry of version 0.1.0 lists.
func (p *Plan) artifactFiles(ctx context.Context, client *web.Client, e *discovery.Entry, into string) error {
	left := int64(maxArtifact)
	for _, file := range e.Files {
		name := into + "/" + file
		if err := p.i.root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		at := e.At.JoinPath(file)
		got, err := p.download(ctx, client, at, name, left)
		if err != nil {
			return err
		}
		// Many servers answer with a page, and the status 200, for a file that they do not have.
		if got.Type == "text/html" && !strings.HasSuffix(strings.ToLower(file), ".html") {
			return fmt.Errorf("%s is a web page, not the file that the index lists", web.Shown(at))
		}
		left -= got.Size
	}
	return nil
}

// treeOf returns the digest of the tree of files in a directory that was just written.
func (i *Installer) treeOf(dir string) (digest.Digest, error) {
	root, err := i.root.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	var files []store.File
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := root.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		sum, err := digest.SHA256.FromReader(file)
		files = append(files, store.File{Path: path, Digest: sum})
		return err
	})
	slices.SortFunc(files, comparePaths)
	return store.TreeDigest(files), err
}

// unzip extracts a downloaded zip archive.
func (p *Plan) unzip(name, into string) error {
	archive := source.NewZip(p.i.path(name))
	defer archive.Close()
	files, err := archive.Pin()
	if err != nil {
		return err
	}
	left := int64(maxArtifacts)
	return fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if entry.IsDir() {
			return p.i.root.MkdirAll(into+"/"+path, 0o700)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		left -= info.Size()
		if left < 0 {
			return errors.New("the files of the archive are too large")
		}
		from, err := files.Open(path)
		if err != nil {
			return err
		}
		defer from.Close()
		mode := fs.FileMode(0o600)
		if info.Mode()&0o111 != 0 {
			mode = 0o700
		}
		to, err := p.i.root.OpenFile(into+"/"+path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		return errors.Join(err, to.Close())
	})
}
