package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxEditWait is how long a command waits for another one that edits the same file.
const maxEditWait = 10 * time.Second

// LockEdit keeps other commands from editing a file until unlock is called. The lock is a separate file in
// the same directory, which unlock removes: the file itself may be replaced, or may not exist yet. LockEdit
// does not stop editors, which do not know of the lock.
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
				return nil, exit.Errorf(exit.Failure, "wait for it to end, then try again",
					"another command edits %s", file)
			}
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(file), err)
		}
		// The process that had the lock before has removed its file. The next process makes another file,
		// so a lock on the removed one keeps nobody out.
		if isNamed(lock, name) {
			return func() {
				_ = os.Remove(name) // some systems cannot remove an open file; it does no harm
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
