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

// markOf returns a mark that vouches for nothing, so every check reads the bytes.
func markOf(info fs.FileInfo) mark { return mark{size: info.Size(), mtime: info.ModTime().UnixNano()} }

// untouched returns false, since this system has no marks that vouch for bytes.
func (s *Skill) untouched(context.Context, *Index) bool { return false }

func (p location) openBeneath() (tree, bool) { return nil, false }

func (x *Index) listed(tree, time.Time, bool) *listedDirs { return nil }

// known returns nil, since this system has no marks for looking up cached indexes.
func (s *Skill) known(tree) (x *Index, value string, untouched bool) { return nil, "", false }
