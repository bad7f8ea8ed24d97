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
	Origin string // where its skills came from, in words; empty if not known
	Tier   Tier
	// Awaited is a directory that need not exist: until it does, it has no skills, and nothing is wrong with
	// it.
	Awaited bool
	// FS, if set, is read instead of Dir. It should be a [Source] if it can change or is outside of the
	// program. A link it lists counts as the file it names, and is left out if that is not a file. It
	// must not block for ever and must not panic: neither is guarded against.
	FS fs.FS
	// Name is used as the name of the root's directory if the root itself is a skill. It is used with FS
	// only; empty: the last name of Dir.
	Name string
}

// ParseRoot reads DIR, TIER=DIR or TIER:PREFIX=DIR. Without a tier it is user. The text before the
// first "=" is a tier only if it begins with the name of one, so a directory may have "=" in its name.
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
			// Only the canonical form is accepted: a prefix is written by an operator, once.
			clean, err := CleanPath(prefix)
			if err != nil {
				return Root{}, fmt.Errorf("root %q: prefix: %w", spec, err)
			}
			if clean != prefix {
				err = &PathError{Path: prefix, Reason: fmt.Sprintf("must be written %q", clean)}
			}
			if err != nil {
				return Root{}, fmt.Errorf("root %q: prefix: %w", spec, err)
			}
		}
	}
	if root.Dir == "" {
		return Root{}, fmt.Errorf("root %q names no directory", spec)
	}
	return root, nil
}

// Source is a tree of skills that is not a directory of this machine: an archive, a part of a program,
// something remote. Root{Dir: src.Origin(), FS: src} serves it; only what is staged for execution is
// copied to disk. Its files are as foreign as the files of any other root.
//
// As an [fs.FS] it must list each name once, in any order, as the name that opens it; a name is one
// element, not "." or "..". What Stat calls a regular file must be one: reads of it end, and give the
// same bytes each time within one version. A file that cannot be read in full is an error of Open or of
// Read, never a shorter file. Errors wrap [fs.ErrNotExist] for what does not exist and
// [fs.ErrPermission] for what may not be read; operators see their text, so it must not have a
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

	// Version identifies the content: it differs if any file, name or mode differs. It may also differ
	// if none does, which costs a rescan. It may be called often, to learn whether a rescan is due; the
	// implementation says what a call costs.
	Version(ctx context.Context) (string, error)

	// Pin returns the tree at its current version. Reads of it give that version or an error, however
	// late they come, so that what is listed, hashed and copied in one go belongs together. Its
	// resources are released when it is no longer referred to.
	Pin() (fs.FS, error)
}
