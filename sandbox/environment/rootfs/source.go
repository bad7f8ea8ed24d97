package rootfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Source is where a root file system is read from.
type Source struct {
	Dir   string // of the file system, or of an image in the OCI layout
	Image bool   // Dir is an OCI layout
	Tag   string // of the image in the layout; empty if it has only one
}

// ParseSource parses DIR, oci:DIR or oci:DIR:TAG.
func ParseSource(spec string) (Source, error) {
	s := Source{Dir: spec}
	if rest, is := strings.CutPrefix(spec, "oci:"); is {
		s.Dir, s.Image = rest, true
		if at := strings.LastIndexByte(rest, ':'); at > strings.LastIndexByte(rest, '/') {
			s.Dir, s.Tag = rest[:at], rest[at+1:]
		}
	}
	if s.Dir == "" || strings.ContainsRune(spec, 0) || s.Dir == "/" {
		return s, fmt.Errorf("%.80q names no root file system: give DIR, oci:DIR or oci:DIR:TAG", spec)
	}
	return s, nil
}

// String returns the form that [ParseSource] parses.
func (s Source) String() string {
	switch {
	case !s.Image:
		return s.Dir
	case s.Tag == "":
		return "oci:" + s.Dir
	}
	return "oci:" + s.Dir + ":" + s.Tag
}

// Read reads a root file system, and puts its contents into blobs.
//
// Errors: *UnsafeError; system errors; errors of ctx and of the blobs.
func Read(
	ctx context.Context, s Source, blobs environment.Blobs,
) (environment.Manifest, []environment.Note, error) {
	dir, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	r := &reader{blobs: blobs, left: maxTotal}
	_, err = dir.Lstat("oci-layout")
	var top *node
	switch {
	case s.Image:
		top, err = r.image(ctx, dir, s.Tag)
	case err == nil:
		return nil, nil, &UnsafeError{"", "is the layout of an image: name it oci:DIR"}
	default:
		top, err = r.directory(ctx, dir)
	}
	if err != nil {
		return nil, nil, err
	}
	return finish(top, blobs)
}

// directory reads a directory.
func (r *reader) directory(ctx context.Context, dir *os.Root) (*node, error) {
	top, count := archive.NewDir[blob](0o755), 0
	err := fs.WalkDir(dir.FS(), ".", func(at string, entry fs.DirEntry, err error) error {
		if err != nil || at == "." {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !strings.Contains(at, "/") && isOwn(at) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err := archive.CheckSystemName(at); err != nil {
			return &UnsafeError{at, "is refused: " + err.Error()}
		}
		count++
		if count > maxEntries {
			return &UnsafeError{"", "has too many files"}
		}
		n, err := r.entry(dir, at, entry)
		if err != nil {
			return err
		}
		if err := top.Add(at, at, n); err != nil {
			return refused(err)
		}
		// The finisher leaves such a directory out with everything below it.
		if n.Mode.IsDir() && !open(n.Mode) {
			return fs.SkipDir
		}
		return nil
	})
	return top, err
}

// entry returns the node of an entry of a directory, with the content of a file that all users may read.
func (r *reader) entry(dir *os.Root, at string, entry fs.DirEntry) (*node, error) {
	info, err := entry.Info()
	if err != nil {
		return nil, err
	}
	n := &node{Mode: info.Mode(), Seconds: info.ModTime().Unix()}
	switch {
	case n.Mode.IsDir():
		return archive.NewDir[blob](n.Mode), nil
	case n.Mode&fs.ModeSymlink != 0:
		n.Target, err = dir.Readlink(at)
	case n.Mode.IsRegular() && open(n.Mode):
		err = r.file(dir, at, n)
	}
	return n, err
}

// file reads a file of a directory.
func (r *reader) file(dir *os.Root, at string, n *node) error {
	file, info, err := fsys.OpenIn(dir, at)
	if err != nil {
		return err
	}
	defer file.Close()
	// A hole takes no space on the disk, but is read like data.
	if info.Size() > r.left {
		return &UnsafeError{"", "has more bytes than it may have"}
	}
	limited := &io.LimitedReader{R: file, N: r.left + 1}
	n.Content, n.Size, err = r.put(path.Base(at), n.Mode&0o111 != 0, limited)
	if err != nil {
		return err
	}
	if limited.N <= 0 {
		return &UnsafeError{"", "has more bytes than it may have"}
	}
	r.left = limited.N - 1
	return nil
}

// maxIndexes is how many indexes may lead to one another before a manifest.
const maxIndexes = 4

// here reports whether an image is for this machine.
func here(p *v1.Platform) bool { return p.OS == "linux" && p.Architecture == runtime.GOARCH }

// image reads an image of an OCI layout.
func (r *reader) image(ctx context.Context, dir *os.Root, tag string) (*node, error) {
	blobs := layout{dir}
	text, err := fsys.ReadFileIn(dir, v1.ImageIndexFile, maxJSON)
	if err != nil {
		return nil, err
	}
	manifest, next, err := choose(text, tag)
	// An index may lead to another one, with the platforms of an image.
	for depth := 0; err == nil && manifest == nil && depth < maxIndexes; depth++ {
		text, err = blobs.text(ctx, *next)
		if err != nil {
			return nil, err
		}
		manifest, next, err = choose(text, "")
	}
	if err != nil {
		return nil, err
	}
	if manifest == nil {
		return nil, &UnsafeError{"", "has too many indexes on the way to an image"}
	}
	if len(manifest.Layers) > maxLayers {
		return nil, &UnsafeError{"", fmt.Sprintf("has %d layers", len(manifest.Layers))}
	}
	if err := blobs.checkPlatform(ctx, manifest.Config); err != nil {
		return nil, err
	}
	image := r.newImage()
	for _, d := range manifest.Layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := blobs.layer(ctx, d, image); err != nil {
			return nil, err
		}
	}
	return image.Top, nil
}

// choose reads an index or a manifest. It returns the manifest, or the descriptor that an index has of the
// image with a tag for this machine.
func choose(text []byte, tag string) (*v1.Manifest, *v1.Descriptor, error) {
	var read struct {
		v1.Manifest
		Manifests []v1.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, nil, &UnsafeError{"", "has an index that cannot be read: " + err.Error()}
	}
	if len(read.Layers) > 0 && len(read.Manifests) == 0 {
		return &read.Manifest, nil, nil
	}
	fit, tags := fitting(read.Manifests, tag)
	switch {
	case len(fit) == 1:
		return nil, &fit[0], nil
	case len(fit) == 0 && tag != "" || len(fit) > 1 && len(tags) > 0:
		return nil, nil, &UnsafeError{"", "is one of several images: name its tag, oci:DIR:TAG; " +
			"tags are " + strings.Join(tags[:min(len(tags), 20)], ", ")}
	case len(fit) == 0:
		return nil, nil, &UnsafeError{"", "has no image for linux/" + runtime.GOARCH}
	}
	return nil, nil, &UnsafeError{"", "is one of several images without a tag"}
}

// fitting returns the images with a tag for this machine, and the tags of all images, quoted. An empty tag is
// any.
func fitting(all []v1.Descriptor, tag string) (fit []v1.Descriptor, tags []string) {
	for _, d := range all {
		name := d.Annotations[v1.AnnotationRefName]
		if name != "" {
			tags = append(tags, fmt.Sprintf("%.100q", name))
		}
		isNamed := tag == "" || name == tag
		// The platform of a descriptor is optional (OCI image specification).
		if isNamed && (d.Platform == nil || here(d.Platform)) {
			fit = append(fit, d)
		}
	}
	return fit, tags
}

// layout is the directory of an image in the OCI image layout.
//
// oras has a reader of layouts, content/oci, which is not used: it would follow links in the directory, does
// not limit the index, and its packages would be initialized at every start. Blobs are verified by package
// content of oras.
type layout struct{ dir *os.Root }

// Fetch opens a blob.
func (l layout) Fetch(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	if d.Digest.Validate() != nil || d.Digest.Algorithm() != digest.SHA256 {
		return nil, &UnsafeError{"", "names a blob without a sha256"}
	}
	file, info, err := fsys.OpenIn(l.dir, path.Join(v1.ImageBlobsDir, "sha256", d.Digest.Encoded()))
	if err != nil {
		return nil, err
	}
	if info.Size() != d.Size {
		return nil, errors.Join(&UnsafeError{"", "has a blob of another size than its manifest names: " +
			d.Digest.String()}, file.Close())
	}
	return file, nil
}

// text returns the content of a blob of at most maxJSON bytes.
func (l layout) text(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	if d.Size > maxJSON {
		return nil, &UnsafeError{"", "has a manifest that is too large: " + d.Digest.String()}
	}
	text, err := content.FetchAll(ctx, l, d)
	if errors.Is(err, content.ErrMismatchedDigest) {
		return nil, &UnsafeError{"", "has a blob with another digest than its name: " + d.Digest.String()}
	}
	return text, err
}

// checkPlatform returns an error if the configuration of an image is for another machine.
func (l layout) checkPlatform(ctx context.Context, config v1.Descriptor) error {
	text, err := l.text(ctx, config)
	if err != nil {
		return err
	}
	var made v1.Platform
	if json.Unmarshal(text, &made) != nil {
		return &UnsafeError{"", "has a configuration that cannot be read"}
	}
	if !here(&made) {
		return &UnsafeError{"", fmt.Sprintf("is for %.20s/%.20s, this machine is linux/%s", made.OS,
			made.Architecture, runtime.GOARCH)}
	}
	return nil
}

// layer adds a layer to an image.
func (l layout) layer(ctx context.Context, d v1.Descriptor, image *archive.Image[blob]) error {
	file, err := l.Fetch(ctx, d)
	if err != nil {
		return err
	}
	defer file.Close()
	in := content.NewVerifyReader(file, d)
	if err := image.Add(in, d.Size); err != nil {
		return refused(err)
	}
	// The reader of gzip may stop before the end of the blob.
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	// The layer is in the image already; the caller drops the image on an error.
	if in.Verify() != nil {
		return &UnsafeError{"", "has a layer with another digest than its manifest names"}
	}
	return nil
}
