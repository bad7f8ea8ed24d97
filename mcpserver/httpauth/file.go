package httpauth

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// file is a configuration file that is read again if it changed.
type file struct {
	path string
	most int64 // bytes
	// trust refuses a file that others could have written; nil refuses none.
	trust func(fs.FileInfo) error
	info  fs.FileInfo // of the content that was read last; nil before, and after a failure
}

// read returns the content of the file, with fresh set, unless it is the file that the last call read. Files
// are compared by identity, size and time: a file that is replaced within the resolution of the clock is
// noticed, one that is overwritten in place within it may be missed.
func (f *file) read() (data []byte, fresh bool, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.info = nil
		return nil, true, err
	}
	if err := f.check(info); err != nil {
		f.info = nil
		return nil, true, err
	}
	same := f.info != nil && os.SameFile(f.info, info)
	if same && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime()) {
		return nil, false, nil
	}
	f.info = nil
	open, info, err := fsys.Open(f.path)
	if err != nil {
		return nil, true, err
	}
	defer open.Close()
	if err := f.check(info); err != nil {
		return nil, true, err
	}
	if data, err = fsys.ReadAll(open, f.most); err != nil {
		return nil, true, fmt.Errorf("%s: %w", f.path, err)
	}
	f.info = info
	return data, true, nil
}

// check refuses what is not a regular file and what is not trusted.
func (f *file) check(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.path)
	}
	if f.trust == nil {
		return nil
	}
	if err := f.trust(info); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}
