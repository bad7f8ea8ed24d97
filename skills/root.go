package skills

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
)

// Root is a configured directory with skills below it, or a [Source] of them.
type Root struct {
	Dir    string // on this machine; with FS only a label, the Source's Origin
	Prefix string // put in front of the paths of its skills; empty for none
	Origin string // where its skills came from, in words; empty when not known
	Tier   Tier
	// FS is read instead of Dir when set. It should be a [Source] when it can change or lies outside
	// of the program. A link it lists counts as the file it names, and is left out when that is not
	// one. It must not block for ever and must not panic: neither is guarded against.
	FS fs.FS
	// Name stands for the root's directory where the root itself is a skill. It is used with FS
	// only; empty: the last name of Dir.
	Name string
}

// ParseRoot reads DIR, TIER=DIR or TIER:PREFIX=DIR. The tier is user when none is named. What
// stands before the first "=" is only taken for a tier when it begins with the name of one, so a
// directory may have "=" in its name.
func ParseRoot(spec string) (Root, error) {
	root := Root{Dir: spec, Tier: TierUser}
	if head, dir, ok := strings.Cut(spec, "="); ok {
		name, prefix, prefixed := strings.Cut(head, ":")
		tier, err := ParseTier(name)
		switch {
		case err == nil:
			root.Tier, root.Dir, root.Prefix = tier, dir, prefix
		case !strings.ContainsAny(name, `/\.`):
			return Root{}, fmt.Errorf("root %q: %w", spec, err)
		}
		if err == nil && prefixed {
			if root.Prefix, err = cleanPrefix(prefix); err != nil {
				return Root{}, fmt.Errorf("root %q: prefix: %w", spec, err)
			}
		}
	}
	if root.Dir == "" {
		return Root{}, fmt.Errorf("root %q names no directory", spec)
	}
	return root, nil
}

// cleanPrefix accepts only the canonical form: a prefix is written by an operator, once.
func cleanPrefix(prefix string) (string, error) {
	clean, err := CleanPath(prefix)
	if err == nil && clean != prefix {
		err = &PathError{Path: prefix, Reason: fmt.Sprintf("must be written %q", clean)}
	}
	return clean, err
}

// Source is a tree of skills that is no directory of this machine: an archive, a part of a program,
// something remote. Root{Dir: src.Origin(), FS: src} serves it; nothing is copied to disk but what is
// staged for execution. What it holds is as foreign as the files of any other root.
//
// As an [fs.FS] it must list each name once, in any order, as the very name that opens it; a name is
// one element, not "." or "..". What Stat calls a regular file must be one: reads of it end, and give
// the same bytes each time within one version. A file that cannot be had in full is an error of Open
// or of Read, never a shorter file. Errors wrap [fs.ErrNotExist] for what is not there and
// [fs.ErrPermission] for what may not be read; their text is shown to operators and must hold no
// secret. All methods are safe for concurrent use.
//
// Reads see the version that is current at each call, so that a file that was replaced is noticed
// as drift. A Source that holds resources is an [io.Closer] too; whoever made it closes it, after the
// last use of every [Snapshot] that was scanned from it. Its methods then return [fs.ErrClosed].
type Source interface {
	fs.FS

	// Origin names the source to operators, in one line: a path, a URL without credentials. It is
	// the same for every version and for every Source of the same tree.
	Origin() string

	// Version identifies the content: it differs when any file, name or mode differs. That it differs
	// when none does is allowed, and costs a rescan. It may be asked for often, to learn whether one
	// is due; what an answer costs is for the implementation to say.
	Version(ctx context.Context) (string, error)

	// Pin returns the tree at its current version. Reads of it give that version or an error however
	// much later they come, so that what is listed, hashed and copied in one go belongs together.
	// What it holds on to is given up when it is no longer referred to.
	Pin() (fs.FS, error)
}
