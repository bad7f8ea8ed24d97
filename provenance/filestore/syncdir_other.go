//go:build !windows

package filestore

import (
	"errors"
	"os"
)

// sharedMode keeps a file that several sessions have from being changed in place.
const sharedMode = 0o400

// syncDir puts the entries of a directory on stable storage.
func syncDir(dir *os.Root, name string) error {
	d, err := dir.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
