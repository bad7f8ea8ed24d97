package archive

import (
	"io"
	"io/fs"
	"path"
	"strings"
)

// Node is a file or a directory of a tree that is read into memory; C is what the caller keeps of a file's
// content.
type Node[C any] struct {
	Mode     fs.FileMode // type and permissions
	Size     int64       // of a file
	Seconds  int64       // of the last change
	Target   string      // of a link
	Content  C           // of a file
	Children map[string]*Node[C]

	// These fields are for a directory in one layer:
	implied bool            // only the files in it are entries
	opaque  bool            // all names of the layers below are removed
	removed map[string]bool // these names of the layers below are removed
}

// NewDir returns an empty directory.
func NewDir[C any](mode fs.FileMode) *Node[C] {
	return &Node[C]{Mode: fs.ModeDir | mode.Perm(), Children: map[string]*Node[C]{}}
}

// dir returns the directory at a path, and makes the missing ones as implied. raw is for errors.
func (n *Node[C]) dir(raw, at string) (*Node[C], error) {
	if at == "." {
		return n, nil
	}
	for s := range strings.SplitSeq(at, "/") {
		next := n.Children[s]
		if next == nil {
			next = NewDir[C](0o755)
			next.implied = true
			n.Children[s] = next
		}
		if !next.Mode.IsDir() {
			return nil, badTar(raw, "lies below a file or a link")
		}
		n = next
	}
	return n, nil
}

// Add adds a node at a path. raw is the name for errors.
//
// Errors: *Error.
func (n *Node[C]) Add(raw, at string, added *Node[C]) error {
	parent, err := n.dir(raw, path.Dir(at))
	if err != nil {
		return err
	}
	base := path.Base(at)
	switch other := parent.Children[base]; {
	case other == nil:
		parent.Children[base] = added
	case other.implied && added.Mode.IsDir():
		other.Mode, other.implied = added.Mode, false
	default:
		return badTar(raw, "is a duplicate")
	}
	return nil
}

// Find returns the node at a path, or nil. It follows no links.
func (n *Node[C]) Find(at string) *Node[C] {
	for s := range strings.SplitSeq(at, "/") {
		n = n.Children[s]
		if n == nil {
			return nil
		}
	}
	return n
}

// Image is a tree that layers are merged into, in their order.
type Image[C any] struct {
	Rules Rules // Total is for all layers together
	Top   *Node[C]

	// Put keeps the content of a file.
	Put func(*Entry, io.Reader) (C, error)
}

// Add reads a layer of size bytes and merges it.
//
// Errors: *Error; system errors of r; errors of Put.
func (i *Image[C]) Add(r io.Reader, size int64) error {
	upper := NewDir[C](0o755)
	became, err := read(r, size, &i.Rules, func(e *Entry, content io.Reader) error {
		return i.entry(upper, e, content)
	})
	if err != nil {
		return err
	}
	i.Rules.Total -= became
	i.Top, err = i.merge(i.Top, upper, "")
	return err
}

// entry adds an entry to its layer.
func (i *Image[C]) entry(layer *Node[C], e *Entry, content io.Reader) (err error) {
	n := &Node[C]{Mode: e.Mode, Seconds: e.Seconds}
	switch e.Kind {
	case Whiteout:
		dir, err := layer.dir(e.Raw, path.Dir(e.Name))
		if err != nil {
			return err
		}
		if dir.removed == nil {
			dir.removed = map[string]bool{}
		}
		dir.removed[path.Base(e.Name)] = true
		return nil
	case Opaque:
		dir, err := layer.dir(e.Raw, e.Name)
		if err != nil {
			return err
		}
		dir.opaque = true
		return nil
	case Dir:
		n = NewDir[C](e.Mode)
	case Symlink:
		n.Target = e.Target
	case Hardlink:
		n, err = i.linked(layer, e)
	case File:
		n.Size = e.Size
		n.Content, err = i.Put(e, content)
	}
	if err != nil {
		return err
	}
	return layer.Add(e.Raw, e.Name, n)
}

// linked returns a copy of the file that a hard link leads to, in its layer or in the layers below.
func (i *Image[C]) linked(layer *Node[C], e *Entry) (*Node[C], error) {
	to := strings.TrimSuffix(strings.TrimPrefix(e.Target, "./"), "/")
	// The target is looked up in the merged tree only, so that it names no file of this machine.
	if CheckSystemName(to) != nil {
		return nil, badTar(e.Raw, "is a hard link that leads out of it")
	}
	found := layer.Find(to)
	if found == nil {
		found = i.Top.Find(to)
	}
	if found == nil || found.Mode.IsDir() {
		return nil, badTar(e.Raw, "is a hard link to a file that is not there")
	}
	shared := *found
	return &shared, nil
}

// merge returns the node at a path after a layer. lower is nil if it is new.
func (i *Image[C]) merge(lower, upper *Node[C], at string) (*Node[C], error) {
	if !upper.Mode.IsDir() {
		return upper, nil
	}
	if lower != nil && !lower.Mode.IsDir() {
		// A container would follow the link. In a layer whose other parts may be left out, the directory
		// replaces it.
		if upper.implied && i.Rules.Left == nil {
			return nil, badTar(at, "is a link or a file of an earlier layer, and a later one has files "+
				"below it")
		}
		lower = nil
	}
	if lower == nil || upper.opaque {
		lower = NewDir[C](upper.Mode)
	} else if !upper.implied {
		lower.Mode = upper.Mode
	}
	// Whiteouts hide names of the layers below only, wherever they are in the archive, so they come before
	// the new files (OCI image specification, layer.md).
	for name := range upper.removed {
		delete(lower.Children, name)
	}
	for name, child := range upper.Children {
		merged, err := i.merge(lower.Children[name], child, path.Join(at, name))
		if err != nil {
			return nil, err
		}
		lower.Children[name] = merged
	}
	return lower, nil
}
