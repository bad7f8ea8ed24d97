package httpauth

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// file is a configuration file that is read again when it changes. Safe for concurrent use.
type file[T any] struct {
	path  string
	most  int64 // bytes
	parse func([]byte) (T, error)
	// trust rejects a file that others could have written; nil rejects none.
	trust func(fs.FileInfo) error

	mu    sync.Mutex
	info  fs.FileInfo // of the parsed file; nil before the first read and after a failure
	value T
}

var errUnchanged = errors.New("unchanged")

// current returns the parsed file, after reading it again if it changed. Files are compared by identity, size
// and time: a replaced file is noticed even within the resolution of the clock, a file overwritten in place
// within it may not be.
func (f *file[T]) current() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.info
	data, err := fsys.ReadFile(f.path, f.most, func(info fs.FileInfo) error {
		if f.trust != nil {
			if err := f.trust(info); err != nil {
				return err
			}
		}
		f.info = info
		same := last != nil && os.SameFile(last, info)
		if same && last.Size() == info.Size() && last.ModTime().Equal(info.ModTime()) {
			return errUnchanged
		}
		return nil
	})
	if errors.Is(err, errUnchanged) {
		return f.value, nil
	}
	if err != nil {
		// Otherwise the next call would take the file for unchanged and return the old value without an
		// error.
		f.info = nil
		return f.value, err
	}
	f.value, err = f.parse(data)
	if err != nil {
		f.info = nil
	}
	return f.value, err
}
