package environment

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/content"
)

// Kind is the kind of an entry of a manifest.
type Kind string

// The kinds of entries.
const (
	File Kind = "file"
	Exec Kind = "exec" // an executable file
	Link Kind = "link"
)

// Entry is a file or link of an environment.
type Entry struct {
	Kind   Kind
	Digest digest.Digest // of a file
	Size   int64         // of a file, in bytes; not part of a manifest's digest
	Target string        // of a link: relative, and below the environment
	Path   string        // slash-separated, relative
}

// Manifest is the content of an environment, in byte order of Path.
type Manifest []Entry

func byPath(x, y Entry) int { return strings.Compare(x.Path, y.Path) }

// Bytes returns a line "<kind> <hex or target>  <path>" for each entry. Paths are escaped as sha256sum does.
func (m Manifest) Bytes() []byte {
	var b bytes.Buffer
	for _, e := range m {
		b.WriteString(content.Line(e.head(), e.Path))
	}
	return b.Bytes()
}

func (e *Entry) head() string {
	if e.Kind == Link {
		return string(Link) + " " + e.Target
	}
	return string(e.Kind) + " " + e.Digest.Encoded()
}

// Digest returns the SHA-256 of [Manifest.Bytes]: the identity of an environment.
func (m Manifest) Digest() digest.Digest { return digest.FromBytes(m.Bytes()) }

// Size returns the number of files and their bytes.
func (m Manifest) Size() (files int, bytes int64) {
	for _, e := range m {
		if e.Kind != Link {
			files++
			bytes += e.Size
		}
	}
	return files, bytes
}

// check returns why an environment cannot have an entry, or nil.
func (e *Entry) check() error {
	if err := archive.CheckName(e.Path); err != nil {
		return fmt.Errorf("path %q: %w", e.Path, err)
	}
	switch e.Kind {
	case File, Exec:
		return e.checkContent()
	case Link:
		inside := path.Join(path.Dir(e.Path), e.Target)
		if e.Digest != "" || archive.CheckName(inside) != nil || strings.ContainsAny(e.Target, " \\") ||
			path.IsAbs(e.Target) {
			return fmt.Errorf("link %q does not stay in the environment", e.Path)
		}
		return nil
	default:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
}

func (e *Entry) checkContent() error {
	if e.Target != "" || e.Digest.Validate() != nil || e.Digest.Algorithm() != digest.SHA256 {
		return errors.New("a file needs a sha256 digest and no target")
	}
	return nil
}

// checkRoot returns why a root file system cannot have an entry, or nil.
func (e *Entry) checkRoot() error {
	switch {
	case !fs.ValidPath(e.Path) || e.Path == ".":
		return fmt.Errorf("path %q is not below the root", e.Path)
	case e.Kind == Link && e.Target != "" && !strings.ContainsAny(e.Target, " \\\n\r"):
		return nil
	case e.Kind == File || e.Kind == Exec:
		return e.checkContent()
	}
	return fmt.Errorf("%q is neither a file nor a link", e.Path)
}
