package install

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Kind is what a source is.
type Kind string

// The kinds of sources.
const (
	KindGit       Kind = "git"
	KindZip       Kind = "zip"
	KindDirectory Kind = "directory"
)

// Origin is where an installed skill came from.
type Origin struct {
	Kind   Kind   `json:"kind"`
	Source string `json:"source"`           // a URL without credentials, or an absolute path
	Ref    string `json:"ref,omitempty"`    // as it was asked for; empty: the default branch
	Commit string `json:"commit,omitempty"` // of git
	Subdir string `json:"subdir,omitempty"` // the part of the source that was looked in
	Path   string `json:"path"`             // of the skill in the source; "." for the whole
}

// Version is one content of a skill.
type Version struct {
	// Origin is where an earlier version came from when that is not where the entry does; its Commit is
	// that of the version.
	Origin      *Origin       `json:"origin,omitempty"`
	Commit      string        `json:"commit,omitempty"`
	Tree        digest.Digest `json:"tree"`
	Files       []LockFileRow `json:"files"` // in byte order of Path
	InstalledAt time.Time     `json:"installedAt"`
}

// LockFileRow is a file of a skill.
type LockFileRow struct {
	Path   string        `json:"path"`
	Digest digest.Digest `json:"digest"`
}

// Entry is an installed skill.
type Entry struct {
	Name        string        `json:"name"` // of its directory, and its path in the catalogue
	Tier        skills.Tier   `json:"tier"`
	Enabled     bool          `json:"enabled"` // it is served
	Origin      Origin        `json:"origin"`
	Tree        digest.Digest `json:"tree"`
	Files       []LockFileRow `json:"files"` // in byte order of Path
	InstalledAt time.Time     `json:"installedAt"`
	Previous    *Version      `json:"previous,omitempty"` // what rollback goes back to
}

// version is the content of an entry.
func (e *Entry) version() *Version {
	return &Version{Commit: e.Origin.Commit, Tree: e.Tree, Files: e.Files, InstalledAt: e.InstalledAt}
}

// with is the entry with another content; what it had becomes its previous one.
func (e *Entry) with(v *Version) *Entry {
	changed := *e
	if v.Origin != nil {
		changed.Origin = *v.Origin
	}
	changed.Origin.Commit, changed.Tree, changed.Files, changed.InstalledAt = v.Commit, v.Tree, v.Files, v.InstalledAt
	changed.Previous = e.earlier(changed.Origin)
	return &changed
}

// earlier is the content of an entry as the previous one of another with an origin.
func (e *Entry) earlier(now Origin) *Version {
	v := e.version()
	if !e.Origin.Same(now) {
		from := e.Origin
		v.Origin = &from
	}
	return v
}

// Same reports whether two origins are one place, at whatever commits.
func (o Origin) Same(other Origin) bool {
	o.Commit, other.Commit = "", ""
	return o == other
}

// Lock is the content of a lock file. It is immutable.
type Lock struct {
	Skills []*Entry // in byte order of Name; names differ by more than case
}

// Find returns the entry of a name, or nil.
func (l *Lock) Find(name string) *Entry {
	at, found := slices.BinarySearchFunc(l.Skills, name, func(e *Entry, name string) int { return strings.Compare(e.Name, name) })
	if !found {
		return nil
	}
	return l.Skills[at]
}

// clash returns the entry whose directory a name would share on some system, or nil.
func (l *Lock) clash(name string) *Entry {
	for _, e := range l.Skills {
		if strings.EqualFold(e.Name, name) {
			return e
		}
	}
	return nil
}

// with returns a lock in which the names are what the changes say; nil removes one.
func (l *Lock) with(changes map[string]*Entry) *Lock {
	changed := &Lock{}
	for _, e := range l.Skills {
		if _, ok := changes[e.Name]; !ok {
			changed.Skills = append(changed.Skills, e)
		}
	}
	for _, e := range changes {
		if e != nil {
			changed.Skills = append(changed.Skills, e)
		}
	}
	slices.SortFunc(changed.Skills, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
	return changed
}

// LockError is a lock file that cannot be used.
type LockError struct {
	File   string
	Line   int // from 1; 0 when it is the whole
	Column int // from 1; 0 when it is the whole line
	What   string
}

func (e *LockError) Error() string {
	place := e.File
	for _, number := range []int{e.Line, e.Column} {
		if number > 0 {
			place += ":" + strconv.Itoa(number)
		}
	}
	return place + ": " + e.What
}

// maxLock is the longest lock file, in bytes.
const maxLock = 256 << 20

// maxName is the longest name of an installed skill, in bytes.
const maxName = 128

var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_-])?$`)

// CheckName returns why an installed skill cannot have a name. It is a directory of its own on every
// system: letters, digits, ".", "_" and "-".
func CheckName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("the name is longer than %d characters", maxName)
	case !validName.MatchString(name) || !filepath.IsLocal(name) || skills.Ignored(name):
		return fmt.Errorf("%q is no name for a directory of letters, digits, dots, underscores and hyphens", clip(name))
	}
	return nil
}

func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}

// ReadLock reads a lock file; one that is missing is empty. It may come from elsewhere: everything in
// it is checked.
//
// Errors: *LockError, those of the system.
func ReadLock(file string) (*Lock, error) {
	root, err := os.OpenRoot(filepath.Dir(file))
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{}, nil
	} else if err != nil {
		return nil, err
	}
	defer root.Close()
	data, err := fsys.ReadFileIn(root, filepath.Base(file), maxLock)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the lock file: %w", err)
	}
	lock, err := parseLock(data)
	if problem, ok := errors.AsType[*LockError](err); ok {
		problem.File = file
	}
	return lock, err
}

// check returns why an entry cannot be used.
func (e *Entry) check() error {
	if err := CheckName(e.Name); err != nil {
		return err
	}
	if err := e.Origin.check(); err != nil {
		return err
	}
	if err := e.version().check(); err != nil {
		return err
	}
	if e.Previous != nil {
		if err := e.Previous.check(); err != nil {
			return fmt.Errorf("previous: %w", err)
		}
		if (e.Previous.Commit == "") != (e.previousOrigin().Kind != KindGit) {
			return errors.New("previous: commit: is missing, or of no repository")
		}
		if err := e.previousOrigin().check(); err != nil {
			return fmt.Errorf("previous: %w", err)
		}
	}
	return nil
}

// previousOrigin is where the earlier version came from.
func (e *Entry) previousOrigin() Origin {
	origin := e.Origin
	if e.Previous.Origin != nil {
		origin = *e.Previous.Origin
	}
	origin.Commit = e.Previous.Commit
	return origin
}

// check returns why an origin cannot be one.
func (o Origin) check() error {
	if o.Path == "" || !fs.ValidPath(o.Path) {
		return errors.New("path: is no path in a source")
	}
	if o.Subdir != "" && !fs.ValidPath(o.Subdir) {
		return errors.New("subdir: is no path in a source")
	}
	switch o.Kind {
	case KindGit:
		if _, err := parseURL(o.Source, true); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if err := checkRef(o.Ref); err != nil {
			return err
		}
		if !commitID.MatchString(o.Commit) {
			return errors.New("commit: is no commit")
		}
	case KindZip, KindDirectory:
		if !filepath.IsAbs(o.Source) || o.Commit != "" || o.Ref != "" {
			return errors.New("source: is no absolute path, or has a ref")
		}
	default:
		return errors.New("kind: is none of git, zip and directory")
	}
	return nil
}

// check holds the files to their tree.
func (v *Version) check() error {
	if v.Commit != "" && !commitID.MatchString(v.Commit) {
		return errors.New("commit: is no commit")
	}
	files := make([]store.File, len(v.Files))
	for i, f := range v.Files {
		if _, err := filepath.Localize(f.Path); err != nil || f.Path == "." || i > 0 && f.Path <= v.Files[i-1].Path {
			return fmt.Errorf("files: %q is no path of a file, or out of order", clip(f.Path))
		}
		if f.Digest.Validate() != nil {
			return fmt.Errorf("files: %q has no digest", clip(f.Path))
		}
		files[i] = store.File{Path: f.Path, Digest: f.Digest}
	}
	if v.Tree.Validate() != nil || store.TreeDigest(files) != v.Tree {
		return errors.New("tree: is not the digest of the files")
	}
	return nil
}

// lockRows are the files of a tree as the lock file has them.
func lockRows(files []store.File) []LockFileRow {
	rows := make([]LockFileRow, len(files))
	for i, f := range files {
		rows[i] = LockFileRow{f.Path, f.Digest}
	}
	slices.SortFunc(rows, func(a, b LockFileRow) int { return cmp.Compare(a.Path, b.Path) })
	return rows
}

// quote writes a string so that YAML and JSON read the same.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("install: a string without JSON form")
	}
	var b strings.Builder
	for _, r := range string(text) {
		// YAML takes these for no text, or for the end of a line.
		if unicode.IsControl(r) || r == '\ufeff' || r == '\ufffe' || r == '\uffff' {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
