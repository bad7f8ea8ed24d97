package skills

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/skills/store"
)

// untouched reports that the directory of a skill holds the files of its index and no others, each with a
// mark that vouches for its bytes. It never says so of a skill that [Skill.Verify] would find changed, and
// does without an answer where there is anything but plain files and directories, or any error. It asks
// the kernel once for each file: a check stands before every load and every run.
func (s *Skill) untouched(ctx context.Context, index *Index) bool {
	if s.place.fsys != nil {
		return false
	}
	base, err := openBase(s.place.base)
	if err != nil {
		return false
	}
	top := base
	if s.place.rel != "." {
		if top, err = descend(base, s.place.rel); err != nil {
			base.close()
			return false
		}
		base.close()
	}
	defer top.close()
	look := lookOver{index: index, seen: make([]bool, len(index.Files)), directories: s.limits.files}
	at, ok := top.(fdFolder)
	return ok && look.over(ctx, at, 0) && !slices.Contains(look.seen, false)
}

// lookOver compares directories with an index.
type lookOver struct {
	index       *Index
	path        []byte // of the current directory, with a slash behind it
	seen        []bool // of the index's files: a listing may name one twice while others are renamed
	directories int    // how many more are looked at
}

// over reports that a directory and those below it hold nothing that speaks against the index.
func (l *lookOver) over(ctx context.Context, dir fdFolder, depth int) bool {
	if l.directories--; l.directories < 0 || depth > maxFileDepth || ctx.Err() != nil {
		return false
	}
	var buf [8192]byte
	for {
		n, err := retry(func() (int, error) { return unix.Getdents(dir.fd, buf[:]) })
		if err != nil {
			return false
		}
		if n == 0 {
			return true
		}
		for rest := buf[:n]; len(rest) > 0; {
			name, kind, size := parseDirent(rest)
			rest = rest[size:]
			if !l.entry(ctx, dir, string(name), kind, depth) {
				return false
			}
		}
	}
}

func (l *lookOver) entry(ctx context.Context, dir fdFolder, name string, kind byte, depth int) bool {
	if name == "." || name == ".." || skipped(name) {
		return true
	}
	above := len(l.path)
	defer func() { l.path = l.path[:above] }()
	l.path = append(l.path, name...)
	switch kind {
	case unix.DT_DIR:
		below, err := dir.sub(name)
		if err != nil {
			return false
		}
		defer below.close()
		l.path = append(l.path, '/')
		return l.over(ctx, below.(fdFolder), depth+1)
	case unix.DT_REG:
		at, known := slices.BinarySearchFunc(l.index.Files, string(l.path), func(f store.File, path string) int { return strings.Compare(f.Path, path) })
		if !known {
			return false
		}
		now, err := dir.mark(name)
		l.seen[at] = true
		return err == nil && l.index.marks[at].vouches(now)
	}
	return false
}
