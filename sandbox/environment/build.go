// Package environment unpacks packages that scripts import into trees, keeps the trees by digest, and checks
// before a run that a tree is unchanged.
//
// A package manager only resolves names, elsewhere, into a [Lock]. This package unpacks the wheels
// ([Build.Wheel]) and the tarballs of npm ([Build.Tarball]) in the lock, and runs no code in them: so one
// lock gives one tree, and one digest, on every machine. The other files that a manager writes differ between
// its versions.
//
// # What is unpacked
//
// A package is a foreign archive, read by the rules of package archive. It is refused as a whole, with an
// [*UnsafeError], if it breaks them, or if it has links, a file that another package has with other content,
// a path of the environment's own (the interpreter, pyvenv.cfg), more than the limits, or, a wheel, a
// file that its RECORD does not list with its hash. Left out are compiled modules, which may differ from
// their sources, headers, and programs with the name of a common one ([reserved]). A file that is left out,
// or runs when an interpreter starts, is reported as a [Note] to the operator.
//
// # Places
//
// Paths are relative to /env, where every environment is mounted: nothing is ever relocated. Modules of
// Python lie in lib/pythonX.Y/site-packages, packages of npm in node_modules.
//
// # Trust
//
// The digest is the digest of a [Manifest]: every path, content, executable bit and link, in byte order. A
// [Store] shares content between trees by hard links. As in package store, the server's own user could change
// a tree between check and use: keep it where no script can reach it.
package environment

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/archive"
)

// Limits of an environment, in bytes unless noted.
const (
	maxFiles   = 200_000 // in all
	maxTotal   = 8 << 30
	maxArchive = 1 << 30  // one package, packed
	maxText    = 4 << 20  // metadata
	freeSize   = 64 << 20 // that any tarball may unpack to; beyond, it may grow 200-fold
)

// UnsafeError is the reason why a package is refused.
type UnsafeError struct {
	Package string
	Path    string // in the package, of any bytes; empty for the whole
	Reason  string // a phrase that follows the path
}

func (e *UnsafeError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("package %s is not safe to unpack: it %s", e.Package, e.Reason)
	}
	return fmt.Sprintf("package %s is not safe to unpack: %+q %s", e.Package, e.Path, e.Reason)
}

// refused returns the error of an archive as the error of its package.
func refused(pkg string, err error) error {
	if bad, ok := errors.AsType[*archive.Error](err); ok {
		return &UnsafeError{pkg, bad.Problems[0].Entry, bad.Problems[0].Reason}
	}
	return err
}

// Note is a fact about a package for the operator who decides about it.
type Note struct {
	Package string
	Path    string // in the environment, or in the package if it was left out
	What    string // a phrase that follows the path
}

// Blobs store contents. Put reads r to its end and returns the digest and the number of its bytes.
type Blobs interface {
	Put(r io.Reader, executable bool) (digest.Digest, int64, error)
}

// Build is an environment that packages are unpacked into, in any order. It is not safe for concurrent use,
// and must not be used after an error.
type Build struct {
	blobs   Blobs
	site    string
	entries map[string]Entry
	from    map[string]string // packages, by path
	dirs    map[string]bool
	notes   map[Note]bool
	bytes   int64
}

// NewBuild returns an empty environment whose contents go to blobs. python is the minor version of Python
// for wheels, such as "3.11".
func NewBuild(blobs Blobs, python string) *Build {
	return &Build{
		blobs: blobs, site: "lib/python" + python + "/site-packages/",
		entries: map[string]Entry{}, from: map[string]string{}, dirs: map[string]bool{},
		notes: map[Note]bool{},
	}
}

// Manifest returns the files of the environment.
func (b *Build) Manifest() Manifest {
	return slices.SortedFunc(maps.Values(b.entries), byPath)
}

// Notes returns the notes in byte order of packages and paths.
func (b *Build) Notes() []Note {
	return slices.SortedFunc(maps.Keys(b.notes), func(x, y Note) int {
		return strings.Compare(x.Package+"\x00"+x.Path+"\x00"+x.What, y.Package+"\x00"+y.Path+"\x00"+y.What)
	})
}

func (b *Build) note(pkg, at, what string) { b.notes[Note{pkg, at, what}] = true }

// errSize is the error of a content that exceeds the size of an environment.
var errSize = errors.New("is past the size that an environment may have")

// file adds a file of a package, with the rest of r as its content.
func (b *Build) file(pkg, at string, executable bool, r io.Reader) error {
	left := maxTotal - b.bytes
	limited := &io.LimitedReader{R: r, N: left + 1}
	sum, size, err := b.blobs.Put(limited, executable)
	if err != nil {
		return err
	}
	if size > left {
		return &UnsafeError{pkg, at, errSize.Error()}
	}
	b.bytes += size
	kind := File
	if executable {
		kind = Exec
	}
	return b.add(pkg, Entry{Kind: kind, Digest: sum, Size: size, Path: at})
}

// add adds an entry. A file of two packages must be equal in both, such as the __init__.py of a namespace.
func (b *Build) add(pkg string, e Entry) error {
	refuse := func(reason string) error { return &UnsafeError{pkg, e.Path, reason} }
	if err := archive.CheckName(e.Path); err != nil {
		return refuse("is refused: " + err.Error())
	}
	if other, ok := b.entries[e.Path]; ok {
		if b.from[e.Path] == pkg {
			return refuse("is a duplicate")
		}
		if other != e {
			return refuse("is another file than the one of package " + b.from[e.Path])
		}
		return nil
	}
	if b.dirs[e.Path] {
		return refuse("is both a file and a directory")
	}
	for dir := path.Dir(e.Path); dir != "." && !b.dirs[dir]; dir = path.Dir(dir) {
		if _, ok := b.entries[dir]; ok {
			return refuse("lies below a file")
		}
		b.dirs[dir] = true
	}
	if len(b.entries) == maxFiles {
		return refuse(fmt.Sprintf("is past the %d files that an environment may have", maxFiles))
	}
	b.entries[e.Path], b.from[e.Path] = e, pkg
	return nil
}

// reserved reports whether a program of an environment would replace a program that scripts expect from the
// system.
func reserved(name string) bool {
	for _, prefix := range []string{"python", "pip", "node", "npm", "npx"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && strings.Trim(rest, "0123456789.") == "" {
			return true
		}
	}
	// The list is fixed, because the programs of a machine must not change a digest.
	return slices.Contains(systemPrograms, name)
}

// systemPrograms are shells, interpreters and the programs of coreutils, util-linux and the like.
var systemPrograms = strings.Fields(`[ apt apt-get arch awk b2sum base32 base64 basename bash bun bzip2 cat
chcon chgrp chmod chown chroot cksum comm cp csplit curl cut dash date dd deno df diff dir dirname dpkg du
echo egrep env ex expand expr factor false fgrep file find fmt fold gawk git gpg grep groups gunzip gzip head
hostid hostname id install ionice jq kill less link ln logname ls lua make mawk md5sum mkdir mkfifo mknod
mktemp more mount mv nice nl nodejs nohup nproc numfmt od openssl paste patch perl pgrep php pkill pr
printenv printf ps ptx pwd readlink realpath renice rm rmdir rsync ruby runcon scp sed seq setsid sh
sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split ssh stat stdbuf stty su sudo
sum sync tac tail tar taskset tee test timeout touch tr true truncate tsort tty umount uname unexpand uniq
unlink unshare unxz unzip users uv uvx vdir vi vim watch wc wget which who whoami xargs xz yes zcat zip
zsh zstd`)

// programName reports whether a name is valid for a program.
func programName(name string) bool {
	return name != "" && name[0] != '-' && name[0] != '.' && strings.Trim(name,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-") == ""
}

// allows reports whether a package may have a program with a name, and notes why not. from is the path in
// the package.
func (b *Build) allows(pkg, name, from string) bool {
	switch {
	case !programName(name):
		b.note(pkg, from, "is left out: its name is not a program's")
	case reserved(name):
		b.note(pkg, from, "is left out: it has the name of a program of the system")
	default:
		return true
	}
	return false
}

// readText reads a file of metadata, with at most maxText bytes.
func readText(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return data, err
	}
	if len(data) > maxText {
		return nil, fmt.Errorf("has more than %d bytes", maxText)
	}
	return data, nil
}

// withFirstLine returns r with change applied to its first line, without the line break. A first line that
// does not start with "#!", or is longer than 511 bytes, is not changed.
func withFirstLine(r io.Reader, change func(line string) string) io.Reader {
	const longest = 512
	in := bufio.NewReaderSize(r, longest)
	head, _ := in.Peek(longest)
	end := bytes.IndexByte(head, '\n')
	if !bytes.HasPrefix(head, []byte("#!")) || end < 0 {
		return in
	}
	line := change(string(head[:end]))
	_, _ = in.Discard(end + 1)
	return io.MultiReader(strings.NewReader(line+"\n"), in)
}
