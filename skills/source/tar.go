package source

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
)

// Limits of what a tar archive becomes, in bytes: it is extracted, unlike a zip archive.
const (
	maxExtracted = 2 << 30
	maxFile      = 64 << 20
	maxLink      = 1024
)

// Untar extracts a tar archive, which may be packed with gzip, into an empty directory. It follows the rules
// of the package: every entry is a file, a directory, or a symbolic link whose text does not lead out, which
// is made last; hard links, devices and sparse files are refused, and so are names as in a zip archive. All
// files together have at most 2 GiB, and grow no more than 200-fold; size is the length of the archive.
//
// If it fails, the directory holds a part of the archive, and is to be removed.
//
// Errors: *ArchiveError; errors of r and of the directory.
func Untar(r io.Reader, size int64, into *os.Root) error { return extract(r, size, into, nil) }

// Layer is what a layer of an image says besides its files.
type Layer struct {
	Gone   []string // files and directories of the layers below that it removes
	Opaque []string // directories whose content in the layers below it removes
	Left   []string // what no skill can have, and was left out: devices, hard links, links that lead out
}

// UntarLayer extracts a layer of an image as Untar does an archive. An image may be a whole system, so what
// Untar refuses because it is not a file is left out instead.
func UntarLayer(r io.Reader, size int64, into *os.Root) (*Layer, error) {
	layer := &Layer{}
	return layer, extract(r, size, into, layer)
}

// What reads archives is used again: a collection has one for each of its skills.
var (
	gzips   = sync.Pool{New: func() any { return new(gzip.Reader) }}
	buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}
)

func extract(r io.Reader, size int64, into *os.Root, layer *Layer) error {
	in := bufio.NewReader(r)
	var plain io.Reader = in
	if mark, _ := in.Peek(2); len(mark) == 2 && mark[0] == 0x1f && mark[1] == 0x8b {
		packed := gzips.Get().(*gzip.Reader)
		defer gzips.Put(packed)
		if err := packed.Reset(in); err != nil {
			return badTar("", "cannot be read: %v", err)
		}
		plain = packed
	}
	const headers = maxEntries * 4 << 10 // of names and attributes
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	u := &untar{into: into, buf: buf[:], known: names{}, left: min(maxExtracted, freeSize+size*maxRatio),
		links: map[string]string{}, layer: layer}
	// The archive ends with zeros, which may be many.
	whole := &io.LimitedReader{R: plain, N: maxExtracted + headers}
	tail := &zeros{r: whole}
	entries := tar.NewReader(tail)
	for n := 0; ; n++ {
		header, err := entries.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return readError(err)
		}
		if n == maxEntries {
			return badTar("", "has more than %d entries", maxEntries)
		}
		if err := u.entry(header, entries); err != nil {
			return err
		}
	}
	if err := onlyZeros(tail, u.buf); err != nil {
		return err
	}
	// Package archive/tar takes an archive that was cut between two entries for a whole one.
	if tail.n < 1024 {
		return badTar("", "has no end")
	}
	for _, name := range u.order {
		if err := into.Symlink(u.links[name], name); err != nil {
			return err
		}
	}
	return nil
}

// zeros counts the zero bytes that end what was read.
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

// untar is an archive on its way to a directory.
type untar struct {
	into  *os.Root
	buf   []byte
	known names
	left  int64 // how many bytes of files may come still
	links map[string]string
	order []string // of links
	layer *Layer   // nil: it is no layer
}

// entry extracts one entry.
func (u *untar) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // git writes the commit into one
	}
	name, dir := strings.CutSuffix(strings.TrimPrefix(h.Name, "./"), "/")
	dir = dir || h.Typeflag == tar.TypeDir
	if dir && (name == "" || name == ".") {
		return nil // the directory itself
	}
	if err := CheckName(name); err != nil {
		return badTar(h.Name, "is refused: %v", err)
	}
	if u.layer != nil && u.layer.whiteout(name) {
		return nil
	}
	isFile := !dir && (h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeSymlink)
	if u.layer != nil && !dir && (!isFile || h.Typeflag == tar.TypeSymlink && leadsOut(name, h.Linkname)) {
		u.layer.Left = append(u.layer.Left, name)
		return nil
	}
	if problem := u.known.add(name, dir); problem != "" {
		return badTar(h.Name, "%s", problem)
	}
	switch {
	case dir && h.Typeflag == tar.TypeDir:
		return u.into.MkdirAll(name, 0o755)
	case !isFile:
		return badTar(h.Name, "is neither a regular file nor a directory")
	case h.Typeflag == tar.TypeSymlink:
		return u.link(name, h.Linkname)
	case h.Size > maxFile:
		return badTar(h.Name, "has more than %d bytes", maxFile)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return badTar(h.Name, "is a sparse file")
		}
	}
	u.left -= h.Size
	if u.left < 0 {
		return badTar(h.Name, "is past the bytes that all files may have: %d, and %d times the archive",
			int64(maxExtracted), maxRatio)
	}
	if err := u.into.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if h.Mode&0o111 != 0 {
		mode = 0o755
	}
	file, err := u.into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	// As an io.ReaderFrom, the file would make a buffer of its own.
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, content, u.buf)
	return errors.Join(readError(err), file.Close())
}

// link remembers a link whose text does not lead out. Where it leads in fact is checked when it is followed.
func (u *untar) link(name, target string) error {
	if leadsOut(name, target) {
		return badTar(name, "is a link that leads out of the archive")
	}
	u.links[name], u.order = target, append(u.order, name)
	return u.into.MkdirAll(path.Dir(name), 0o755)
}

func leadsOut(name, target string) bool {
	to := path.Join(path.Dir(name), target)
	return target == "" || len(target) > maxLink || path.IsAbs(target) ||
		strings.ContainsAny(target, "\\\x00") || to == ".." || strings.HasPrefix(to, "../")
}

// whiteout notes what an entry removes from the layers below, and reports whether it does that.
func (l *Layer) whiteout(name string) bool {
	dir, base := path.Split(name)
	gone, ok := strings.CutPrefix(base, ".wh.")
	switch {
	case base == ".wh..wh..opq":
		l.Opaque = append(l.Opaque, path.Clean(dir))
	case ok && fs.ValidPath(dir+gone):
		l.Gone = append(l.Gone, dir+gone)
	}
	return ok
}

// onlyZeros reads to the end of an archive, which also compares the checksum of gzip. Another program might
// read entries where this one does not.
func onlyZeros(r io.Reader, buf []byte) error {
	for left := 16 << 20; ; {
		n, err := r.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return badTar("", "continues after its end")
		}
		left -= n
		if left < 0 {
			return badTar("", "does not end")
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return readError(err)
		}
	}
}

// readError returns an error of reading an archive: of its form, unless the system gave it.
func readError(err error) error {
	_, system := errors.AsType[*fs.PathError](err)
	if err == nil || system {
		return err
	}
	return badTar("", "cannot be read: %v", err)
}

func badTar(entry, format string, args ...any) error {
	return &ArchiveError{Kind: "tar", Problems: []Problem{{entry, fmt.Sprintf(format, args...)}}}
}
