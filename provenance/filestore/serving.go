package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// servingLock is the lock of the server that clients with many connections share.
const servingLock = "serving.lock"

// ErrServing means that another server serves the directory; see [Serve].
var ErrServing = errors.New("another server serves clients from these records")

// Serve makes this process the only one that serves clients with many connections from the records in dir,
// until release is called or the process ends. One process must track which calls a user declined, which
// client has which handle and which answers were used; with two processes, each of these guards is weaker.
// Other access to the records is not restricted.
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
	// Served holds the lock for a moment.
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

// Served reports whether a process has called [Serve] for dir, as far as that can be determined. It writes
// nothing.
func Served(dir string) bool {
	lock := flock.New(filepath.Join(dir, servingLock), flock.SetFlag(os.O_RDONLY))
	held, err := lock.TryRLock()
	_ = lock.Close()
	return !held && err == nil
}
