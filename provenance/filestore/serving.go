package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// servingLock is locked by the server that clients of many connections have in common.
const servingLock = "serving.lock"

// ErrServing is the error of [Serve] for a directory that another server serves.
var ErrServing = errors.New("another server serves clients from these records")

// Serve makes this process the one that serves clients of many connections from the records in dir, until
// release is called or the process ends. What a user declined, who has which handle and which answers were
// used is known to one process: with two, each of these guards is weaker. Nothing else is kept from the
// records.
//
// Errors: [ErrServing], or the error of the lock.
func Serve(dir string) (release func() error, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := checkRegular(root, servingLock); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, servingLock), flock.SetPermissions(fileMode))
	// Served holds it for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	held, err := lock.TryLockContext(ctx, 20*time.Millisecond)
	if !held {
		if errors.Is(err, context.DeadlineExceeded) {
			err = ErrServing
		}
		return nil, err
	}
	return lock.Close, nil
}

// Served reports whether a process has called [Serve] for dir, as far as that can be found out. It writes
// nothing.
func Served(dir string) bool {
	lock := flock.New(filepath.Join(dir, servingLock), flock.SetFlag(os.O_RDONLY))
	held, err := lock.TryRLock()
	_ = lock.Close()
	return !held && err == nil
}
