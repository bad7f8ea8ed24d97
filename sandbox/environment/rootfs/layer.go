package rootfs

import (
	"bytes"
	"encoding/binary"
	"io"
	"path"

	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/archive"
)

// reader puts the contents of a root file system into blobs.
type reader struct {
	blobs environment.Blobs
	left  int64 // bytes that the files of a directory may still have
}

// newImage returns an image without layers.
func (r *reader) newImage() *archive.Image[blob] {
	return &archive.Image[blob]{
		Rules: archive.Rules{
			Entries: maxEntries, Total: r.left, Free: freeSize, Layer: true, System: true,
		},
		Top: archive.NewDir[blob](0o755),
		Put: func(e *archive.Entry, in io.Reader) (blob, error) {
			c, _, err := r.put(path.Base(e.Name), e.Executable(), in)
			return c, err
		},
	}
}

// put puts a content into the blobs. A tree has no times, so a module that Python compiled by the time of
// its source is marked so that Python does not compare them; [stale] does it once.
func (r *reader) put(name string, executable bool, in io.Reader) (c blob, size int64, err error) {
	const headSize = 16 // a magic number, flags, and the time and size of the source
	if path.Ext(name) == ".pyc" {
		head := make([]byte, headSize)
		got, err := io.ReadFull(in, head)
		if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
			return c, 0, err
		}
		if flags := head[4:8]; got == headSize && binary.LittleEndian.Uint32(flags) == 0 {
			c.compiled = &compiled{seconds: binary.LittleEndian.Uint32(head[8:]),
				size: binary.LittleEndian.Uint32(head[12:])}
			// The file then names its source by a hash, which Python does not check (PEP 552).
			flags[0] = 1
			clear(head[8:])
		}
		in = io.MultiReader(bytes.NewReader(head[:got]), in)
	}
	c.sum, size, err = r.blobs.Put(in, executable)
	return c, size, err
}
