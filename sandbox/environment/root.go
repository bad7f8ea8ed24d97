package environment

import (
	"fmt"
	"path"
	"sort"
	"strings"

	"github.com/opencontainers/go-digest"
)

// LockedRoot is a root file system that scripts see instead of the host's.
type LockedRoot struct {
	From     string    `json:"from"`     // its source, as in the configuration
	Programs []Program `json:"programs"` // interpreters that run in it, by name
}

// Program is an interpreter of a root file system.
type Program struct {
	Name    string `json:"name"` // for scripts, such as "python3"
	Path    string `json:"path"` // absolute, in the root file system
	Version string `json:"version,omitempty"`
}

// LockedBase is the root file system for which packages were locked.
type LockedBase struct {
	Name   string        `json:"name"` // of its environment
	Digest digest.Digest `json:"digest"`
}

// check returns why r is not a root file system, or nil.
func (r *LockedRoot) check() error {
	if r.From == "" || len(r.Programs) == 0 {
		return fmt.Errorf("its root file system has no source or no interpreters")
	}
	for _, p := range r.Programs {
		if !path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path || !programName(p.Name) ||
			len(p.Version) > 100 {
			return fmt.Errorf("%.100q is not an interpreter of a root file system", p.Path)
		}
	}
	return nil
}

// Program returns an interpreter of a root file system by its name, or nil.
func (r *LockedRoot) Program(name string) *Program {
	for i := range r.Programs {
		if r.Programs[i].Name == name {
			return &r.Programs[i]
		}
	}
	return nil
}

// RootOf returns the environment with the root file system of an environment: e itself, or the base of its
// packages; nil if e uses the host's.
//
// Errors: *LockError if the base is not locked with the digest for which the packages were locked.
func (l *Lock) RootOf(e *Locked) (*Locked, error) {
	switch {
	case e.Root != nil:
		return e, nil
	case e.Base == nil:
		return nil, nil
	}
	base := l.Environments[e.Base.Name]
	if base == nil || base.Root == nil || base.Digest != e.Base.Digest {
		return nil, &LockError{fmt.Sprintf("%.64q is not the root file system that packages were locked for",
			e.Base.Name)}
	}
	return base, nil
}

// maxLinks is how many links to a file Lookup follows.
const maxLinks = 40

// Lookup returns the file at an absolute path of a root file system. It follows links inside the tree.
func (t *Tree) Lookup(at string) (Entry, bool) {
	found, rest := ".", strings.Split(strings.TrimPrefix(at, "/"), "/")
	for links := 0; len(rest) > 0; {
		// The parent of the top is the top.
		name := path.Join("/", found, rest[0])[1:]
		rest = rest[1:]
		if name == "" {
			found = "."
			continue
		}
		e, ok := t.entry(name)
		if !ok {
			return Entry{}, false
		}
		if e.Kind != Link {
			found = name
			if e.Kind != directory && len(rest) > 0 {
				return Entry{}, false
			}
			continue
		}
		links++
		if links > maxLinks {
			return Entry{}, false
		}
		if path.IsAbs(e.Target) {
			found = "."
		}
		rest = append(strings.Split(strings.Trim(e.Target, "/"), "/"), rest...)
	}
	e, ok := t.entry(found)
	return e, ok && (e.Kind == File || e.Kind == Exec)
}

// entry returns the entry at a path. It reads only the fields of members that no worker writes.
func (t *Tree) entry(at string) (Entry, bool) {
	i, ok := sort.Find(len(t.members)-1, func(i int) int { return strings.Compare(at, t.members[i+1].Path) })
	if !ok {
		return Entry{}, false
	}
	return t.members[i+1].Entry, true
}

// Top returns the names of the directories at the top of a tree, and its links there with their targets.
func (t *Tree) Top() (dirs []string, links map[string]string) {
	links = map[string]string{}
	for i := range t.members {
		e := &t.members[i]
		switch {
		case e.Path == "." || strings.Contains(e.Path, "/"):
		case e.Kind == directory:
			dirs = append(dirs, e.Path)
		case e.Kind == Link:
			links[e.Path] = e.Target
		}
	}
	return dirs, links
}
