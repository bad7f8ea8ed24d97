//go:build !linux

package store

// untouched returns false: nothing vouches for bytes here, so every check hashes them.
func (t *Tree) untouched() bool { return false }
