package environment

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/archive"
)

// NodePackage is a package of npm and its path in the environment.
type NodePackage struct {
	Path string            // such as node_modules/a/node_modules/@scope/b
	Name string            // for messages
	Bin  map[string]string // files of the package, by the name of the program
}

// tarball is a tarball that is being unpacked.
type tarball struct {
	*Build
	NodePackage
	bins map[string]bool // its files that are programs
}

// Tarball unpacks a tarball of npm of size bytes. Its first directory, with any name, is the package's.
//
// Errors: *UnsafeError; errors of r and of the blobs.
func (b *Build) Tarball(p NodePackage, r io.Reader, size int64) error {
	t := &tarball{Build: b, NodePackage: p, bins: map[string]bool{}}
	for _, file := range p.Bin {
		t.bins[path.Clean(file)] = true
	}
	in := bufio.NewReader(io.LimitReader(r, maxArchive))
	if head, _ := in.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return t.refuse("", "is not compressed by gzip")
	}
	rules := archive.Rules{Entries: maxFiles, Total: maxTotal, Free: freeSize}
	if err := archive.Tar(in, size, &rules, t.entry); err != nil {
		return refused(t.Name, err)
	}
	return t.links()
}

func (t *tarball) refuse(at, reason string) error { return &UnsafeError{t.Name, at, reason} }

// entry unpacks one entry.
func (t *tarball) entry(e *archive.Entry, in io.Reader) error {
	if e.Kind == archive.Dir {
		// The store makes directories for files.
		return nil
	}
	_, name, below := strings.Cut(e.Name, "/")
	if !below {
		t.note(t.Name, e.Raw, "is left out: it lies outside of the package")
		return nil
	}
	at := t.Path + "/" + name
	if path.Ext(name) == ".node" {
		t.note(t.Name, at, "is a native module")
	}
	if name == "package.json" {
		text, err := readText(in)
		if err != nil {
			return t.refuse(e.Raw, "cannot be read: "+err.Error())
		}
		t.look(text, at)
		in = bytes.NewReader(text)
	}
	program := t.bins[name]
	if program {
		// Linux takes a carriage return as a part of the interpreter's name.
		in = withFirstLine(in, func(line string) string { return strings.TrimSuffix(line, "\r") })
	}
	return t.file(t.Name, at, program || e.Executable(), in)
}

// look notes scripts that npm would run during an installation. They never run here.
func (t *tarball) look(text []byte, at string) {
	var manifest struct {
		Scripts map[string]json.RawMessage `json:"scripts"`
	}
	// An invalid package.json has no scripts, and is unpacked too.
	_ = json.Unmarshal(text, &manifest)
	for _, when := range []string{"preinstall", "install", "postinstall"} {
		if manifest.Scripts[when] != nil {
			t.note(t.Name, at, "has a script for "+when+", which does not run")
		}
	}
}

// links adds the programs of the package to the .bin directory next to it.
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
			// If two packages have a program of one name, the choice does not depend on their order.
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
