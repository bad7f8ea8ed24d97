// Package rootfs reads root file systems, as layers of an OCI image or as a directory, for scripts that see
// them instead of the host's.
//
// Equal content gives an equal [environment.Manifest] from any source, and so one digest: of paths, contents,
// executable bits and links. Owners, times, empty directories and attributes are not part of it.
//
// # What is kept
//
// Every file that all users may read, below the directories of the top. Left out are the directories that a
// sandbox has itself, files at the top, names with control characters, and files and directories
// without read permission for all: a script could not read them in a container either. Files lose their
// set-id bits. A few files of etc ([Synthetic]) are replaced by the files of every sandbox. Modules that
// Python compiled are kept if they match their source, and marked as such: their times are lost.
//
// # What is refused
//
// An image is a stranger's archive, read by the rules of package archive. It is refused as a whole, with an
// [*UnsafeError], for absolute paths or "..", for a file below a file or a link (of an earlier layer, too),
// for hard links to missing files, for whiteouts without a name, duplicates, devices, and more than the
// limits. No path of an image is ever looked up in a file system of this machine.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/archive"
)

// Limits of a root file system.
const (
	maxEntries = 400_000 // of one layer, or of a directory
	maxLayers  = 200
	maxTotal   = 8 << 30  // bytes that layers unpack to
	freeSize   = 64 << 20 // bytes that any layer may unpack to; beyond, it may grow 200-fold
	maxJSON    = 4 << 20  // bytes of an index, a manifest or a configuration
)

// UnsafeError is the reason why a root file system is refused.
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

// isOwn reports whether a root file system has nothing of this name at the top, because a sandbox has it
// itself or, like /run, because nothing runs there.
func isOwn(name string) bool { return name == "run" || sandbox.IsOwnDir(name) }

// Synthetic are the texts of the files below etc that are the same in every sandbox, by name.
var Synthetic = map[string]string{
	"passwd":        "sandbox:x:1000:1000:sandbox:/tmp:/bin/sh\n",
	"group":         "sandbox:x:1000:\n",
	"hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	"hostname":      "sandbox\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	"resolv.conf":   "",
}

// node is a file or a directory of the root file system.
type node = archive.Node[blob]

// blob is the content of a file in the blobs.
type blob struct {
	sum      digest.Digest
	compiled *compiled // of a module that Python compiled by the time of its source
}

// compiled is the time and the size of a source, as in the header of its compiled module.
type compiled struct{ seconds, size uint32 }

// refused returns the error of a layer as an error of the root file system.
func refused(err error) error {
	bad, ok := errors.AsType[*archive.Error](err)
	if !ok {
		return err
	}
	p := bad.Problems[0]
	if p.Entry == "" {
		p.Reason = "has a layer that " + p.Reason
	}
	return &UnsafeError{p.Entry, p.Reason}
}

// finisher writes the manifest of a tree.
type finisher struct {
	manifest environment.Manifest
	notes    []environment.Note
}

// notePackage is the package of the notes about a root file system.
const notePackage = "root"

func (f *finisher) note(at, what string) {
	f.notes = append(f.notes, environment.Note{Package: notePackage, Path: at, What: what})
}

// finish returns the manifest of a complete tree.
func finish(top *node, blobs environment.Blobs) (environment.Manifest, []environment.Note, error) {
	f := &finisher{}
	etc := top.Children["etc"]
	if etc == nil {
		etc = archive.NewDir[blob](0o755)
		top.Children["etc"] = etc
	} else if !etc.Mode.IsDir() {
		return nil, nil, &UnsafeError{"etc", "is not a directory"}
	}
	// Otherwise the files of every sandbox would be left out together with a directory that not all users may
	// read.
	etc.Mode |= 0o555
	for name, text := range Synthetic {
		sum, size, err := blobs.Put(strings.NewReader(text), false)
		if err != nil {
			return nil, nil, err
		}
		etc.Children[name] = &node{Mode: 0o444, Size: size, Content: blob{sum: sum}}
	}
	for name, child := range top.Children {
		switch {
		case isOwn(name):
		case child.Mode.IsRegular():
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

// add adds a file, or a directory with its files. dir is the parent, above the parent of dir; nil at the
// top.
func (f *finisher) add(at string, n, dir, above *node) error {
	if text := at + n.Target; !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		f.note(at, "is left out: its name is not text")
		return nil
	}
	if n.Mode&fs.ModeSymlink == 0 && !open(n.Mode) {
		f.note(at, "is left out: not everyone may read it")
		return nil
	}
	switch n.Mode.Type() {
	case fs.ModeDir:
		for name, child := range n.Children {
			if err := f.add(at+"/"+name, child, n, dir); err != nil {
				return err
			}
		}
		return nil
	case fs.ModeSymlink:
		// A line of the manifest has the target unescaped, before two spaces.
		if strings.ContainsAny(n.Target, " \\") || n.Target == "" {
			f.note(at, "is left out: it is a link to a name with spaces")
			return nil
		}
		f.manifest = append(f.manifest, environment.Entry{Kind: environment.Link, Target: n.Target, Path: at})
		return nil
	case fs.ModeNamedPipe, fs.ModeSocket:
		f.note(at, "is left out: it is not a file")
		return nil
	case 0:
		if !stale(at, n, above) {
			f.addFile(at, n)
		}
		return nil
	default:
		return &UnsafeError{at, "is a device"}
	}
}

func (f *finisher) addFile(at string, n *node) {
	if n.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		f.note(at, "loses its set-id bit")
	}
	kind := environment.File
	if n.Mode&0o111 != 0 {
		kind = environment.Exec
	}
	file := environment.Entry{Kind: kind, Digest: n.Content.sum, Size: n.Size, Path: at}
	f.manifest = append(f.manifest, file)
}

// open reports whether all users may read a file, or list and enter a directory.
func open(mode fs.FileMode) bool {
	if mode.IsDir() {
		return mode&0o005 == 0o005
	}
	return mode&0o004 != 0
}

// stale reports whether a module that Python compiled does not match its source in above, the parent of its
// __pycache__: Python does not compare them any more.
func stale(at string, n, above *node) bool {
	dir, name := path.Split(at)
	if n.Content.compiled == nil || above == nil || path.Base(dir) != "__pycache__" {
		// Python reads it without comparing a source.
		return false
	}
	module, _, _ := strings.Cut(name, ".")
	source := above.Children[module+".py"]
	return source == nil || uint32(source.Seconds) != n.Content.compiled.seconds ||
		uint32(source.Size) != n.Content.compiled.size
}
