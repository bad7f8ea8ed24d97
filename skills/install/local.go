package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// directoryKind is a directory of this machine, read in its current state.
type directoryKind struct{ plain }

// zipKind is a zip archive on this machine. directoryKind resolves it too: both are paths.
type zipKind struct{ plain }

// tarKind is a tar archive on this machine, likewise. Unlike a zip archive it is extracted first.
type tarKind struct{ plain }

func (directoryKind) resolve(given, ref string, _ bool) (Origin, bool, error) {
	if ref != "" {
		return Origin{}, false, refuse("leave it out", "--ref goes with a git URL only")
	}
	const sources = "give a directory, a zip or tar archive, OWNER/REPOSITORY of GitHub, or a URL such as " +
		"https://host/owner/repository, " +
		"https://host/skills.tar.gz or oci://host/skill:1.0"
	if given == "" {
		return Origin{}, false, refuse(sources, "the source is empty")
	}
	file, err := filepath.Abs(given)
	if err != nil {
		return Origin{}, false, err
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && ofMarketplace().MatchString(given):
		name, market, _ := strings.Cut(given, "@")
		return Origin{}, false, refuse("name the repository of the marketplace: "+
			"skillsd install OWNER/REPOSITORY --plugin "+name,
			"%q is the plugin %s of the marketplace %s, which only the client that added it knows "+
				"by this name", given, name, market)
	case errors.Is(err, fs.ErrNotExist):
		return Origin{}, false, refuse(sources, "there is no %q", given)
	case err != nil:
		return Origin{}, false, err
	case info.IsDir():
		return Origin{Kind: KindDirectory, Source: file}, true, nil
	case info.Mode().IsRegular() && isZip(file):
		return Origin{Kind: KindZip, Source: file}, true, nil
	case info.Mode().IsRegular() && archiveEnd(file) != "":
		return Origin{Kind: KindTar, Source: file}, true, nil
	}
	return Origin{}, false, nil
}

// ofMarketplace is a plugin as users of Claude Code and Copilot name it: PLUGIN@MARKETPLACE.
var ofMarketplace = pattern.New(`^[A-Za-z0-9][A-Za-z0-9_.-]*@[A-Za-z][A-Za-z0-9_-]*$`)

// isZip reports whether a file is a zip archive by its name. A .skill is the archive of a skill that clients
// export.
func isZip(name string) bool {
	end := strings.ToLower(filepath.Ext(name))
	return end == ".zip" || end == ".skill"
}

func (directoryKind) check(o Origin) error {
	if !filepath.IsAbs(o.Source) || o.Commit != "" || o.Ref != "" || o.Digest != "" {
		return errors.New("source: is not an absolute path, or has a ref, a commit or a digest")
	}
	return nil
}

func (zipKind) check(o Origin) error { return checkArchive(o) }

func (tarKind) check(o Origin) error { return checkArchive(o) }

// checkArchive is check for an archive on this machine, whose ref is the digest that its bytes must have.
func checkArchive(o Origin) error {
	if o.Ref != "" && digest.Digest(o.Ref).Validate() != nil {
		return errors.New("ref: is not a digest")
	}
	o.Ref = ""
	return directoryKind{}.check(o)
}

func (directoryKind) fetch(_ context.Context, _ *Plan, f *fetched, _ Access) (skills.Root, error) {
	f.base = filepath.Base(f.origin.Source)
	return f.openRoot(f.origin.Source, true)
}

func (zipKind) fetch(_ context.Context, p *Plan, f *fetched, _ Access) (skills.Root, error) {
	f.base = strings.TrimSuffix(filepath.Base(f.origin.Source), filepath.Ext(f.origin.Source))
	if f.origin.Ref == "" {
		return f.zipRoot(f.origin.Source)
	}
	dir, err := p.sourceDir(f, KindZip)
	if err != nil {
		return skills.Root{}, err
	}
	if err := p.copyPinned(f, dir+"/archive"); err != nil {
		return skills.Root{}, err
	}
	return f.zipRoot(p.i.path(dir + "/archive"))
}

func (tarKind) fetch(_ context.Context, p *Plan, f *fetched, _ Access) (root skills.Root, err error) {
	f.base = path.Base(filepath.ToSlash(f.origin.Source))
	f.base = f.base[:len(f.base)-len(archiveEnd(f.base))]
	dir, err := p.sourceDir(f, KindTar, "files")
	if err != nil {
		return root, err
	}
	file, err := p.openTar(f, dir+"/archive")
	if err != nil {
		return root, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return root, err
	}
	if err := p.untarFile(file, dir+"/files", info.Size()); err != nil {
		return root, err
	}
	return f.ownRoot(p.i.path(dir + "/files"))
}

// openTar opens an archive on this machine, or a copy of it at a path if the user gave its digest.
func (p *Plan) openTar(f *fetched, name string) (*os.File, error) {
	if f.origin.Ref == "" {
		return openArchive(f.origin.Source)
	}
	if err := p.copyPinned(f, name); err != nil {
		return nil, err
	}
	return p.i.root.Open(name)
}

// openArchive opens an archive on this machine.
func openArchive(at string) (*os.File, error) {
	// The file may be replaced since it was resolved: opening a named pipe must not block.
	file, err := os.OpenFile(at, os.O_RDONLY|fsys.NonBlock, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if !info.Mode().IsRegular() || info.Size() > maxDownload {
		err := refuse("", "%q is no regular file, or has more than %d bytes", clip(at), maxDownload)
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// copyPinned copies an archive whose digest the user gave to a file below the state directory, and compares
// the digest of the copy.
func (p *Plan) copyPinned(f *fetched, name string) error {
	from, err := openArchive(f.origin.Source)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := p.i.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	// Other processes could write to the archive itself between a comparison and its extraction.
	sum := digest.SHA256.Digester()
	// The archive may have grown since openArchive looked at its size.
	_, err = io.Copy(io.MultiWriter(to, sum.Hash()), io.LimitReader(from, maxDownload))
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return f.origin.matchesRef(sum.Digest())
}

// ownRoot returns the root for the requested part of a directory to which no other process writes, such as an
// extracted archive.
func (f *fetched) ownRoot(top string) (skills.Root, error) { return f.openRoot(top, false) }

// openRoot returns the root for the requested part of a directory. If hold is set, the part is held open.
func (f *fetched) openRoot(top string, hold bool) (skills.Root, error) {
	handle, err := os.OpenRoot(top)
	if err != nil {
		return skills.Root{}, err
	}
	release := f.close
	f.all, f.close = heldDir{handle}, func() error { return errors.Join(handle.Close(), release()) }
	part, err := handle.OpenRoot(filepath.FromSlash(f.origin.Path))
	if err != nil {
		return skills.Root{}, noDirectory(f.origin.Path, skillFiles(handle.FS()))
	}
	root := skills.Root{Dir: filepath.Join(top, filepath.FromSlash(f.origin.Path))}
	if f.origin.Path == "." || !hold {
		return root, part.Close()
	}
	// Other users may have write access there, and a link in its place must not lead elsewhere.
	held := f.close
	f.close = func() error { return errors.Join(part.Close(), held()) }
	root.FS, root.Name = heldDir{part}, path.Base(f.origin.Path)
	return root, nil
}

// directoryError reports a directory that a source lacks.
type directoryError struct{ error }

func (e *directoryError) Unwrap() error { return e.error }

// noDirectory returns the error for a directory that a source lacks. files are the paths of its files.
func noDirectory(dir string, files iter.Seq[string]) error {
	const most = 10
	var there []string
	for file := range files {
		if name := path.Base(file); strings.EqualFold(name, "SKILL.md") && path.Dir(file) != "." {
			there = append(there, clip(path.Dir(file)))
		}
		if len(there) > most {
			there[most] = "…"
			break
		}
	}
	hint := "look at it, and name one with --subdir"
	if len(there) > 0 {
		hint = "name one of its directories with skills: " + strings.Join(there, ", ")
	}
	return &directoryError{refuse(hint, "the source has no directory %q", clip(dir))}
}

// skillFiles yields the paths of the files named SKILL.md in the upper directories of a source.
func skillFiles(source fs.FS) iter.Seq[string] {
	return func(yield func(string) bool) {
		// The paths are only advice in an error, so the search is short.
		const depth, most = 4, 10_000
		seen := 0
		// Unreadable directories have no skills to name.
		_ = fs.WalkDir(source, ".", func(p string, d fs.DirEntry, err error) error {
			seen++
			switch {
			case err != nil && d != nil && d.IsDir():
				return fs.SkipDir
			case err != nil:
				return nil
			case seen > most:
				return fs.SkipAll
			case d.IsDir() && (strings.Count(p, "/") >= depth || d.Name() == ".git"):
				return fs.SkipDir
			case strings.EqualFold(d.Name(), "SKILL.md") && !yield(p):
				return fs.SkipAll
			}
			return nil
		})
	}
}

// zipRoot returns the root for the requested part of an archive.
func (f *fetched) zipRoot(file string) (skills.Root, error) {
	archive, release := source.NewZip(file), f.close
	f.close = func() error { return errors.Join(archive.Close(), release()) }
	pinned, err := archive.Pin()
	if err != nil {
		return skills.Root{}, err
	}
	f.all = zipTree{pinned}
	part, err := fs.Sub(pinned, f.origin.Path)
	if err != nil {
		return skills.Root{}, err
	}
	if info, err := fs.Stat(part, "."); err != nil || !info.IsDir() {
		return skills.Root{}, noDirectory(f.origin.Path, skillFiles(pinned))
	}
	return skills.Root{Dir: file, FS: part, Name: path.Base(path.Join(f.base, f.origin.Path))}, nil
}

// zipTree is all of an archive.
type zipTree struct{ fs.FS }

// Lstat returns the facts about a file, a directory or a link.
func (t zipTree) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(t.FS, name) }

// ReadLink returns the text of a link.
func (t zipTree) ReadLink(name string) (string, error) { return fs.ReadLink(t.FS, name) }

// ReadDir lists a directory.
func (t zipTree) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(t.FS, name) }

// heldDir is a directory that is held open, so that renaming it or replacing it has no effect. No link leads
// out of it, and opening a named pipe does not block.
type heldDir struct{ root *os.Root }

func (h heldDir) Open(name string) (fs.File, error) { return h.open(name, 0) }

func (h heldDir) open(name string, flag int) (*os.File, error) {
	return h.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|fsys.NonBlock|flag, 0)
}

// Lstat returns the facts about a file, a directory or a link.
func (h heldDir) Lstat(name string) (fs.FileInfo, error) {
	return h.root.Lstat(filepath.FromSlash(name))
}

// ReadLink returns the text of a link.
func (h heldDir) ReadLink(name string) (string, error) {
	text, err := h.root.Readlink(filepath.FromSlash(name))
	return filepath.ToSlash(text), err
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
	// With a limit, ReadDir returns io.EOF for an empty directory.
	if err == io.EOF {
		err = nil
	}
	return entries, err
}
