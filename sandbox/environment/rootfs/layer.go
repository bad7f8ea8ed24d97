package rootfs

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
)

// The names that say what of earlier layers does not stay.
const (
	whiteout = ".wh."
	opaque   = whiteout + whiteout + ".opq"
)

// reader puts contents of a root file system away.
type reader struct {
	blobs environment.Blobs
	left  int64 // bytes that all of it may still unpack to
}

// layer reads a layer, a tar archive that may be compressed by gzip, of size bytes, and returns the tree of
// what it adds. base is what its hard links may lead to besides.
//
// Errors: *UnsafeError; errors of r and of the blobs.
func (r *reader) layer(in io.Reader, size int64, base *node) (*node, error) {
	buffered := bufio.NewReaderSize(in, 1<<16)
	var unpacked io.Reader = buffered
	switch head, _ := buffered.Peek(4); {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		gz, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, &UnsafeError{"", "has a layer that cannot be read: " + err.Error()}
		}
		unpacked = gz
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, &UnsafeError{"", "has a layer that is compressed by zstd, which is not read: write the " +
			"image with gzip"}
	}
	left := min(max(freeSize, size*maxRatio), r.left)
	limited := &io.LimitedReader{R: unpacked, N: left + 1}
	damaged := func(err error) error {
		if limited.N <= 0 {
			return &UnsafeError{"", "has a layer that unpacks to more than it may"}
		}
		return &UnsafeError{"", "has a layer that cannot be read: " + err.Error()}
	}
	top := newDir(0o755)
	archive := tar.NewReader(limited)
	for count := 0; ; count++ {
		header, err := archive.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, damaged(err)
		}
		if count == maxEntries {
			return nil, &UnsafeError{"", "has a layer of too many files"}
		}
		if err := r.entry(top, base, header, archive); err != nil {
			if _, unsafe := errors.AsType[*UnsafeError](err); unsafe {
				return nil, err
			}
			return nil, damaged(err)
		}
	}
	// The checksum of the stream comes after the end of the archive in it.
	if _, err := io.Copy(io.Discard, limited); err != nil || limited.N <= 0 {
		return nil, damaged(err)
	}
	r.left -= left + 1 - limited.N
	return top, nil
}

// entry adds one entry of an archive to the tree of its layer.
func (r *reader) entry(top, base *node, header *tar.Header, in io.Reader) error {
	switch header.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeChar,
		tar.TypeBlock, tar.TypeFifo:
	default:
		return &UnsafeError{header.Name, "is of an unknown kind"}
	}
	segments, err := split(header.Name)
	if err != nil || len(segments) == 0 {
		return err
	}
	last := len(segments) - 1
	if name, is := strings.CutPrefix(segments[last], whiteout); is {
		return hide(top, header.Name, segments[:last], name)
	}
	n := &node{mode: header.FileInfo().Mode(), seconds: header.ModTime.Unix(), target: header.Linkname}
	switch header.Typeflag {
	case tar.TypeDir:
		mode := n.mode
		n = newDir(mode)
	case tar.TypeSymlink:
	case tar.TypeLink:
		to, err := split(header.Linkname)
		if err != nil {
			return &UnsafeError{header.Name, "is a hard link that leads out of it"}
		}
		found := top.find(to)
		if found == nil {
			found = base.find(to)
		}
		if found == nil || found.mode.IsDir() {
			return &UnsafeError{header.Name, "is a hard link to a file that is not there"}
		}
		shared := *found
		n = &shared
	case tar.TypeReg, tar.TypeGNUSparse:
		n.target = ""
		if err := r.file(n, segments[last], in); err != nil {
			return err
		}
	default:
		n.target = ""
	}
	return top.add(header.Name, segments, n)
}

// hide notes that a name of earlier layers, or all of them, does not stay in a directory.
func hide(top *node, name string, segments []string, hidden string) error {
	dir, err := top.dir(name, segments)
	switch {
	case err != nil:
		return err
	case whiteout+hidden == opaque:
		dir.opaque = true
		return nil
	case hidden == "" || hidden == "." || hidden == "..":
		return &UnsafeError{name, "is a whiteout of no name"}
	case strings.HasPrefix(hidden, whiteout):
		return nil // of a program that made the image, for itself
	}
	if dir.hidden == nil {
		dir.hidden = map[string]bool{}
	}
	dir.hidden[hidden] = true
	return nil
}

// file puts a content away. A module that Python compiled by the time of its source is marked as one that is
// not compared with it, since that time is lost: [stale] does that once.
func (r *reader) file(n *node, name string, in io.Reader) (err error) {
	const headSize = 16 // a magic number, flags, and of the source its time and size
	if path.Ext(name) == ".pyc" {
		head := make([]byte, headSize)
		got, err := io.ReadFull(in, head)
		if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
			return err
		}
		if flags := head[4:8]; got == headSize && binary.LittleEndian.Uint32(flags) == 0 {
			n.compiled = &compiled{binary.LittleEndian.Uint32(head[8:]),
				binary.LittleEndian.Uint32(head[12:])}
			flags[0] = 1 // by the hash of the source, unchecked
			clear(head[8:])
		}
		in = io.MultiReader(bytes.NewReader(head[:got]), in)
	}
	n.sum, n.size, err = r.blobs.Put(in, n.mode&0o111 != 0)
	return err
}

// verified is a reader that fails at its end if what was read does not have a digest.
type verified struct {
	io.Reader
	digest.Verifier
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.Reader.Read(p)
	_, _ = v.Verifier.Write(p[:n])
	if err == io.EOF && !v.Verified() {
		err = &UnsafeError{"", "has a layer with another digest than its manifest says"}
	}
	return n, err
}
