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
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Source says where a root file system is read from.
type Source struct {
	Dir   string // of the file system, or of the layout of an image
	Image bool   // it is a layout
	Tag   string // of the image in the layout; empty if it has only one
}

// ParseSource reads DIR, oci:DIR or oci:DIR:TAG.
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

// String returns what [ParseSource] reads.
func (s Source) String() string {
	switch {
	case !s.Image:
		return s.Dir
	case s.Tag == "":
		return "oci:" + s.Dir
	}
	return "oci:" + s.Dir + ":" + s.Tag
}

// Read reads a root file system. Its contents are put into blobs.
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
	top, count := newDir(0o755), 0
	err := fs.WalkDir(dir.FS(), ".", func(at string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || at == "." {
			return err
		}
		if !strings.Contains(at, "/") && slices.Contains(Own, at) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		segments, err := split(at)
		count++
		if err != nil {
			return err
		}
		if count > maxEntries {
			err = &UnsafeError{"", "has too many files"}
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		n := &node{mode: info.Mode(), seconds: info.ModTime().Unix()}
		closed := n.mode&fs.ModeSymlink == 0 && !open(n.mode)
		switch {
		case n.mode.IsDir():
			n = newDir(n.mode)
		case n.mode&fs.ModeSymlink != 0:
			n.target, err = dir.Readlink(at)
		case n.mode.IsRegular() && !closed:
			err = r.content(dir, at, n)
		}
		if err != nil {
			return err
		}
		err = top.add(at, segments, n)
		if err != nil {
			return err
		}
		if closed && n.mode.IsDir() {
			return fs.SkipDir
		}
		return err
	})
	return top, err
}

// content puts the content of a file of a directory away.
func (r *reader) content(dir *os.Root, at string, n *node) error {
	file, info, err := fsys.OpenIn(dir, at)
	if err != nil {
		return err
	}
	defer file.Close()
	if info.Size() > r.left { // a hole takes nobody's disk, but as long to read as data
		return &UnsafeError{"", "has more bytes than it may have"}
	}
	limited := &io.LimitedReader{R: file, N: r.left + 1}
	if err := r.file(n, path.Base(at), limited); err != nil {
		return err
	}
	if limited.N <= 0 {
		return &UnsafeError{"", "has more bytes than it may have"}
	}
	r.left = limited.N - 1
	return nil
}

// Parts of the OCI image specification.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      digest.Digest     `json:"digest"`
		Size        int64             `json:"size"`
		Platform    *platform         `json:"platform"`
		Annotations map[string]string `json:"annotations"`
	}
	platform struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	}
	index struct {
		Manifests []descriptor `json:"manifests"`
		Config    descriptor   `json:"config"` // of a manifest, which has no manifests
		Layers    []descriptor `json:"layers"`
	}
)

func (p *platform) here() bool { return p.OS == "linux" && p.Architecture == runtime.GOARCH }

const tagKey = "org.opencontainers.image.ref.name"

// image reads an image of a layout.
func (r *reader) image(ctx context.Context, dir *os.Root, tag string) (*node, error) {
	text, err := fsys.ReadFileIn(dir, "index.json", maxJSON)
	if err != nil {
		return nil, err
	}
	found, err := choose(text, tag)
	// An index may lead to another one, of the platforms of an image.
	for depth := 0; err == nil && found.Layers == nil && depth < 4; depth++ {
		text, err = blobText(dir, &found.descriptor)
		if err == nil {
			found, err = choose(text, "")
		}
	}
	if err != nil {
		return nil, err
	}
	if len(found.Layers) == 0 || len(found.Layers) > maxLayers {
		return nil, &UnsafeError{"", fmt.Sprintf("has %d layers", len(found.Layers))}
	}
	var made platform
	text, err = blobText(dir, &found.Config)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(text, &made) != nil {
		err = &UnsafeError{"", "has a configuration that cannot be read"}
	}
	if err != nil {
		return nil, err
	}
	if !made.here() {
		return nil, &UnsafeError{"", fmt.Sprintf("is for %.20s/%.20s, this machine is linux/%s", made.OS,
			made.Architecture, runtime.GOARCH)}
	}
	top := newDir(0o755)
	for i := range found.Layers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		upper, err := r.blobLayer(dir, &found.Layers[i], top)
		if err != nil {
			return nil, err
		}
		top, err = merge(top, upper, "")
		if err != nil {
			return nil, err
		}
	}
	return top, nil
}

// chosen is a manifest, with layers, or leads to one.
type chosen struct {
	descriptor
	Config descriptor
	Layers []descriptor
}

// choose reads an index or a manifest, and chooses what an index leads to: the image of a tag for this
// machine.
func choose(text []byte, tag string) (*chosen, error) {
	var read index
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, &UnsafeError{"", "has an index that cannot be read: " + err.Error()}
	}
	if len(read.Layers) > 0 && len(read.Manifests) == 0 {
		return &chosen{Config: read.Config, Layers: read.Layers}, nil
	}
	var fit []descriptor
	var tags []string
	for _, d := range read.Manifests {
		if name := d.Annotations[tagKey]; name != "" {
			tags = append(tags, fmt.Sprintf("%.100q", name))
		}
		if (tag == "" || d.Annotations[tagKey] == tag) && (d.Platform == nil || d.Platform.here()) {
			fit = append(fit, d)
		}
	}
	switch {
	case len(fit) == 1:
		return &chosen{descriptor: fit[0]}, nil
	case len(fit) == 0 && tag != "" || len(fit) > 1 && len(tags) > 0:
		return nil, &UnsafeError{"", "is one of several images: name its tag, oci:DIR:TAG; tags are " +
			strings.Join(tags[:min(len(tags), 20)], ", ")}
	case len(fit) == 0:
		return nil, &UnsafeError{"", "has no image for linux/" + runtime.GOARCH}
	}
	return nil, &UnsafeError{"", "is one of several images without a tag"}
}

// openBlob opens a blob of a layout.
func openBlob(dir *os.Root, d *descriptor) (*os.File, error) {
	if d.Digest.Validate() != nil || d.Digest.Algorithm() != digest.SHA256 {
		return nil, &UnsafeError{"", "names a blob without a sha256"}
	}
	file, info, err := fsys.OpenIn(dir, path.Join("blobs", "sha256", d.Digest.Encoded()))
	if err != nil {
		return nil, err
	}
	if info.Size() != d.Size {
		return nil, errors.Join(&UnsafeError{"", "has a blob of another size than its manifest says: " +
			d.Digest.String()}, file.Close())
	}
	return file, nil
}

// blobText returns the content of a small blob.
func blobText(dir *os.Root, d *descriptor) ([]byte, error) {
	file, err := openBlob(dir, d)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := fsys.ReadAll(file, maxJSON)
	if err != nil {
		return text, err
	}
	if digest.FromBytes(text) != d.Digest {
		err = &UnsafeError{"", "has a blob with another digest than it is named by: " + d.Digest.String()}
	}
	return text, err
}

// blobLayer reads a layer, whose digest is compared before anything of it counts.
func (r *reader) blobLayer(dir *os.Root, d *descriptor, base *node) (*node, error) {
	file, err := openBlob(dir, d)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in := &verified{file, d.Digest.Verifier()}
	layer, err := r.layer(in, d.Size, base)
	if _, restErr := io.Copy(io.Discard, in); err == nil {
		err = restErr
	}
	if err != nil {
		return layer, err
	}
	if !in.Verified() {
		err = &UnsafeError{"", "has a layer with another digest than its manifest says"}
	}
	return layer, err
}
