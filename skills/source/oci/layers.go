package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/skillsd/skillsd/skills/archive"
)

// Extract writes the files of a skill into an empty directory, and returns notes about the names that it
// left out. most limits the stored bytes of all layers. If it fails, the caller removes the directory.
//
// Errors: *archive.Error; errors of ctx, of the registry and of the directory.
func (r *Repository) Extract(ctx context.Context, s *Skill, into *os.Root, most int64) ([]string, error) {
	if s.Problem != "" {
		return nil, fmt.Errorf("the manifest in the index: %s", s.Problem)
	}
	manifest, err := r.manifest(ctx, s)
	if err != nil {
		return nil, err
	}
	e := &extraction{repository: r, into: into}
	rules := archive.Skill()
	rules.Layer, rules.Left = true, func(name string) { e.left = append(e.left, name) }
	e.files = archive.NewExtraction(into, rules, len(manifest.Layers))
	for n, layer := range manifest.Layers {
		// The stored sizes are compared before anything is fetched.
		most -= layer.Size
		if most < 0 {
			return nil, errors.New("the layers have more bytes than they may")
		}
		if err := e.layer(ctx, n, layer); err != nil {
			return nil, err
		}
	}
	if err := e.files.Finish(); err != nil {
		return nil, err
	}
	if len(e.left) == 0 {
		return nil, nil
	}
	const note = "devices, hard links and links that lead out are left out: %.100q and %d more"
	return []string{fmt.Sprintf(note, e.left[0], len(e.left)-1)}, nil
}

// manifest returns the manifest of a skill, and fetches one that only an index names.
func (r *Repository) manifest(ctx context.Context, s *Skill) (*v1.Manifest, error) {
	if s.manifest != nil {
		return s.manifest, nil
	}
	// FetchAll allocates the size that the index names.
	if s.at.Size > maxManifest {
		return nil, fmt.Errorf("the manifest has %d bytes, more than %d", s.at.Size, maxManifest)
	}
	text, err := content.FetchAll(ctx, r.remote.Manifests(), s.at)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return parseManifest(text, s.at.MediaType)
}

// extraction is a skill on its way to a directory.
type extraction struct {
	repository *Repository
	into       *os.Root
	files      *archive.Extraction
	left       []string // names that were left out
}

// maxInMemory bounds a layer that is fetched into memory, in bytes. Several are fetched at the same time.
const maxInMemory = 256 << 10

// layer fetches a layer and adds its files.
func (e *extraction) layer(ctx context.Context, n int, at v1.Descriptor) (err error) {
	kind, err := kindOf(at)
	if err != nil {
		return err
	}
	if n == 0 && kind == layerTar && at.Size <= maxInMemory {
		// Most skills are one small layer, for which a file would cost as much as extracting it.
		var data bytes.Buffer
		if err := e.fetch(ctx, at, &data); err != nil {
			return err
		}
		return e.files.Layer(&data, at.Size)
	}
	if err := e.into.MkdirAll(archive.Work, 0o700); err != nil {
		return err
	}
	// A title may name any path, so that the file gets it only after the rules of names.
	blob := fmt.Sprintf("%s/layer-%d", archive.Work, n)
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
		return e.files.File(title, blob, at.Size)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := e.files.Layer(file, at.Size); err != nil {
		return err
	}
	return errors.Join(file.Close(), e.into.Remove(blob))
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

// layerKind is how the bytes of a layer are read.
type layerKind int

const (
	layerTar    layerKind = iota
	layerFile             // one file, with the name in the title
	layerEither           // the first bytes decide
)

// kindOf returns the kind of a layer, by its media type.
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

// isTar reports whether a file starts with the mark of a tar archive, written by any tar since 1988, or of
// gzip.
func isTar(file io.ReaderAt) bool {
	head := make([]byte, 262)
	n, _ := file.ReadAt(head, 0)
	return bytes.HasPrefix(head[:n], []byte("\x1f\x8b")) || n == len(head) && string(head[257:]) == "ustar"
}
