package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/skillsd/skillsd/skills/source"
)

// Limits of what the layers of a skill become together, in bytes and entries.
const (
	maxTotal   = 2 << 30
	maxEntries = 200_000
)

// Extract writes the files of a skill into an empty directory, and returns notes about what was left out. Its
// layers have at most most bytes as they are fetched. If it fails, the directory is to be removed.
//
// Errors: *source.ArchiveError; errors of ctx, of the registry and of the directory.
func (r *Repository) Extract(ctx context.Context, s *Skill, into *os.Root, most int64) ([]string, error) {
	if s.Problem != "" {
		return nil, fmt.Errorf("the manifest in the index: %s", s.Problem)
	}
	manifest := s.manifest
	if manifest == nil {
		if s.at.Size > maxManifest {
			return nil, fmt.Errorf("the manifest has %d bytes, more than %d", s.at.Size, maxManifest)
		}
		text, err := content.FetchAll(ctx, r.remote.Manifests(), s.at)
		if err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		manifest, err = parseManifest(text, s.at.MediaType)
		if err != nil {
			return nil, err
		}
	}
	e := &extraction{repository: r, into: into}
	for n, layer := range manifest.Layers {
		most -= layer.Size
		if most < 0 {
			return nil, errors.New("the layers have more bytes than they may")
		}
		if err := e.layer(ctx, n, layer); err != nil {
			return nil, err
		}
		// One layer is bounded as it is extracted.
		if n > 0 {
			if err := e.check(); err != nil {
				return nil, err
			}
		}
	}
	if len(e.left) == 0 {
		return nil, nil
	}
	const note = "devices, hard links and links that lead out are left out: %.100q and %d more"
	return []string{fmt.Sprintf(note, e.left[0], len(e.left)-1)}, nil
}

// extraction is a skill on its way to a directory.
type extraction struct {
	repository *Repository
	into       *os.Root
	left       []string
}

// maxInMemory bounds a layer that no file is made for, in bytes. Several are fetched at the same time.
const maxInMemory = 256 << 10

// work is the directory of the layer that is fetched. No name of a layer is as long.
const work = ".skillsd-layer-"

// layer fetches a layer and applies it.
func (e *extraction) layer(ctx context.Context, n int, at v1.Descriptor) (err error) {
	kind, err := kindOf(at)
	if err != nil {
		return err
	}
	if n == 0 && kind == layerTar && at.Size <= maxInMemory {
		// Below the first layer there is nothing that it could remove. A file for it, and another place for
		// its files, would cost as much as they do.
		var data bytes.Buffer
		if err := e.fetch(ctx, at, &data); err != nil {
			return err
		}
		layer, err := source.UntarLayer(&data, at.Size, e.into)
		e.left = append(e.left, layer.Left...)
		return err
	}
	blob := fmt.Sprintf("%s%d", work, n)
	defer func() { err = errors.Join(err, e.into.RemoveAll(blob), e.into.RemoveAll(blob+"-files")) }()
	file, err := e.into.OpenFile(blob, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := e.fetch(ctx, at, file); err != nil {
		return err
	}
	if title := at.Annotations[v1.AnnotationTitle]; kind == layerFile ||
		kind == layerEither && title != "" && !isTar(file) {
		return e.file(title, blob)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := e.into.Mkdir(blob+"-files", 0o700); err != nil {
		return err
	}
	files, err := e.into.OpenRoot(blob + "-files")
	if err != nil {
		return err
	}
	layer, err := source.UntarLayer(file, at.Size, files)
	if err = errors.Join(err, files.Close()); err != nil {
		return err
	}
	e.left = append(e.left, layer.Left...)
	return e.apply(layer, blob+"-files")
}

// fetch writes the bytes of a layer, which must have its digest.
func (e *extraction) fetch(ctx context.Context, at v1.Descriptor, to io.Writer) error {
	body, err := e.repository.remote.Blobs().Fetch(ctx, at)
	if err != nil {
		return err
	}
	defer body.Close()
	verified := content.NewVerifyReader(body, at)
	if _, err := io.Copy(to, verified); err != nil {
		return err
	}
	if err := verified.Verify(); err != nil {
		return fmt.Errorf("the layer has other bytes than the manifest says: %w", err)
	}
	return nil
}

// layerKind is what the bytes of a layer are.
type layerKind int

const (
	layerTar    layerKind = iota
	layerFile             // with the name in its title
	layerEither           // the bytes say which
)

// kindOf returns what a layer is by its type.
func kindOf(at v1.Descriptor) (layerKind, error) {
	title := at.Annotations[v1.AnnotationTitle]
	switch kind := at.MediaType; {
	case strings.HasSuffix(kind, "zstd") || strings.HasSuffix(kind, "encrypted"):
		return 0, fmt.Errorf("a layer is of the type %.100q; tar and gzip are read", kind)
	case strings.HasSuffix(kind, "tar+gzip") || strings.HasSuffix(kind, "tar.gzip"):
		return layerTar, nil
	case strings.HasSuffix(kind, "tar"):
		return layerEither, nil // some tools push any file under this type
	case title != "":
		return layerFile, nil
	default:
		return 0, fmt.Errorf("a layer is of the type %.100q and has no name; tar and gzip are read", kind)
	}
}

// isTar reports whether a file begins as an archive of any tar since 1988, or of gzip.
func isTar(file io.ReaderAt) bool {
	head := make([]byte, 262)
	n, _ := file.ReadAt(head, 0)
	return bytes.HasPrefix(head[:n], []byte("\x1f\x8b")) || n == len(head) && string(head[257:]) == "ustar"
}

// file makes a layer a file of the skill.
func (e *extraction) file(name, blob string) error {
	if err := source.CheckName(name); err != nil {
		return fmt.Errorf("the layer %.100q is refused: %w", name, err)
	}
	if err := e.into.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	if _, err := e.into.Lstat(name); err == nil {
		return fmt.Errorf("several layers are %.100q", name)
	}
	return e.into.Rename(blob, name)
}

// apply moves the files of a layer over the files of the layers below.
func (e *extraction) apply(layer *source.Layer, from string) error {
	for _, dir := range layer.Opaque {
		entries, err := e.list(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			if err := e.into.RemoveAll(path.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	for _, name := range layer.Gone {
		if err := e.into.RemoveAll(name); err != nil {
			return err
		}
	}
	return e.move(from, ".")
}

// list returns the entries of a directory that the layers made.
func (e *extraction) list(dir string) ([]fs.DirEntry, error) {
	if info, err := e.into.Lstat(dir); err != nil || !info.IsDir() {
		return nil, err
	}
	entries, err := fs.ReadDir(e.into.FS(), dir)
	return slices.DeleteFunc(entries, func(entry fs.DirEntry) bool {
		return dir == "." && strings.HasPrefix(entry.Name(), work)
	}), err
}

// move moves the entries of one directory into another.
func (e *extraction) move(from, to string) error {
	entries, err := fs.ReadDir(e.into.FS(), from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		source, target := path.Join(from, entry.Name()), path.Join(to, entry.Name())
		below, err := e.into.Lstat(target)
		if err == nil && entry.IsDir() && below.IsDir() {
			if err := e.move(source, target); err != nil {
				return err
			}
			continue
		}
		// A directory takes the place of a file or a link, and the other way round.
		if err == nil {
			err = e.into.RemoveAll(target)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return err
		}
		err = e.into.Rename(source, target)
		if err != nil {
			return err
		}
	}
	return nil
}

// check bounds what the layers became so far.
func (e *extraction) check() error {
	total, entries := int64(0), 0
	return fs.WalkDir(e.into.FS(), ".", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		entries++
		if total > maxTotal || entries > maxEntries {
			return fmt.Errorf("the layers have more than %d files or %d bytes of them",
				maxEntries, int64(maxTotal))
		}
		return nil
	})
}
