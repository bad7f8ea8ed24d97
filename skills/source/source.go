// Package source serves skills that do not lie in a directory: [Zip] reads an archive in place. It is a
// [skills.Source], which a [skills.Root] takes as its FS; an implementation for something remote follows the
// contract there. Nothing is extracted: a scan, a read and a check for drift read the archive, and only a
// tree that is executed is copied, to the store, with every digest checked on the way.
//
// A zip archive is used only if it follows the rules of package archive, which are checked whenever the file
// changed.
//
// # Limits
//
// The package does not look for archives: it reads archives that it is given, and none that lies in
// another. It does not guard against programs that may write the archive.
package source

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// maxHops is the maximum number of links on the way to a file.
const maxHops = 40

// errLeadsOut is the error of a link that leads out of a tree, or to nothing in it.
var errLeadsOut = errors.New("the link leads out of the source")

// Resolve returns the path, without links, that a path of a tree leads to, and the facts about what is there.
// Links are followed only within the tree: an absolute one, or one with a backslash, leads out of it.
//
// Errors: an error for a link that leads out of the tree; the errors of the tree.
func Resolve(tree fs.ReadLinkFS, name string) (real string, info fs.FileInfo, err error) {
	at, rest, hops := ".", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		next := rest[0]
		rest = rest[1:]
		switch {
		case next == "" || next == ".":
			continue
		case next == ".." && at == ".":
			return "", nil, errLeadsOut
		case next == "..":
			at = path.Dir(at)
			continue
		}
		next = path.Join(at, next)
		info, err := tree.Lstat(next)
		if err != nil {
			return "", nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		hops++
		text, err := tree.ReadLink(next)
		if err != nil {
			return "", nil, err
		}
		// The limit, as in Linux, ends loops of links.
		if hops > maxHops || text == "" || path.IsAbs(text) || strings.ContainsAny(text, "\\\x00") {
			return "", nil, errLeadsOut
		}
		rest = append(strings.Split(text, "/"), rest...)
	}
	info, err = tree.Lstat(at)
	return at, info, err
}
