package rootfs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
)

type contents map[digest.Digest]bool

func (c contents) Put(r io.Reader, _ bool) (digest.Digest, int64, error) {
	data, err := io.ReadAll(r)
	sum := digest.FromBytes(data)
	c[sum] = true
	return sum, int64(len(data)), err
}

// FuzzLayer reads whatever a layer may be over another one: an image is refused, or has only paths below it.
func FuzzLayer(f *testing.F) {
	archive := func(zipped bool, entries ...tar.Header) []byte {
		var b bytes.Buffer
		var out io.Writer = &b
		if zipped {
			out = gzip.NewWriter(&b)
		}
		w := tar.NewWriter(out)
		for _, h := range entries {
			if h.Typeflag == tar.TypeReg {
				h.Mode, h.Size = 0o644, 4
			}
			err := w.WriteHeader(&h)
			if err == nil && h.Size > 0 {
				_, err = io.WriteString(w, "text")
			}
			if err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		if zw, ok := out.(io.Closer); ok {
			if err := zw.Close(); err != nil {
				f.Fatal(err)
			}
		}
		return b.Bytes()
	}
	reg := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	base := archive(false, tar.Header{Typeflag: tar.TypeDir, Name: "usr", Mode: 0o755}, reg("usr/a"), reg("usr/d/x"),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "opt", Linkname: "/home"})
	f.Add(base)
	f.Add(archive(true, reg("usr/.wh.a")))
	f.Add(archive(false, reg("usr/d/.wh..wh..opq"), tar.Header{Typeflag: tar.TypeLink, Name: "usr/h", Linkname: "usr/a"}))
	f.Add(archive(false, tar.Header{Typeflag: tar.TypeChar, Name: "usr/null"}, reg("../x")))
	f.Add(archive(false, reg("usr/__pycache__/a.cpython-311.pyc"), reg("opt/x")))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		blobs := contents{}
		r := &reader{blobs: blobs, left: maxTotal}
		image := r.newImage()
		if err := image.Add(bytes.NewReader(base), int64(len(base))); err != nil {
			t.Fatal(err)
		}
		err := refused(image.Add(bytes.NewReader(data), int64(len(data))))
		var manifest environment.Manifest
		if err == nil {
			manifest, _, err = finish(image.Top, blobs)
		}
		if err != nil {
			if _, ok := errors.AsType[*UnsafeError](err); !ok {
				t.Errorf("%v, want an UnsafeError", err)
			}
			return
		}
		for i, e := range manifest {
			segments := strings.Split(e.Path, "/")
			if slices.Contains(segments, "..") || slices.Contains(segments, "") || isOwn(segments[0]) ||
				i > 0 && manifest[i-1].Path >= e.Path {
				t.Errorf("entry %q", e.Path)
			}
			if e.Kind != environment.Link && !blobs[e.Digest] {
				t.Errorf("%s has no content", e.Path)
			}
		}
	})
}
