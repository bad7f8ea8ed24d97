//go:build !linux

package environment

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// errLinks is an error that no call returns here.
var errLinks = errors.New("too many links")

func syncAll(dir *os.File) error { return dir.Sync() }

func stateOf(fs.FileInfo) state { return state{} }

// walk hashes the chosen members: states are not compared on this system.
func (t *Tree) walk(ctx context.Context, chosen func(*member) bool) (renewed bool, err error) {
	for i := range t.members {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if m := &t.members[i]; chosen(m) {
			if _, err := t.hash(m); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

func (t *Tree) quiet() bool { return false }
