package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/gofrs/flock"
)

// maxEditWait is how long a command waits for another one that edits the same file.
const maxEditWait = 10 * time.Second

// LockEdit keeps other commands from editing a file until unlock is called. The lock is a file beside it,
// which is there only as long: that the file is replaced, or not there yet, is no matter. Editors that
// know nothing of it are not kept out.
func LockEdit(ctx context.Context, file string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxEditWait)
	defer cancel()
	name := file + ".skillsd-lock"
	for {
		lock := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR|openNoFollow|OpenNonblock),
			flock.SetPermissions(0o600))
		const again = 20 * time.Millisecond
		if _, err := lock.TryLockContext(ctx, again); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return nil, &exit.Error{Code: exit.Failure, Err: fmt.Errorf("another command edits %s", file),
					Hint: "wait for it to end, then try again"}
			}
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(file), err)
		}
		// Whoever had the lock before has removed its file, and who comes next makes another.
		if isNamed(lock, name) {
			return func() {
				_ = os.Remove(name) // where an open file cannot be removed it stays, which hurts nobody
				_ = lock.Close()
			}, nil
		}
		if err := lock.Close(); err != nil {
			return nil, err
		}
	}
}

// isNamed reports whether the file that is locked is the one that has the name.
func isNamed(lock *flock.Flock, name string) bool {
	held, err := lock.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(held, named)
}
