// Package rootfs reads root file systems, as layers of an OCI image or as a directory, for scripts that see
// them in the place of the host's.
//
// Whatever it is read from, equal content gives an equal [environment.Manifest], and so one digest: of paths,
// contents, executable bits and links. Owners, times, empty directories and attributes are no part of it.
//
// # What is kept
//
// Everything that every user may read, below the directories of the top. Left out are the directories that a
// sandbox has of its own ([Own]), files of the top, names with control characters, and files and directories
// without read permission for all: a script could not read them in a container either. Files lose their
// set-id bits. A few files of etc ([Synthetic]) are replaced by the files of every sandbox. Modules that
// Python compiled are kept if they are of their source, and marked as such: their times are lost.
//
// # What is refused
//
// An image is a stranger's archive. It is refused as a whole, with an [*UnsafeError], for absolute paths or
// "..", for a file below what is not a directory (a link that an earlier layer has, too), for hard links to
// what is not there, for whiteouts of nothing, duplicates, devices, and more than the limits. Layers are put
// together in memory, by name: no path of an image is ever looked up in a file system of this machine.
package rootfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
)

// Limits of a root file system.
const (
	maxEntries = 400_000 // of one layer, or of a directory
	maxLayers  = 200
	maxDepth   = 64      // segments of a path
	maxPath    = 2048    // bytes of a path
	maxTotal   = 8 << 30 // bytes that layers unpack to
	maxRatio   = 200     // of a layer beyond freeSize
	freeSize   = 64 << 20
	maxJSON    = 4 << 20 // bytes of an index, a manifest or a configuration
)

// UnsafeError says why a root file system is refused.
type UnsafeError struct {
	Path   string // of any bytes; empty for the whole
	Reason string // a phrase that follows the path
}

func (e *UnsafeError) Error() string {
	if e.Path == "" {
		return "the root file system " + e.Reason
	}
	return fmt.Sprintf("%+q of the root file system %s", e.Path, e.Reason)
}

// Own are the names that a sandbox has of its own at its top.
var Own = []string{"dev", "env", "mnt", "node_modules", "out", "proc", "run", "skill", "sys", "tmp",
	"workspace"}

// Synthetic are the files, below etc, that are the same in every sandbox, by their names.
var Synthetic = map[string]string{
	"passwd":        "sandbox:x:1000:1000:sandbox:/tmp:/bin/sh\n",
	"group":         "sandbox:x:1000:\n",
	"hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	"hostname":      "sandbox\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	"resolv.conf":   "",
}

// node is a file of a tree that is being put together.
type node struct {
	mode     fs.FileMode // type and permissions
	sum      digest.Digest
	size     int64
	seconds  int64     // of its last change
	compiled *compiled // of a module that Python compiled by the time of its source
	target   string    // of a link
	children map[string]*node

	// Of a directory of a layer:
	implied bool            // only files in it are named
	opaque  bool            // nothing in it of earlier layers stays
	hidden  map[string]bool // names of earlier layers that do not stay
}

func newDir(mode fs.FileMode) *node {
	return &node{mode: fs.ModeDir | mode.Perm(), children: map[string]*node{}}
}

// compiled is what a compiled module says of its source.
type compiled struct{ seconds, size uint32 }

// split returns the segments of a path in an archive, none for the top.
func split(name string) ([]string, error) {
	if name == "." || name == "./" {
		return nil, nil
	}
	clean := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	segments := strings.Split(clean, "/")
	if len(segments) > maxDepth || len(clean) > maxPath {
		return nil, &UnsafeError{name, "is too deep or too long"}
	}
	for _, s := range segments {
		if s == "" || s == "." || s == ".." || strings.ContainsRune(s, 0) {
			return nil, &UnsafeError{name, "is not a path below it"}
		}
	}
	return segments, nil
}

// dir returns the directory of a layer at segments, which it makes as implied.
func (n *node) dir(name string, segments []string) (*node, error) {
	for _, s := range segments {
		next := n.children[s]
		if next == nil {
			next = newDir(0o755)
			next.implied = true
			n.children[s] = next
		}
		if !next.mode.IsDir() {
			return nil, &UnsafeError{name, "lies below what is not a directory"}
		}
		n = next
	}
	return n, nil
}

// add adds a file to a layer.
func (n *node) add(name string, segments []string, added *node) error {
	last := len(segments) - 1
	parent, err := n.dir(name, segments[:last])
	if err != nil {
		return err
	}
	switch there := parent.children[segments[last]]; {
	case there == nil:
		parent.children[segments[last]] = added
	case there.implied && added.mode.IsDir():
		there.mode, there.implied = added.mode, false
	default:
		return &UnsafeError{name, "is a duplicate"}
	}
	return nil
}

// find returns the file at segments, or nil. It follows no links.
func (n *node) find(segments []string) *node {
	for _, s := range segments {
		n = n.children[s]
		if n == nil {
			return nil
		}
	}
	return n
}

// merge returns what a file is after a layer. lower is nil if there was none.
func merge(lower, upper *node, at string) (*node, error) {
	if !upper.mode.IsDir() {
		return upper, nil
	}
	if lower != nil && !lower.mode.IsDir() {
		if upper.implied {
			return nil, &UnsafeError{at, "is a link or a file of an earlier layer, and a later " +
				"one has files " +
				"below it"}
		}
		lower = nil
	}
	if lower == nil || upper.opaque {
		lower = newDir(upper.mode)
	} else if !upper.implied {
		lower.mode = upper.mode
	}
	for name := range upper.hidden {
		delete(lower.children, name)
	}
	for name, child := range upper.children {
		merged, err := merge(lower.children[name], child, path.Join(at, name))
		if err != nil {
			return nil, err
		}
		lower.children[name] = merged
	}
	return lower, nil
}

// finisher makes the manifest of a tree.
type finisher struct {
	blobs    environment.Blobs
	manifest environment.Manifest
	notes    []environment.Note
}

// notePackage is what notes of a root file system are of.
const notePackage = "root"

func (f *finisher) note(at, what string) {
	f.notes = append(f.notes, environment.Note{Package: notePackage, Path: at, What: what})
}

// finish returns the manifest of a whole tree.
func finish(top *node, blobs environment.Blobs) (environment.Manifest, []environment.Note, error) {
	f := &finisher{blobs: blobs}
	etc := top.children["etc"]
	if etc == nil {
		etc = newDir(0o755)
		top.children["etc"] = etc
	} else if !etc.mode.IsDir() {
		return nil, nil, &UnsafeError{"etc", "is not a directory"}
	}
	etc.mode |= 0o555
	for name, text := range Synthetic {
		sum, size, err := blobs.Put(strings.NewReader(text), false)
		if err != nil {
			return nil, nil, err
		}
		etc.children[name] = &node{mode: 0o444, sum: sum, size: size}
	}
	for name, child := range top.children {
		switch {
		case slices.Contains(Own, name):
		case child.mode.IsRegular():
			f.note(name, "is left out: files of the top are")
		default:
			if err := f.add(name, child, top, nil); err != nil {
				return nil, nil, err
			}
		}
	}
	slices.SortFunc(f.manifest, func(x, y environment.Entry) int { return strings.Compare(x.Path, y.Path) })
	slices.SortFunc(f.notes, func(x, y environment.Note) int { return strings.Compare(x.Path, y.Path) })
	return f.manifest, f.notes, nil
}

// add adds a file, and what is in it. above is the directory that its directory is in, nil at the top.
func (f *finisher) add(at string, n, dir, above *node) error {
	if text := at + n.target; !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		f.note(at, "is left out: its name is not text")
		return nil
	}
	if n.mode&fs.ModeSymlink == 0 && !open(n.mode) {
		f.note(at, "is left out: not everyone may read it")
		return nil
	}
	switch n.mode.Type() {
	case fs.ModeDir:
		for name, child := range n.children {
			if err := f.add(at+"/"+name, child, n, dir); err != nil {
				return err
			}
		}
		return nil
	case fs.ModeSymlink:
		if strings.ContainsAny(n.target, " \\") || n.target == "" {
			f.note(at, "is left out: it is a link to a name with spaces")
			return nil
		}
		f.manifest = append(f.manifest, environment.Entry{Kind: environment.Link, Target: n.target, Path: at})
		return nil
	case fs.ModeNamedPipe, fs.ModeSocket:
		f.note(at, "is left out: it is not a file")
		return nil
	case 0:
	default:
		return &UnsafeError{at, "is a device"}
	}
	if stale(at, n, above) {
		return nil
	}
	if n.mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		f.note(at, "loses its set-id bit")
	}
	kind := environment.File
	if n.mode&0o111 != 0 {
		kind = environment.Exec
	}
	f.manifest = append(f.manifest, environment.Entry{Kind: kind, Digest: n.sum, Size: n.size, Path: at})
	return nil
}

// open reports whether everyone may read a file, or list and enter a directory.
func open(mode fs.FileMode) bool {
	if mode.IsDir() {
		return mode&0o005 == 0o005
	}
	return mode&0o004 != 0
}

// stale reports whether a module that Python compiled is of another source than the one in above, the
// directory that its __pycache__ is in: its header no longer says so.
func stale(at string, n, above *node) bool {
	dir, name := path.Split(at)
	if n.compiled == nil || above == nil || path.Base(dir) != "__pycache__" {
		return false // Python looks at no source of others
	}
	module, _, _ := strings.Cut(name, ".")
	source := above.children[module+".py"]
	return source == nil || uint32(source.seconds) != n.compiled.seconds ||
		uint32(source.size) != n.compiled.size
}
