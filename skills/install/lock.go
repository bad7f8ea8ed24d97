package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/source/signed"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Origin is the source of an installed skill.
type Origin struct {
	Kind Kind `json:"kind" yaml:"kind"`
	// a URL without credentials, or an absolute path
	Source string `json:"source" yaml:"source"`
	// as requested: for git, empty for the default branch; for a URL or an archive, the expected digest; for
	// a registry, a tag or a digest
	Ref    string `json:"ref,omitempty" yaml:"ref,omitempty"`
	Commit string `json:"commit,omitempty" yaml:"commit,omitempty"` // git only
	// of the bytes that a web server sent, before unpacking, or of the manifest in a registry; for an MCP
	// server, of the names and digests of the files
	Digest digest.Digest `json:"digest,omitempty" yaml:"digest,omitempty"`
	// the part of the source that was searched
	Subdir string `json:"subdir,omitempty" yaml:"subdir,omitempty"`
	Path   string `json:"path" yaml:"path"` // of the skill in the source; "." for the whole
	// Signer is the required signer of the source; empty: none.
	Signer signed.Signer `json:"signer,omitempty" yaml:"signer,omitempty"`
	// Identity is the identity that signed, among those that Signer covers, if Signer is an identity.
	Identity string `json:"identity,omitempty" yaml:"identity,omitempty"`
}

// Version is one content of a skill.
type Version struct {
	// Origin is the source of an earlier version if it differs from the source of the entry; its Commit and
	// Digest are empty.
	Origin      *Origin       `json:"origin,omitempty" yaml:"origin,omitempty"`
	Commit      string        `json:"commit,omitempty" yaml:"commit,omitempty"`
	Digest      digest.Digest `json:"digest,omitempty" yaml:"digest,omitempty"`
	Tree        digest.Digest `json:"tree" yaml:"tree"`
	InstalledAt time.Time     `json:"installedAt" yaml:"installedAt"`
	Plugin      *PluginFacts  `json:"plugin,omitempty" yaml:"plugin,omitempty"`
	Files       LockFiles     `json:"files" yaml:"files"`
	// Taken are the files from elsewhere in the source, with their paths there: those that links of the skill
	// lead to, and files of its plugin that it names.
	Taken      TakenFiles `json:"taken,omitempty" yaml:"taken,omitempty"`
	Assessment `yaml:",inline"`
}

// LockFiles are the files of a skill, sorted by Path. Only Path and Digest are set.
type LockFiles []store.File

// Entry is an installed skill.
type Entry struct {
	Name        string        `json:"name" yaml:"name"` // of the directory, and the path in the catalogue
	Tier        skills.Tier   `json:"tier" yaml:"tier"`
	Enabled     bool          `json:"enabled" yaml:"enabled"` // served, unless quarantined
	Origin      Origin        `json:"origin" yaml:"origin"`
	Tree        digest.Digest `json:"tree" yaml:"tree"`
	InstalledAt time.Time     `json:"installedAt" yaml:"installedAt"`
	// Plugin is the plugin that the skill is a part of; nil for none.
	Plugin *PluginFacts `json:"plugin,omitempty" yaml:"plugin,omitempty"`
	Files  LockFiles    `json:"files" yaml:"files"`
	// Taken is as in Version.
	Taken      TakenFiles `json:"taken,omitempty" yaml:"taken,omitempty"`
	Assessment `yaml:",inline"`
	// Previous is the version that Rollback returns to.
	Previous *Version `json:"previous,omitempty" yaml:"previous,omitempty"`
}

// version returns the current version of an entry.
func (e *Entry) version() *Version {
	return &Version{Commit: e.Origin.Commit, Digest: e.Origin.Digest, Tree: e.Tree,
		InstalledAt: e.InstalledAt, Plugin: e.Plugin, Files: e.Files, Taken: e.Taken,
		Assessment: e.Assessment}
}

// with returns the entry with another version; its current version becomes the earlier one.
func (e *Entry) with(v *Version) *Entry {
	changed := *e
	if v.Origin != nil {
		changed.Origin = *v.Origin
	}
	changed.Origin.Commit, changed.Origin.Digest = v.Commit, v.Digest
	changed.Tree, changed.InstalledAt, changed.Files = v.Tree, v.InstalledAt, v.Files
	changed.Plugin, changed.Taken, changed.Assessment = v.Plugin, v.Taken, v.Assessment
	changed.setPrevious(e.version(), e.Origin)
	return &changed
}

// setPrevious sets the earlier version of an entry, and its origin.
func (e *Entry) setPrevious(v *Version, from Origin) {
	previous := *v
	previous.Origin, previous.Commit, previous.Digest = nil, from.Commit, from.Digest
	if !from.Same(e.Origin) {
		from.Commit, from.Digest = "", ""
		previous.Origin = &from
	}
	e.Previous = &previous
}

// keepingCleared returns an entry with the earlier version of another one if the current version of that one
// waits and the earlier one was cleared: a version that waits is none to return to, and the next one is
// compared with a cleared one.
func (e *Entry) keepingCleared(was *Entry) *Entry {
	if !was.Quarantined() || was.cleared() == nil || was.cleared().Tree == e.Tree {
		return e
	}
	changed := *e
	changed.setPrevious(was.Previous, was.previousOrigin())
	return &changed
}

// keepingEarlier returns an entry of a foreign lock file with the earlier version of this machine: the
// version that is replaced here, or if the tree stays the same, its earlier version.
func (e *Entry) keepingEarlier(here *Entry) *Entry {
	changed := *e
	changed.Previous = nil
	if here.Tree != e.Tree {
		changed.setPrevious(here.version(), here.Origin)
		return changed.keepingCleared(here)
	} else if here.Previous != nil {
		changed.setPrevious(here.Previous, here.previousOrigin())
	}
	return &changed
}

// Same reports whether two origins are equal except for their commits and digests.
func (o Origin) Same(other Origin) bool {
	o.Commit, other.Commit, o.Digest, other.Digest = "", "", "", ""
	return o == other
}

// Lock is the content of a lock file. It is immutable.
type Lock struct {
	Skills []*Entry // sorted by Name; names are unique regardless of case
}

// Find returns the entry with a name, or nil.
func (l *Lock) Find(name string) *Entry {
	at, found := slices.BinarySearchFunc(l.Skills, name,
		func(e *Entry, name string) int { return strings.Compare(e.Name, name) })
	if !found {
		return nil
	}
	return l.Skills[at]
}

// Named returns the entry that a user means by a name: its own, PLUGIN:SKILL for PLUGIN/SKILL, or the last
// part of it, if one skill alone has that. It returns nil for another name.
func (l *Lock) Named(name string) *Entry {
	if e := l.Find(name); e != nil {
		return e
	}
	if group, own, ok := strings.Cut(name, ":"); ok {
		return l.Find(group + "/" + own)
	}
	var found *Entry
	for _, e := range l.Skills {
		if path.Base(e.Name) != name {
			continue
		}
		if found != nil {
			return nil
		}
		found = e
	}
	return found
}

// from returns the entry of the skill at a path of a source, or nil.
func (l *Lock) from(o Origin, at string) *Entry {
	for _, e := range l.Skills {
		if e.Origin.Kind == o.Kind && e.Origin.Source == o.Source && e.Origin.Path == at {
			return e
		}
	}
	return nil
}

// like returns the entry with a name, regardless of case, or nil.
func (l *Lock) like(name string) *Entry {
	for _, e := range l.Skills {
		if strings.EqualFold(e.Name, name) {
			return e
		}
	}
	return nil
}

// clash returns the entry that cannot be installed together with a name, see clashes, or nil.
func (l *Lock) clash(name string) *Entry {
	for _, e := range l.Skills {
		if clashes(e.Name, name) {
			return e
		}
	}
	return nil
}

// with returns a lock with the entries of some names replaced; nil removes one.
func (l *Lock) with(changes map[string]*Entry) *Lock {
	changed := &Lock{Skills: slices.DeleteFunc(slices.Clone(l.Skills), func(e *Entry) bool {
		_, ok := changes[e.Name]
		return ok
	})}
	for _, e := range changes {
		if e != nil {
			changed.Skills = append(changed.Skills, e)
		}
	}
	slices.SortFunc(changed.Skills, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
	return changed
}

// Filter returns a lock with the entries for which keep returns true, without their earlier versions.
func (l *Lock) Filter(keep func(*Entry) bool) *Lock {
	part := &Lock{}
	for _, e := range l.Skills {
		if keep(e) {
			kept := *e
			kept.Previous = nil
			part.Skills = append(part.Skills, &kept)
		}
	}
	return part
}

// Below returns the files of the skill, or of the skill nested in its directory dir, with paths relative to
// it.
func (e *Entry) Below(dir string) []store.File {
	if dir == "" {
		return e.Files
	}
	var files []store.File
	for _, f := range e.Files {
		if below, ok := strings.CutPrefix(f.Path, dir+"/"); ok {
			files = append(files, store.File{Path: below, Digest: f.Digest})
		}
	}
	return files
}

// LockError reports a lock file that cannot be used.
type LockError struct {
	File     string
	Position string // :LINE or :LINE:COLUMN; empty for the whole
	What     string
}

func (e *LockError) Error() string { return e.File + e.Position + ": " + e.What }

// maxLock is the maximum size of a lock file, in bytes.
const maxLock = 256 << 20

var validName = pattern.New(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?$`)

// checkName returns an error if a skill cannot be installed under a name: a name of its own, or GROUP/NAME,
// where the group is a plugin or a directory of the source. Both become directories on every system, so they
// have only letters, digits, ".", "_" and "-".
func checkName(name string) error {
	group, own, grouped := strings.Cut(name, "/")
	if !isName(group) || grouped && !isName(own) {
		return fmt.Errorf("%q is not a name of letters, digits, dots, underscores and hyphens, at most 128",
			clip(name))
	}
	return nil
}

func isName(name string) bool {
	return validName().MatchString(name) && filepath.IsLocal(name) && !skills.Ignored(name)
}

// Holding returns the entry of the installed skill that a path of the catalogue lies in, and the rest of the
// path: empty for that skill itself, else of a skill nested in it. It returns nil for other paths.
func (l *Lock) Holding(path string) (e *Entry, inside string) {
	name, rest, _ := strings.Cut(path, "/")
	if e := l.Find(name); e != nil {
		return e, rest
	}
	own, inside, _ := strings.Cut(rest, "/")
	return l.Find(name + "/" + own), inside
}

// Installed is a lock file with the state directory in which its skills are installed. The zero value has
// none.
type Installed struct {
	lock  *Lock
	state string
}

// In returns the skills of a lock file in a state directory.
func (l *Lock) In(state string) Installed { return Installed{l, state} }

// Missing reports whether the installed skill that a path of the catalogue lies in should be served, but its
// directory does not exist.
func (i Installed) Missing(path string) bool {
	if i.lock == nil {
		return false
	}
	e, _ := i.lock.Holding(path)
	if e == nil || !e.Served() {
		return false
	}
	return !fsys.Exists(filepath.Join(RootDir(i.state, e.Tier), filepath.FromSlash(e.Name)))
}

// Tampered reports whether the files of an installed skill, or of a skill that lies in one, differ from the
// lock file. It is false for skills of other roots, and for one that cannot be read.
func (i Installed) Tampered(ctx context.Context, sk *skills.Skill) bool {
	if i.lock == nil || sk.Root.FS != nil || !IsRoot(i.state, sk.Root.Dir) {
		return false
	}
	e, inside := i.lock.Holding(sk.Path)
	if e == nil {
		return false
	}
	index, err := sk.Index(ctx)
	if err != nil {
		return false
	}
	if inside == "" {
		return index.TreeDigest != e.Tree
	}
	// The files of a nested skill are files of the enclosing one too.
	return !slices.EqualFunc(index.Files, e.Below(inside), func(now, then store.File) bool {
		return now.Path == then.Path && now.Digest == then.Digest
	})
}

// clashes reports whether two names cannot be installed together: they are one directory, on systems that
// ignore case, or one lies in the other.
func clashes(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}

// ReadLock reads a lock file; a missing one is empty. The file may come from another machine, so all of it is
// checked.
//
// Errors: *LockError; system errors.
func ReadLock(file string) (*Lock, error) {
	lock, err := Import(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{}, nil
	}
	return lock, err
}

// Import reads the lock file of another machine. Unlike ReadLock, it returns an error if the file is missing.
//
// Errors: fs.ErrNotExist, *LockError; system errors.
func Import(file string) (*Lock, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// Another file may take its place after a look at it, so the opened file must be a regular one.
	data, err := fsys.ReadFileIn(root, filepath.Base(file), maxLock)
	if err != nil {
		return nil, fmt.Errorf("read the lock file: %w", err)
	}
	lock, err := ParseLock(data)
	if problem, ok := errors.AsType[*LockError](err); ok {
		problem.File = file
	}
	return lock, err
}

// check returns an error if an entry is not valid.
func (e *Entry) check() error {
	err := cmp.Or(checkName(e.Name), e.Origin.check(), e.version().check())
	if err != nil || e.Previous == nil {
		return err
	}
	if err := cmp.Or(e.Previous.check(), e.previousOrigin().check()); err != nil {
		return fmt.Errorf("previous: %w", err)
	}
	return nil
}

// previousOrigin returns the origin of the earlier version.
func (e *Entry) previousOrigin() Origin {
	origin := e.Origin
	if e.Previous.Origin != nil {
		origin = *e.Previous.Origin
	}
	origin.Commit, origin.Digest = e.Previous.Commit, e.Previous.Digest
	return origin
}

// check returns an error if an origin is not valid.
func (o Origin) check() error {
	if o.Path == "" || !fs.ValidPath(o.Path) {
		return errors.New("path: is not a path in a source")
	}
	if o.Subdir != "" && !fs.ValidPath(o.Subdir) {
		return errors.New("subdir: is not a path in a source")
	}
	if err := o.checkSigner(); err != nil {
		return err
	}
	kind := kinds[o.Kind]
	if kind == nil || o.Kind == KindTree {
		return errors.New("kind: is not one of " + strings.Join(kindNames(), ", "))
	}
	return kind.check(o)
}

// check validates the files and compares them with the digest of the tree.
func (v *Version) check() error {
	for i, f := range v.Files {
		// A path of another system may not be valid here, such as a:b on Windows.
		_, err := filepath.Localize(f.Path)
		if err != nil || f.Path == "." || i > 0 && f.Path <= v.Files[i-1].Path {
			return fmt.Errorf("files: %q is not a path of a file, or out of order", clip(f.Path))
		}
		if f.Digest.Validate() != nil {
			return fmt.Errorf("files: %q has no digest", clip(f.Path))
		}
	}
	if v.Tree.Validate() != nil || store.TreeDigest(v.Files) != v.Tree {
		return errors.New("tree: is not the digest of the files")
	}
	return cmp.Or(v.Plugin.check(), v.Taken.check(v.Files), v.Assessment.check())
}

// lockFiles returns the files of a stored tree in the form of the lock file.
func lockFiles(files []store.File) LockFiles {
	rows := make(LockFiles, len(files))
	for i, f := range files {
		rows[i] = store.File{Path: f.Path, Digest: f.Digest}
	}
	return rows
}
