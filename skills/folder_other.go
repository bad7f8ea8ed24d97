//go:build !linux

package skills

import (
	"context"
	"io/fs"
	"os"
	"time"
)

func openBase(dir string) (folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return genericFolder{tree: osTree{root}, rel: ".", own: true}, nil
}

// markOf returns a mark that does not vouch for bytes, so every check reads them.
func markOf(info fs.FileInfo) mark { return mark{size: info.Size(), mtime: info.ModTime().UnixNano()} }

// untouched returns false, since the system has no marks that vouch for bytes.
func (s *Skill) untouched(context.Context, *Index) bool { return false }

func (p place) openBeneath() (tree, bool) { return nil, false }

func (x *Index) listed(tree, time.Time, bool) *listedDirs { return nil }

// known returns nil, since the system has no marks by which what is kept of a skill could be found.
func (s *Skill) known(tree) (x *Index, value string, untouched bool) { return nil, "", false }
