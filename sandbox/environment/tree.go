package environment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/content"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// directory is the kind of members that are not in a manifest.
const directory Kind = "dir"

// fullEvery is the age at which a check of all files is repeated before a run.
const fullEvery = time.Second

// Tree is an environment that was verified. Its methods are safe for concurrent use.
type Tree struct {
	Name   string
	Digest digest.Digest // of its manifest

	store   *Store
	top     *os.File // with a shared lock, so that no process removes the tree
	members []member // a directory before its members

	mu     sync.Mutex
	full   time.Time // of the last check of all members
	asked  bool      // watch was called
	events *os.File  // inotify events of the directories; nil: not available
}

// member is an entry, and the mark of its file when its content was hashed; zero if it was not hashed.
type member struct {
	Entry
	derived bool
	seen    content.Mark
}

// Checked describes the check of an environment before a run.
type Checked struct {
	How string    `json:"how"` // "full", or "directories" if the last full check is not older than a second
	At  time.Time `json:"at"`  // of the last full check
}

func (t *Tree) sort() {
	slices.SortFunc(t.members, func(x, y member) int { return byPath(x.Entry, y.Entry) })
	// "." is the first member.
	for i, m := range t.members {
		if m.Path == "." {
			copy(t.members[1:i+1], t.members[:i])
			t.members[0] = m
		}
	}
}

func (t *Tree) changed(at, what string) error {
	return &ChangedError{Name: t.Name, Path: at, What: what}
}

// damaged returns a reason why a member is not what was stored as the error of its tree.
func (t *Tree) damaged(at string, err error) error {
	if d, ok := errors.AsType[*content.DamageError](err); ok {
		return t.changed(at, d.What)
	}
	return err
}

// Manifest returns the manifest of the tree's digest.
func (t *Tree) Manifest() Manifest {
	var m Manifest
	for _, e := range t.members {
		if e.Kind != directory && !e.derived {
			m = append(m, e.Entry)
		}
	}
	return m
}

// Open returns a handle of the tree's directory, the verified one. The caller closes it.
func (t *Tree) Open() (*os.File, error) {
	was, err := t.top.Stat()
	if err != nil {
		return nil, err
	}
	handle, err := t.store.made.Handle(t.Name, was)
	if err != nil {
		return nil, t.damaged(".", err)
	}
	return handle, nil
}

// OpenDir returns a handle of a verified directory of the tree. The caller closes it.
func (t *Tree) OpenDir(name string) (*os.File, error) {
	return t.store.root.Open(path.Join(treesDir, t.Name, name))
}

// Made reports whether the store has a tree of a manifest, in any variant.
func (s *Store) Made(manifest digest.Digest) bool {
	names, _ := s.made.Names()
	return slices.ContainsFunc(names, func(name string) bool {
		sum, _, _ := strings.Cut(name, "-")
		return sum == manifest.Encoded()
	})
}

// Tree returns a stored tree by its manifest's digest and its variant. The first call in a process hashes
// every file, unless a process that hashed them since the machine booted left marks.
//
// Errors: ErrNotMade; *ChangedError; errors of ctx.
func (s *Store) Tree(ctx context.Context, manifest, variant digest.Digest) (*Tree, error) {
	name := nameOf(manifest, variant)
	s.mu.Lock()
	t := s.trees[name]
	s.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t = &Tree{Name: name, Digest: manifest, store: s}
	if _, err := s.root.Lstat(s.made.Path(name)); errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotMade
	}
	data, err := fsys.ReadFileIn(s.root, path.Join(marksDir, name), maxMarks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotMade
	} else if err != nil {
		return nil, err
	}
	got, err := t.parse(data)
	if err != nil {
		return nil, t.changed(".", err.Error())
	}
	if got != manifest {
		return nil, t.changed(".", "its list of files has the digest "+got.String())
	}
	return t.first(ctx)
}

// first verifies a tree for the first time in this process, writes its marks and registers it.
func (t *Tree) first(ctx context.Context) (*Tree, error) {
	s := t.store
	top, err := s.root.Open(s.made.Path(t.Name))
	if err != nil {
		return nil, err
	}
	fsys.ShareLock(top)
	t.top = top
	if err = t.Verify(ctx); err != nil {
		return nil, errors.Join(err, top.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.trees[t.Name]; other != nil {
		// Another call was faster.
		return other, top.Close()
	}
	s.trees[t.Name] = t
	return t, nil
}

// forget drops a changed tree, so that another process can make it anew.
func (t *Tree) forget(err error) {
	if _, changed := errors.AsType[*ChangedError](err); !changed {
		return
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.store.trees[t.Name] == t {
		delete(t.store.trees, t.Name)
		_ = t.top.Close()
	}
}

// Check checks a tree before a run: all files if the last full check is older than a second, or if inotify
// reported a change since; otherwise the directories, unless inotify reported that they did not change.
// inotify does not report writes through another hard link or through a memory mapping.
//
// Errors: *ChangedError; errors of ctx.
func (t *Tree) Check(ctx context.Context) (Checked, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	watched, quiet := t.events != nil, t.quiet()
	if time.Since(t.full) > fullEvery || watched && !quiet {
		err := t.verify(ctx)
		return Checked{How: "full", At: t.full.UTC()}, err
	}
	if !quiet {
		if _, err := t.walk(ctx, func(m *member) bool { return m.Kind == directory }); err != nil {
			t.forget(err)
			return Checked{}, err
		}
	}
	return Checked{How: "directories", At: t.full.UTC()}, nil
}

// Verify checks every file and directory, and hashes the ones that do not have their marks.
//
// Errors: *ChangedError; errors of ctx.
func (t *Tree) Verify(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verify(ctx)
}

// Rehash hashes every file, whatever its mark.
//
// Errors: *ChangedError; errors of ctx.
func (t *Tree) Rehash(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.members {
		// A directory has no content to hash.
		if m := &t.members[i]; m.Kind != directory {
			m.seen = content.Mark{}
		}
	}
	return t.verify(ctx)
}

func (t *Tree) verify(ctx context.Context) error {
	begin := time.Now()
	renewed, err := t.walk(ctx, func(*member) bool { return true })
	if err != nil {
		t.forget(err)
		return err
	}
	// A file may change after it was compared, so the age of the check is measured from its beginning.
	t.full = begin
	// On other systems, only the list of files in the directories is of use.
	if renewed || !content.Marks {
		// Marks only save time: without them the next process hashes the files.
		_ = fsys.WriteFileIn(t.store.root, path.Join(marksDir, t.Name), t.marks(), 0o600)
	}
	return nil
}

// walk compares the chosen members with their marks, with two workers, and hashes those that differ. It
// reports whether it recorded a new mark.
func (t *Tree) walk(ctx context.Context, chosen func(*member) bool) (renewed bool, err error) {
	const (
		workers = 2
		share   = 128 // members that a worker takes at a time: both end at about the same time
	)
	var work sync.WaitGroup
	var next atomic.Int64
	var fresh atomic.Bool
	var failures [workers]error
	for w := range workers {
		work.Go(func() {
			for failures[w] == nil {
				from := int(next.Add(share)) - share
				if from >= len(t.members) {
					return
				}
				failures[w] = t.compare(ctx, t.members[from:min(from+share, len(t.members))], chosen, &fresh)
			}
		})
	}
	work.Wait()
	return fresh.Load(), cmp.Or(failures[:]...)
}

// compare is walk for a part of the members.
func (t *Tree) compare(ctx context.Context, part []member, chosen func(*member) bool,
	fresh *atomic.Bool) error {
	for i := range part {
		m := &part[i]
		if !chosen(m) || m.seen.Holds(t.top, m.Path) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		now, err := t.hash(m)
		if err != nil {
			// The old mark stays, so that the next check finds the same.
			return err
		}
		if now != (content.Mark{}) {
			m.seen = now
			fresh.Store(true)
		}
	}
	return nil
}

// hash compares a member with its entry, and returns its mark.
func (t *Tree) hash(m *member) (content.Mark, error) {
	changed := func(what string) (content.Mark, error) { return content.Mark{}, t.changed(m.Path, what) }
	name := path.Join(treesDir, t.Name, m.Path)
	found, err := content.Inspect(t.store.root, name)
	if err != nil {
		if _, gone := t.store.root.Lstat(name); gone != nil {
			return changed("it is not there")
		}
		if errors.Is(err, fs.ErrPermission) {
			return changed("it cannot be read")
		}
		return content.Mark{}, t.damaged(m.Path, err)
	}
	if what := m.difference(found); what != "" {
		return changed(what)
	}
	if m.Kind == directory {
		if err := t.names(m.Path); err != nil {
			return content.Mark{}, err
		}
	}
	return found.Mark, nil
}

// difference returns how a file or a directory differs from its entry, or "".
func (m *member) difference(found *content.Found) string {
	mode := found.Info.Mode()
	switch m.Kind {
	case directory:
		if !mode.IsDir() || mode.Perm()&0o022 != 0 {
			return "it is not a directory that only its owner may change"
		}
		if m.seen != (content.Mark{}) {
			return "a name was added, removed or replaced"
		}
	case Link:
		if mode.Type() != fs.ModeSymlink || found.Target != m.Target {
			return "it is another link"
		}
	default:
		if !mode.IsRegular() {
			return "it is not a regular file"
		}
		if found.Digest != m.Digest {
			return "it has another content"
		}
		if mode.Perm()&0o022 != 0 || (mode&0o111 != 0) != (m.Kind == Exec) {
			return "it has another mode"
		}
	}
	return ""
}

// names returns an error if a directory has a name that is not a member.
func (t *Tree) names(dir string) error {
	listed, err := t.store.root.Open(path.Join(treesDir, t.Name, dir))
	if err != nil {
		return err
	}
	defer listed.Close()
	names, err := listed.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		at := path.Join(dir, name)
		// Other workers write marks meanwhile: only Path may be read.
		if _, ok := sort.Find(len(t.members)-1,
			func(i int) int { return strings.Compare(at, t.members[i+1].Path) }); !ok {
			return t.changed(at, "it was added")
		}
	}
	return nil
}

// Marks are lines: the version, the boot ID, and for each member its mark and its line in a manifest, with
// a "+" if it is derived.
const (
	marksVersion = "environment-marks 1"
	maxMarks     = 128 << 20
)

func (t *Tree) marks() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n", marksVersion, fsys.BootID())
	for _, m := range t.members {
		s := &m.seen
		fmt.Fprintf(&b, "%x %x %x %x %x ", s.Mode, s.Inode, s.Size, s.Mtime, s.Ctime)
		if m.derived {
			b.WriteByte('+')
		}
		head := string(directory)
		if m.Kind != directory {
			head = m.head()
		}
		b.WriteString(content.Line(head, m.Path))
	}
	return b.Bytes()
}

// parse reads marks, and returns the digest of the manifest in them. It ignores the marks of another boot.
func (t *Tree) parse(data []byte) (digest.Digest, error) {
	bad := errors.New("its marks cannot be read")
	version, rest, _ := strings.Cut(string(data), "\n")
	boot, rest, _ := strings.Cut(rest, "\n")
	if version != marksVersion {
		return "", bad
	}
	// A crash may have lost writes that the marks of another boot include.
	trusted := boot != "" && boot == fsys.BootID()
	t.members = make([]member, 0, strings.Count(rest, "\n"))
	manifest := make([]byte, 0, len(rest))
	for rest != "" {
		var line, field string
		var m member
		var n [5]uint64
		line, rest, _ = strings.Cut(rest, "\n")
		for i := range n {
			var err error
			field, line, _ = strings.Cut(line, " ")
			n[i], err = strconv.ParseUint(field, 16, 64)
			if err != nil {
				return "", bad
			}
		}
		if trusted {
			m.seen = content.Mark{Mode: uint32(n[0]), Inode: n[1], Size: int64(n[2]), Mtime: int64(n[3]),
				Ctime: int64(n[4])}
		}
		line, m.derived = strings.CutPrefix(line, "+")
		if !m.line(line) {
			return "", bad
		}
		if m.Kind != directory && !m.derived {
			manifest = append(append(manifest, line...), '\n')
		}
		m.Size = int64(n[2])
		t.members = append(t.members, m)
	}
	sorted := slices.IsSortedFunc(t.members[min(1, len(t.members)):],
		func(x, y member) int { return byPath(x.Entry, y.Entry) })
	if len(t.members) == 0 || t.members[0].Path != "." || !sorted {
		return "", bad
	}
	return digest.FromBytes(manifest), nil
}

// line parses a member's line.
func (m *member) line(line string) bool {
	line, escaped := strings.CutPrefix(line, `\`)
	head, at, ok := strings.Cut(line, "  ")
	if escaped {
		// No target has a character that would be escaped, and no path has a line break.
		at = strings.ReplaceAll(at, `\\`, `\`)
	}
	// The entry was checked when the tree was made, and the digest of the manifest still matches.
	kind, value, _ := strings.Cut(head, " ")
	m.Kind, m.Path = Kind(kind), at
	switch m.Kind {
	case directory:
	case Link:
		m.Target = value
	case File, Exec:
		m.Digest = digest.Digest(digest.SHA256.String() + ":" + value)
	default:
		return false
	}
	return ok && fs.ValidPath(at) && (at != "." || m.Kind == directory)
}
