package skills

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
)

// Root is a configured directory that contains skills, or a [Source] of them.
type Root struct {
	Dir    string // path on this machine; with FS a label, the Source's Origin
	Prefix string // prefix of the paths of its skills; may be empty
	Origin string // where its skills come from, for display; may be empty
	Tier   Tier
	// Awaited marks a directory that need not exist yet. While missing, it has no skills and no diagnostic.
	Awaited bool
	// FS, if set, is read instead of Dir. It should be a [Source] if it can change or is outside of the
	// program. A link in it is treated as its target, and ignored if that is not a file. It must not block
	// forever or panic: neither is guarded against.
	FS fs.FS
	// Name replaces the directory name if the root itself is a skill. Used only with FS; empty: the last
	// element of Dir.
	Name string
}

// ParseRoot parses DIR, TIER=DIR or TIER:PREFIX=DIR. The default tier is user. Text before the first "=" is a
// tier only if it begins with the name of one, so a directory may contain "=".
func ParseRoot(spec string) (Root, error) {
	root := Root{Dir: spec, Tier: TierUser}
	if head, dir, ok := strings.Cut(spec, "="); ok {
		name, prefix, prefixed := strings.Cut(head, ":")
		tier, err := ParseTier(name)
		switch {
		case err == nil:
			root.Tier, root.Dir, root.Prefix = tier, dir, prefix
		// A name without separators and dots is a misspelt tier. Taken for a directory, it would be reported
		// as a missing one.
		case !strings.ContainsAny(name, `/\.`):
			return Root{}, fmt.Errorf("root %q: %w", spec, err)
		}
		if err == nil && prefixed {
			// Only the canonical form is accepted, since an operator writes the prefix.
			clean, err := CleanPath(prefix)
			if err != nil {
				return Root{}, fmt.Errorf("root %q: prefix: %w", spec, err)
			}
			if clean != prefix {
				err := &PathError{Path: prefix, Reason: fmt.Sprintf("must be written %q", clean)}
				return Root{}, fmt.Errorf("root %q: prefix: %w", spec, err)
			}
		}
	}
	if root.Dir == "" {
		return Root{}, fmt.Errorf("root %q names no directory", spec)
	}
	return root, nil
}

// Source is a tree of skills that is not a directory of this machine: an archive, an embedded file system, a
// remote tree. Root{Dir: src.Origin(), FS: src} serves it; only files that are staged for execution are
// copied to disk. Its files are as untrusted as the files of any other root.
//
// As an [fs.FS] it must list each name once, in any order; a name is one path element, not "." or "..". A
// file that Stat reports as regular must end, and have the same bytes at each read within one version. If a
// file cannot be read completely, Open or Read returns an error; it never appears shorter. Errors wrap
// [fs.ErrNotExist] for missing files and [fs.ErrPermission] for denied access; operators see their text, so
// it must not contain a secret. All methods are safe for concurrent use.
//
// Reads use the version that is current at each call, so that a replaced file is reported as drift. If a
// Source holds resources, it is also an [io.Closer]. The caller that opened it closes it, after the last use
// of every [Snapshot] scanned from it. Its methods then return [fs.ErrClosed].
type Source interface {
	fs.FS

	// Origin identifies the source for operators, in one line: a path, or a URL without credentials. It is
	// the same for every version and for every Source of the same tree.
	Origin() string

	// Version identifies the content: it changes whenever a file, name or mode changes. It may also change
	// without that, at the cost of a rescan. It is called often, to detect changes; implementations document
	// its cost.
	Version(ctx context.Context) (string, error)

	// Pin returns the tree at its current version. Later reads return that version or an error, so that
	// listing, hashing and copying see the same files. Its resources are released once it is unreachable.
	Pin() (fs.FS, error)
}
