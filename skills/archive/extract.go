package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
)

// Skill returns the rules of an archive whose files are a skill, or skills.
func Skill() Rules {
	return Rules{Entries: maxEntries, File: 64 << 20, Total: 2 << 30, Free: freeSize, Links: true}
}

// Untar extracts a tar archive of size bytes, with the rules of [Skill], into an empty directory. If it
// fails, the directory holds a part of the archive, and is to be removed.
//
// Errors: *Error; errors of r and of the directory.
func Untar(r io.Reader, size int64, into *os.Root) error {
	x := NewExtraction(into, Skill(), 1)
	if err := x.Layer(r, size); err != nil {
		return err
	}
	return x.Finish()
}

// maxNames is the most files and directories of all layers of a skill together.
const maxNames = 200_000

// Work is a directory at the top of the extracted tree with the contents of files that a later layer may
// still remove. Callers may keep fetched layers in it; [Extraction.Finish] removes it.
const Work = ".skillsd-layers"

// Extraction is a tree on its way to a directory.
type Extraction struct {
	image Image[string] // of a file's content: the path in the directory where it lies
	into  *os.Root
	work  bool // contents lie in Work until Finish
	files int  // in Work
}

// NewExtraction starts the extraction of layers into an empty directory.
func NewExtraction(into *os.Root, rules Rules, layers int) *Extraction {
	x := &Extraction{into: into, work: layers > 1}
	x.image = Image[string]{Rules: rules, Top: NewDir[string](0o755), Put: x.put}
	return x
}

// Layer reads a layer of size bytes.
//
// Errors: *Error; errors of r and of the directory.
func (x *Extraction) Layer(r io.Reader, size int64) error {
	if err := x.image.Add(r, size); err != nil {
		return err
	}
	return x.checkTree()
}

// File adds a file of size bytes, which lies at a path in [Work], under a name that no layer may have yet.
func (x *Extraction) File(name, file string, size int64) error {
	if err := CheckName(name); err != nil {
		return fmt.Errorf("the layer %.100q is refused: %w", name, err)
	}
	if x.image.Top.Find(name) != nil {
		return fmt.Errorf("several layers are %.100q", name)
	}
	x.image.Rules.Total -= size
	if x.image.Rules.Total < 0 {
		return largeTar(name, "is past the bytes that all files may have")
	}
	if err := x.image.Top.Add(name, name, &Node[string]{Mode: 0o644, Content: file}); err != nil {
		return err
	}
	return x.checkTree()
}

// checkTree holds all layers together to the limits and to the rules of names, which each layer alone
// follows already.
func (x *Extraction) checkTree() error {
	if !x.work {
		return nil
	}
	all := names{}
	return x.image.Top.walk(".", func(at string, n *Node[string]) error {
		if len(all) >= maxNames {
			return fmt.Errorf("the layers have more than %d files", maxNames)
		}
		if problem := all.add(at, n.Mode.IsDir()); problem != "" {
			return badTar(at, "%s", problem)
		}
		return nil
	})
}

// walk calls each for all nodes below n, a directory before its children, in the order of their names.
func (n *Node[C]) walk(dir string, each func(at string, n *Node[C]) error) error {
	for _, name := range slices.Sorted(maps.Keys(n.Children)) {
		at, child := path.Join(dir, name), n.Children[name]
		if err := each(at, child); err != nil {
			return err
		}
		if err := child.walk(at, each); err != nil {
			return err
		}
	}
	return nil
}

// put writes the content of a file. A single layer has nothing below that it could change, so that its files
// are written to their places at once: moving them would cost as much as writing.
func (x *Extraction) put(e *Entry, content io.Reader) (string, error) {
	at := e.Name
	if x.work {
		at = fmt.Sprintf("%s/%d", Work, x.files)
		x.files++
	}
	if err := x.into.MkdirAll(path.Dir(at), 0o755); err != nil {
		return "", err
	}
	mode := fs.FileMode(0o644)
	if e.Executable() {
		mode = 0o755
	}
	// O_EXCL refuses a second file of one name on a file system that takes two names for the same.
	file, err := x.into.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return "", err
	}
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	// As an io.ReaderFrom, the file would make a buffer of its own.
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, content, buf[:])
	return at, errors.Join(err, file.Close())
}

// Finish moves the files of all layers to their places and makes directories and links.
func (x *Extraction) Finish() error {
	// Finish removes the directory, and with it files of the archive.
	if x.image.Top.Children[Work] != nil {
		return badTar(Work, "has the name of a directory of the extraction")
	}
	err := x.image.Top.walk(".", func(at string, n *Node[string]) error {
		switch {
		case n.Mode.IsDir():
			return x.into.MkdirAll(at, 0o755)
		case n.Mode&fs.ModeSymlink != 0:
			return x.into.Symlink(n.Target, at)
		case n.Content != at:
			return x.into.Rename(n.Content, at)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.into.RemoveAll(Work)
}
