package discovery

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxPacked is the most bytes of the files of a published skill.
const maxPacked = 64 << 20

// Artifact describes the published form of a skill.
type Artifact struct {
	Name   string        `json:"name"` // of the skill
	Type   string        `json:"type"` // archive or skill-md
	File   string        `json:"file"` // path that was written
	Size   int64         `json:"size"`
	Digest digest.Digest `json:"digest"` // of its bytes
	Tree   digest.Digest `json:"tree"`   // of the files of the skill, as in skillsd.lock
}

// Scan returns the skills of a directory that are not inside another one. A skill that does not load is an
// error: it could not be installed.
func Scan(ctx context.Context, dir string) ([]*skills.Skill, error) {
	root := skills.Root{Dir: dir, Tier: skills.LeastTrusted()}
	snapshot, err := skills.Scan(ctx, []skills.Root{root}, &skills.ScanOptions{StrictRoots: true})
	if err != nil {
		return nil, err
	}
	var top []*skills.Skill
	all := slices.Concat(snapshot.Skills, snapshot.Withheld)
	// The slash makes a skill sort directly before the skills inside of it: "a-b" would come between "a" and
	// "a/b".
	slices.SortFunc(all, func(a, b *skills.Skill) int { return strings.Compare(a.Dir+"/", b.Dir+"/") })
	for _, sk := range all {
		if last := len(top) - 1; last >= 0 && skills.InDir(top[last].Dir, sk.Dir) {
			continue
		}
		top = append(top, sk)
	}
	for _, d := range snapshot.Diagnostics {
		if d.Severity == skills.Error {
			return nil, fmt.Errorf("%s: %s: %s", d.Path, d.Code, d.Detail)
		}
	}
	if len(top) == 0 {
		return nil, errors.New("there is no skill: no SKILL.md was found")
	}
	return top, nil
}

// Pack returns the files of a skill as a tar archive compressed by gzip, with SKILL.md at its root. The same
// files give the same bytes: names are sorted, and the archive has no times and owners; of the modes only
// the executable bit is kept.
func Pack(ctx context.Context, sk *skills.Skill) ([]byte, *Artifact, error) {
	index, err := check(ctx, sk)
	if err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	// The header of the writer has no name and no time, so that the same files give the same bytes.
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, nil, err
	}
	w := tar.NewWriter(z)
	left := int64(maxPacked)
	for _, f := range index.Files {
		content, err := sk.Read(ctx, f.Path, left)
		if errors.Is(err, skills.ErrTooLarge) {
			return nil, nil, fmt.Errorf("%s: the files have more than %d bytes", nameOf(sk), maxPacked)
		}
		if err != nil {
			return nil, nil, err
		}
		// The archive would not have the digest of the tree that is published with it.
		if !content.Matches {
			return nil, nil, fmt.Errorf("%s changed while it was read", f.Path)
		}
		left -= content.Size
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: content.Size, Mode: 0o644}
		if f.Executable {
			header.Mode = 0o755
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, nil, err
		}
		if _, err := w.Write(content.Data); err != nil {
			return nil, nil, err
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), artifact(sk, TypeArchive, b.Bytes(), index), nil
}

// nameOf returns the name in the frontmatter: the directory's name may differ from it.
func nameOf(sk *skills.Skill) string { return cmp.Or(sk.Frontmatter.Name, sk.Name()) }

func artifact(sk *skills.Skill, kind string, data []byte, index *skills.Index) *Artifact {
	return &Artifact{Name: nameOf(sk), Type: kind, Size: int64(len(data)), Digest: digest.FromBytes(data),
		Tree: index.TreeDigest}
}

// check returns the files of a skill if all of them can be published under its name.
func check(ctx context.Context, sk *skills.Skill) (*skills.Index, error) {
	index, err := sk.Index(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case !ValidName(nameOf(sk)):
		return nil, fmt.Errorf("%q is not a name of lower-case letters, digits and single hyphens, "+
			"at most 64", nameOf(sk))
	case sk.File != "SKILL.md":
		return nil, fmt.Errorf("%s: %s must be called SKILL.md", nameOf(sk), sk.File)
	case len(sk.Description()) == 0 || len(sk.Description()) > 4*maxText:
		return nil, fmt.Errorf("%s: its description is empty or longer than %d characters",
			nameOf(sk), maxText)
	}
	for _, d := range index.Diagnostics {
		switch d.Code {
		case skills.CodeResourceCount, skills.CodeUnreadableResource, skills.CodeResourceOutside,
			skills.CodeResourceSize, skills.CodeInvalidPath, skills.CodeMaxDepth, skills.CodeUnreadableDir:
			return nil, fmt.Errorf("%s: %s would be left out: %s", nameOf(sk), d.Path, d.Detail)
		}
	}
	return index, nil
}

// Publish writes skills and their index below .well-known/agent-skills of a web site's directory: a skill of
// one file as that file, others as archives. The index is written last. If a skill cannot be published,
// Publish writes nothing.
func Publish(ctx context.Context, list []*skills.Skill, site string) ([]*Artifact, error) {
	dir := filepath.Join(site, filepath.FromSlash(strings.TrimPrefix(Path, "/")))
	dir = filepath.Dir(dir)
	index, artifacts := &Index{}, []*Artifact{}
	contents := map[string][]byte{}
	for _, sk := range list {
		files, err := check(ctx, sk)
		if err != nil {
			return nil, err
		}
		if other := index.Find(nameOf(sk)); other != nil {
			return nil, fmt.Errorf("%s is the name of two skills", nameOf(sk))
		}
		var data []byte
		var made *Artifact
		at := nameOf(sk) + ".tar.gz"
		if len(files.Files) == 1 {
			at = nameOf(sk) + "/SKILL.md"
			content, err := sk.Read(ctx, sk.File, maxPacked)
			if err != nil {
				return nil, err
			}
			data, made = content.Data, artifact(sk, TypeSkill, content.Data, files)
		} else if data, made, err = Pack(ctx, sk); err != nil {
			return nil, err
		}
		made.File = filepath.Join(dir, filepath.FromSlash(at))
		contents[made.File] = data
		artifacts = append(artifacts, made)
		index.Skills = append(index.Skills, &Entry{Name: nameOf(sk), Type: made.Type,
			Description: sk.Description(), URL: at, Digest: made.Digest})
	}
	slices.SortFunc(index.Skills, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
	// Everything is packed before anything is written, so that a bad skill leaves the site unchanged.
	for _, made := range artifacts {
		if err := Write(made.File, contents[made.File]); err != nil {
			return nil, err
		}
	}
	return artifacts, Write(filepath.Join(dir, filepath.Base(Path)), index.Encode())
}

// Write replaces a file, with mode 0644, and makes its directory.
func Write(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return fsys.WriteFile(file, data, 0o644)
}
