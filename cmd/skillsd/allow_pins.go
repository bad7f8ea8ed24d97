package main

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// notePins says which entries of the configuration no longer fit skills that a command changed. before
// and after return what is installed under a name, or nil.
func (a *app) notePins(names []string, before, after func(name string) *install.Entry) {
	type state struct {
		gone, holds bool
		changed     policy.Change
	}
	var order []string
	found := map[string]*state{}
	for i := range a.Cfg.Keys.Allow {
		entry, err := a.Cfg.Keys.Allow[i].Entry()
		if err != nil {
			continue
		}
		owner, dir, nested := strings.Cut(entry.Skill, "/")
		if !slices.Contains(names, owner) || nested && !hasNested(before(owner), dir) && !hasNested(after(owner), dir) {
			continue
		}
		name := serve.ScriptName(entry)
		if found[name] == nil {
			found[name] = &state{}
			order = append(order, name)
		}
		content, tree, there := contentOf(after(owner), dir, entry.Path)
		is := found[name]
		is.gone = is.gone || !there
		if change := entry.Changed(content, tree); change == policy.Unchanged {
			is.holds = true
		} else {
			is.changed = change
		}
	}
	for _, name := range order {
		switch is := found[name]; {
		case is.gone:
			fmt.Fprintf(a.err, "skillsd: note: the configuration still allows %s, which is gone; take that back: skillsd disallow %s\n", name, shellLine([]string{name}))
		case is.changed == policy.TreeChanged && !is.holds:
			fmt.Fprintf(a.err, "skillsd: note: %s does not run: other files of its skill are not what was allowed; read them and allow it again: skillsd allow %s\n", name, shellLine([]string{name}))
		case !is.holds:
			fmt.Fprintf(a.err, "skillsd: note: %s is not what was allowed and does not run; read it and allow it again: skillsd allow %s\n", name, shellLine([]string{name}))
		}
	}
}

// hasNested reports whether a skill lies in a directory of an installed one. What has its path otherwise
// is served from elsewhere.
func hasNested(e *install.Entry, dir string) bool {
	return e != nil && slices.ContainsFunc(e.Files, func(f install.LockFileRow) bool {
		return path.Dir(f.Path) == dir && strings.EqualFold(path.Base(f.Path), "SKILL.md")
	})
}

// contentOf are the digests of a file of an installed skill, or of one nested in its directory dir, and
// of the tree of that skill.
func contentOf(e *install.Entry, dir, name string) (content, tree digest.Digest, there bool) {
	if e == nil {
		return "", "", false
	}
	if dir == "" {
		tree = e.Tree
	} else {
		tree = nestedTree(e, dir)
	}
	for _, f := range e.Files {
		if f.Path == path.Join(dir, name) {
			return f.Digest, tree, true
		}
	}
	return "", "", false
}

// nestedTree is the digest of the part of an installed skill that is one itself.
func nestedTree(e *install.Entry, dir string) digest.Digest {
	var files []store.File
	for _, f := range e.Files {
		if below, ok := strings.CutPrefix(f.Path, dir+"/"); ok {
			files = append(files, store.File{Path: below, Digest: f.Digest})
		}
	}
	return store.TreeDigest(files)
}
