package httpauth

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// file is a configuration file that is read again when it changed.
type file struct {
	path string
	most int64       // bytes
	info fs.FileInfo // of what was read last; nil before, and after a failure
}

// read returns what the file holds if it is not what the last call saw; fresh tells. Files are told
// apart by identity, size and time: one that is replaced within the resolution of the clock is
// another file, one that is overwritten in place within it may be missed.
func (f *file) read() (data []byte, fresh bool, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.info = nil
		return nil, true, err
	}
	if f.info != nil && os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime()) {
		return nil, false, nil
	}
	f.info = nil
	if !info.Mode().IsRegular() {
		return nil, true, fmt.Errorf("%s is not a regular file", f.path)
	}
	open, err := os.Open(f.path)
	if err != nil {
		return nil, true, err
	}
	defer open.Close()
	data, err = io.ReadAll(io.LimitReader(open, f.most+1))
	if err != nil {
		return nil, true, err
	}
	if int64(len(data)) > f.most {
		return nil, true, fmt.Errorf("%s is longer than %d bytes", f.path, f.most)
	}
	f.info = info
	return data, true, nil
}
