package environment

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/source"
)

// NodePackage is a package of npm in its place.
type NodePackage struct {
	Path string            // such as node_modules/a/node_modules/@scope/b
	Name string            // for messages
	Bin  map[string]string // files of the package, by the program that each is
}

// tarball is a tarball that is being unpacked.
type tarball struct {
	*Build
	NodePackage
	left int64           // bytes that it may still unpack to
	bins map[string]bool // its files that are programs
}

// Tarball unpacks a tarball of npm of size bytes. Its first directory, whatever its name, is the package's.
//
// Errors: *UnsafeError; errors of r and of the blobs.
func (b *Build) Tarball(p NodePackage, r io.Reader, size int64) error {
	t := &tarball{Build: b, NodePackage: p, left: max(freeSize, size*maxRatio), bins: map[string]bool{}}
	for _, file := range p.Bin {
		t.bins[path.Clean(file)] = true
	}
	packed, err := gzip.NewReader(io.LimitReader(r, maxArchive))
	if err != nil {
		return t.refuse("", "is not compressed by gzip")
	}
	unpacked := &faulty{r: packed}
	for in := tar.NewReader(&counted{unpacked, &t.left}); ; {
		header, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return t.refuse("", "cannot be read: "+err.Error())
		}
		if err := t.entry(header, in); err != nil {
			if unpacked.err != nil || t.left < 0 {
				return t.refuse(header.Name, "cannot be read: it is damaged, or grows too much")
			}
			return err
		}
	}
	// The checksum of the stream comes after the end of the archive in it.
	if _, err := io.Copy(io.Discard, &counted{unpacked, &t.left}); err != nil {
		return t.refuse("", "cannot be read: "+err.Error())
	}
	return t.links()
}

func (t *tarball) refuse(at, reason string) error { return &UnsafeError{t.Name, at, reason} }

// counted is a reader that fails once more than left was read.
type counted struct {
	r    io.Reader
	left *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.left -= int64(n)
	if *c.left < 0 {
		return 0, errSize
	}
	return n, err
}

// entry unpacks one entry.
func (t *tarball) entry(header *tar.Header, in io.Reader) error {
	switch header.Typeflag {
	case tar.TypeXGlobalHeader, tar.TypeDir:
		return nil
	case tar.TypeReg:
	default:
		return t.refuse(header.Name, "is neither a regular file nor a directory")
	}
	name := strings.TrimPrefix(header.Name, "./")
	if err := source.CheckName(name); err != nil {
		return t.refuse(header.Name, "is refused: "+err.Error())
	}
	_, name, below := strings.Cut(name, "/")
	if !below {
		t.note(t.Name, header.Name, "is left out: it lies outside of the package")
		return nil
	}
	at := t.Path + "/" + name
	if path.Ext(name) == ".node" {
		t.note(t.Name, at, "is a native module")
	}
	if name == "package.json" {
		text, err := readText(in)
		if err != nil {
			return t.refuse(header.Name, "cannot be read: "+err.Error())
		}
		t.look(text, at)
		in = bytes.NewReader(text)
	}
	program := t.bins[name]
	if program {
		// A system takes a carriage return for a part of the interpreter's name.
		in = withFirstLine(in, func(line string) string { return strings.TrimSuffix(line, "\r") })
	}
	return t.file(t.Name, at, program || header.Mode&0o111 != 0, in)
}

// look notes what npm would run at installing, which never runs here.
func (t *tarball) look(text []byte, at string) {
	var manifest struct {
		Scripts map[string]json.RawMessage `json:"scripts"`
	}
	_ = json.Unmarshal(text, &manifest) // a package that is not well described is none the less unpacked
	for _, when := range []string{"preinstall", "install", "postinstall"} {
		if manifest.Scripts[when] != nil {
			t.note(t.Name, at, "has a script for "+when+", which does not run")
		}
	}
}

// links makes the programs of the package in .bin next to it.
func (t *tarball) links() error {
	own := strings.LastIndex("/"+t.Path, "/node_modules/") + len("node_modules/")
	for _, name := range slices.Sorted(maps.Keys(t.Bin)) {
		file := path.Clean(t.Bin[name])
		target := "../" + t.Path[own:] + "/" + file
		e := Entry{Kind: Link, Target: target, Path: t.Path[:own] + ".bin/" + name}
		switch _, there := t.entries[t.Path+"/"+file]; {
		case !t.allows(t.Name, name, name):
		case !there || e.check() != nil:
			t.note(t.Name, name, "is left out: its file is not in the package")
		default:
			// Of two packages with one program, one wins whatever the order they come in.
			if other, taken := t.entries[e.Path]; taken && other.Kind == Link {
				t.note(t.Name, name, "has the name of another package's program")
				e.Target = min(e.Target, other.Target)
				t.entries[e.Path] = e
			} else if err := t.add(t.Name, e); err != nil {
				return err
			}
		}
	}
	return nil
}
