package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
)

// Rules are the rules of a tar archive that depend on its use. Without any option an archive has regular
// files and directories.
type Rules struct {
	Entries int   // the most entries
	File    int64 // the most bytes of one file; 0: as many as all files
	Total   int64 // the most bytes of all files, and of the unpacked archive

	// Free is how many bytes any archive may unpack to; beyond it, an archive may grow 200-fold. A few
	// KiB of text are no bomb at any ratio, and a system may have a file of many zeros.
	Free int64

	// Links admits symbolic links whose text does not lead out of the archive. Skills have links to their
	// own files; package managers make none.
	Links bool

	// Layer is for a layer of an image: whiteouts, links, devices and FIFOs are entries.
	Layer bool

	// Left is called, in a layer, with each name that is left out instead of refused; nil refuses. The image
	// of a skill may be a whole system, and only the files of the skill are used then.
	Left func(name string)

	// System is for a layer of a system that is used as a whole. Its names may have backslashes, colons
	// and control characters, and differ only in case, as names of units, manuals and terminals do; its
	// files may be sparse. The caller must not look up its names in a file system.
	System bool
}

// Kind is the kind of an entry of a tar archive.
type Kind int

// The kinds of entries. Only a layer has those below Symlink.
const (
	File Kind = iota
	Dir
	Symlink
	Hardlink
	Device
	FIFO
	Whiteout // removes a name of the layers below
	Opaque   // removes all names of the layers below in a directory
)

// Entry is an entry of a tar archive that follows the rules.
type Entry struct {
	Kind    Kind
	Name    string // without "./" and a slash at its end; of a whiteout: the removed name
	Raw     string // the name in the archive
	Size    int64
	Mode    fs.FileMode
	Seconds int64  // of the last change
	Target  string // of a link
}

// Executable reports whether anyone may execute the file.
func (e *Entry) Executable() bool { return e.Mode&0o111 != 0 }

// Tar reads a tar archive of size bytes, gzip included, and calls each for every entry, with its content. It
// checks the end of the archive and the checksum of gzip last.
//
// Errors: *Error; system errors of r; errors of each.
func Tar(r io.Reader, size int64, rules *Rules, each func(*Entry, io.Reader) error) error {
	_, err := read(r, size, rules, each)
	return err
}

// A collection of skills has an archive for each of them: readers and buffers are used again.
var (
	gzips   = sync.Pool{New: func() any { return new(gzip.Reader) }}
	buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}
)

// read is [Tar], and returns how many bytes the archive became.
func read(r io.Reader, size int64, rules *Rules, each func(*Entry, io.Reader) error) (int64, error) {
	in := bufio.NewReader(r)
	var plain io.Reader = in
	// An error of Peek is found again by the first read.
	switch mark, _ := in.Peek(4); {
	case bytes.HasPrefix(mark, []byte{0x1f, 0x8b}):
		packed := gzips.Get().(*gzip.Reader)
		defer gzips.Put(packed)
		if err := packed.Reset(in); err != nil {
			return 0, readError(err)
		}
		plain = packed
	// Read as tar, it would be reported as a damaged archive, without the way out.
	case bytes.Equal(mark, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return 0, badTar("", "is compressed by zstd, which is not read: write it with gzip")
	}
	most := min(rules.Total, max(rules.Free, size*maxRatio))
	t := &tarReader{rules: rules, names: names{}, most: most, left: most, each: each}
	// The stream is limited as well as the files: headers and padding can unpack to much more.
	stream := &meter{r: plain, left: most}
	tail := &zeros{r: stream}
	err := t.entries(tar.NewReader(tail))
	if stream.left < 0 {
		return 0, t.grows("")
	}
	if err != nil {
		return 0, err
	}
	if err := end(tail); err != nil {
		return 0, err
	}
	// Sparse files become larger than the stream, files with headers smaller.
	return most - min(t.left, stream.left), nil
}

// end reads to the end of an archive after its last entry. Zeros may follow it, but not too many.
func end(tail *zeros) error {
	if err := onlyZeros(tail); err != nil {
		return err
	}
	// Package archive/tar takes an archive that was cut between two entries for a whole one.
	if tail.n < 1024 {
		return badTar("", "has no end")
	}
	return nil
}

// errGrows ends the reading of a stream that unpacks to more than it may.
var errGrows = errors.New("grows too much")

// meter fails once more than left bytes were read.
type meter struct {
	r    io.Reader
	left int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.left -= int64(n)
	if m.left < 0 {
		return 0, errGrows
	}
	return n, err
}

// zeros is a reader that knows how many zero bytes it read last.
type zeros struct {
	r io.Reader
	n int
}

func (z *zeros) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	rest := bytes.TrimRight(p[:n], "\x00")
	if len(rest) > 0 {
		z.n = 0
	}
	z.n = min(z.n+n-len(rest), 1<<20)
	return n, err
}

// faulty remembers why a reader failed, to distinguish a damaged archive from a full disk.
type faulty struct {
	r   io.Reader
	err error
}

func (f *faulty) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

// tarReader reads the entries of one archive.
type tarReader struct {
	rules *Rules
	names names
	most  int64 // bytes of files
	left  int64 // bytes that files may still have
	each  func(*Entry, io.Reader) error
}

func (t *tarReader) grows(name string) error {
	return largeTar(name, "grows too much: it is past the bytes that all files may have, %d, "+
		"and %d times the archive", t.most, maxRatio)
}

func (t *tarReader) entries(in *tar.Reader) error {
	for n := 0; ; n++ {
		header, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return readError(err)
		}
		if n == t.rules.Entries {
			return largeTar("", "has more than %d entries", n)
		}
		entry, err := t.check(header)
		if err != nil {
			return err
		}
		if entry == nil {
			continue
		}
		content := &faulty{r: in}
		err = t.each(entry, content)
		// A damaged archive is the cause of any error that each returned for it.
		if content.err != nil {
			return readError(content.err)
		}
		if err != nil {
			return err
		}
	}
}

// kinds are the types of a header that an archive may have.
var kinds = map[byte]Kind{
	tar.TypeReg: File, tar.TypeGNUSparse: File, tar.TypeDir: Dir, tar.TypeSymlink: Symlink,
	tar.TypeLink: Hardlink, tar.TypeChar: Device, tar.TypeBlock: Device, tar.TypeFifo: FIFO,
}

// check returns the entry of a header, or nil if it is not used.
func (t *tarReader) check(h *tar.Header) (*Entry, error) {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil, nil // git writes the commit into one
	}
	name, slash := strings.CutSuffix(strings.TrimPrefix(h.Name, "./"), "/")
	dir := slash || h.Typeflag == tar.TypeDir
	if dir && (name == "" || name == ".") {
		return nil, nil // the directory itself
	}
	if err := t.rules.checkName(name); err != nil {
		return nil, badTar(h.Name, "is refused: %v", err)
	}
	kind, known := kinds[h.Typeflag]
	// Some programs make a directory of a file whose name ends in a slash.
	if !known || slash && kind != Dir {
		return t.leave(h, name, "is of an unknown kind: it is neither a regular file nor a directory")
	}
	e := &Entry{Kind: kind, Name: name, Raw: h.Name, Size: h.Size, Mode: modeOf(h, kind),
		Seconds: h.ModTime.Unix(), Target: h.Linkname}
	if base := path.Base(name); t.rules.Layer && strings.HasPrefix(base, whiteout) {
		return t.whiteout(e, base)
	}
	if problem := t.rules.checkKind(e); problem != "" {
		return t.leave(h, name, problem)
	}
	if !t.rules.System { // where the tree finds duplicates
		if problem := t.names.add(name, dir); problem != "" {
			return nil, badTar(h.Name, "%s", problem)
		}
	}
	if kind != File {
		return e, nil
	}
	return e, t.size(h)
}

// checkName returns why an entry may not have a name, or nil.
func (r *Rules) checkName(name string) error {
	if r.System {
		return CheckSystemName(name)
	}
	return CheckName(name)
}

// checkKind returns why an archive may not have an entry of its kind, or "".
func (r *Rules) checkKind(e *Entry) string {
	switch {
	case r.Layer && r.System, e.Kind == File, e.Kind == Dir:
		return ""
	case e.Kind != Symlink || !r.Links && !r.Layer:
		return "is neither a regular file nor a directory"
	case LeadsOut(e.Name, e.Target):
		return "is a link that leads out of the archive"
	}
	return ""
}

// modeOf returns the mode of an entry. The type in a header's mode may contradict the type of the header.
func modeOf(h *tar.Header, kind Kind) fs.FileMode {
	const kept = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid
	mode := h.FileInfo().Mode() & kept
	switch kind {
	case Dir:
		mode |= fs.ModeDir
	case Symlink:
		mode |= fs.ModeSymlink
	case Device:
		mode |= fs.ModeDevice
	case FIFO:
		mode |= fs.ModeNamedPipe
	}
	return mode
}

// size holds the size of a file, with its holes, to the limits.
func (t *tarReader) size(h *tar.Header) error {
	if !t.rules.System {
		sparse := h.Typeflag == tar.TypeGNUSparse
		for key := range h.PAXRecords {
			sparse = sparse || strings.HasPrefix(key, "GNU.sparse.")
		}
		if sparse {
			return badTar(h.Name, "is a sparse file")
		}
	}
	if t.rules.File > 0 && h.Size > t.rules.File {
		return largeTar(h.Name, "has more than %d bytes", t.rules.File)
	}
	t.left -= h.Size
	if t.left < 0 {
		return t.grows(h.Name)
	}
	return nil
}

// leave leaves out an entry of a layer, if it may, and refuses it otherwise.
func (t *tarReader) leave(h *tar.Header, name, reason string) (*Entry, error) {
	if t.rules.Left == nil {
		return nil, badTar(h.Name, "%s", reason)
	}
	t.rules.Left(name)
	return nil, nil
}

// Names of entries that remove names of the layers below.
const (
	whiteout = ".wh."
	opaque   = whiteout + whiteout + ".opq"
)

// whiteout returns the entry of a whiteout with a base name.
func (t *tarReader) whiteout(e *Entry, base string) (*Entry, error) {
	dir, removed := path.Dir(e.Name), strings.TrimPrefix(base, whiteout)
	switch {
	case base == opaque:
		e.Kind, e.Name = Opaque, dir
		return e, nil
	case removed == "" || removed == "." || removed == "..":
		if t.rules.Left == nil {
			return nil, badTar(e.Raw, "is a whiteout of no name")
		}
		return nil, nil
	case strings.HasPrefix(removed, whiteout):
		return nil, nil // metadata of the program that made the image
	}
	e.Kind, e.Name = Whiteout, path.Join(dir, removed)
	return e, nil
}

// onlyZeros reads to the end of an archive, which also compares the checksum of gzip. Another program might
// read entries where this one does not.
func onlyZeros(r io.Reader) error {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for left := 16 << 20; ; {
		n, err := r.Read(buf[:])
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return badTar("", "continues after its end")
		}
		left -= n
		if left < 0 || err == errGrows {
			return badTar("", "does not end")
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return readError(err)
		}
	}
}

// readError returns an error of reading an archive: an error of its form, except for system errors.
func readError(err error) error {
	if _, system := errors.AsType[*fs.PathError](err); system {
		return err
	}
	return badTar("", "cannot be read: %v", err)
}

func badTar(entry, format string, args ...any) error {
	return &Error{Kind: "tar", Problems: []Problem{{entry, fmt.Sprintf(format, args...)}}}
}

// largeTar returns the error for an exceeded limit.
func largeTar(entry, format string, args ...any) error {
	return &Error{Kind: "tar", Problems: []Problem{{entry, fmt.Sprintf(format, args...)}}, Large: true}
}
