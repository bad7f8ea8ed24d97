package config

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxEditWait is the longest time that a command waits for another command that edits the same file.
const maxEditWait = 10 * time.Second

// LockEdit locks a file against other commands that edit it, until unlock is called. The lock is a separate
// file in the same directory, which unlock removes, because the file itself may be replaced or not exist yet.
// Text editors ignore the lock.
func LockEdit(ctx context.Context, file string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxEditWait)
	defer cancel()
	name := file + ".skillsd-lock"
	for {
		lock := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR|fsys.NoFollow|fsys.NonBlock),
			flock.SetPermissions(0o600))
		const again = 20 * time.Millisecond
		if _, err := lock.TryLockContext(ctx, again); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return nil, exit.Errorf(exit.Failure, "wait until it ends, then try again",
					"another command is editing %s", file)
			}
			if errors.Is(err, context.Canceled) {
				return nil, err
			}
			if cause, ok := errors.AsType[*fs.PathError](err); ok {
				err = cause.Err
			}
			return nil, exit.Errorf(exit.Failure, exit.SystemHint(err),
				"%s cannot be edited, since no lock file can be made beside it: %w", file, err)
		}
		// The previous holder removes its lock file when it unlocks, and the next process creates another. A
		// lock on the removed file therefore excludes no process.
		if isNamed(lock, name) {
			return func() {
				_ = os.Remove(name) // fails on some systems while open; harmless
				_ = lock.Close()
			}, nil
		}
		if err := lock.Close(); err != nil {
			return nil, err
		}
	}
}

// isNamed reports whether the locked file is still the file at name.
func isNamed(lock *flock.Flock, name string) bool {
	held, err := lock.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(held, named)
}
