package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// file is a file of an archive.
type file struct {
	name string
	data []byte
	from string // path of the content, instead of data
	mode fs.FileMode
	// owner is a number; only layers of images have one other than root. A name that ends with a slash is a
	// directory.
	owner int
}

// open returns the content and its size.
func (f *file) open() (io.ReadCloser, int64, error) {
	if f.from == "" {
		return io.NopCloser(bytes.NewReader(f.data)), int64(len(f.data)), nil
	}
	content, err := os.Open(f.from)
	if err != nil {
		return nil, 0, err
	}
	info, err := content.Stat()
	if err != nil {
		content.Close()
		return nil, 0, err
	}
	return content, info.Size(), nil
}

// permissions returns the mode, which is 0644 unless it is set.
func (f *file) permissions() fs.FileMode {
	if f.mode == 0 {
		return 0o644
	}
	return f.mode
}

// below returns the files in a directory.
func below(dir string, files ...file) []file {
	moved := make([]file, len(files))
	for i, f := range files {
		f.name = dir + "/" + f.name
		moved[i] = f
	}
	return moved
}

// archive makes the archive of a platform, for those who install by hand and for package managers.
func (r *release) archive(p platform) error {
	name := r.archiveName(p)
	files := []file{
		{name: p.program(project), from: r.built(p, project), mode: 0o755},
		{name: p.program(verifier), from: r.built(p, verifier), mode: 0o755},
		{name: "LICENSE", data: r.license},
		{name: "README.md", data: r.readme},
		{name: "THIRD_PARTY_NOTICES", data: r.notices},
	}
	files = append(files, below("completions", r.completions...)...)
	files = append(files, below("skills", r.skills...)...)
	if p.os != "windows" {
		files = append(files, below("man/man1", r.man...)...)
	}
	files = below(r.archiveDir(p), files...)
	if p.os == "windows" {
		return r.create(name, files, writeZip)
	}
	return r.create(name, files, writeTarGz)
}

// archiveDir is the only directory at the top of an archive.
func (r *release) archiveDir(p platform) string {
	return project + "_" + r.version + "_" + p.os + "_" + p.arch
}

func (r *release) archiveName(p platform) string {
	if p.os == "windows" {
		return r.archiveDir(p) + ".zip"
	}
	return r.archiveDir(p) + ".tar.gz"
}

// create writes an archive of the release.
func (r *release) create(name string, files []file,
	form func(w io.Writer, files []file, at time.Time) error) (err error) {
	to, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return form(to, files, r.time)
}

// writeTarGz writes files with one time, which belong to root: the bytes depend on their content only.
func writeTarGz(w io.Writer, files []file, at time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(compressed, files, at); err != nil {
		return err
	}
	return compressed.Close()
}

func writeTar(w io.Writer, files []file, at time.Time) error {
	to := tar.NewWriter(w)
	for i := range files {
		f := &files[i]
		content, size, err := f.open()
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.permissions().Perm()),
			Size: size, ModTime: at, Uid: f.owner, Gid: f.owner}
		// The sticky bit is not part of Perm, and tar has its own value for it.
		if f.mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		err = to.WriteHeader(header)
		if err == nil {
			_, err = io.Copy(to, content)
		}
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return to.Close()
}

func writeZip(w io.Writer, files []file, at time.Time) error {
	to := zip.NewWriter(w)
	for i := range files {
		f := &files[i]
		// The format stores a local time too, so the zone of the machine would change the bytes.
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at.UTC()}
		header.SetMode(f.permissions())
		member, err := to.CreateHeader(header)
		if err != nil {
			return err
		}
		content, _, err := f.open()
		if err != nil {
			return err
		}
		_, err = io.Copy(member, content)
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return to.Close()
}
