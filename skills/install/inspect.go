package install

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// Inspection is the result of Inspect.
type Inspection struct {
	Lock     *Lock
	Problems []Problem // as of Verify
	Verified int       // skills that were verified to their end; fewer than there are if the time was up
	// Busy says that another command changes the installation at this moment, so that nothing was verified.
	Busy bool
	// Interrupted says that a command did not end; the next one undoes it.
	Interrupted bool
}

// Inspect does what Verify does without changing anything or waiting: it does not undo an interrupted
// command, and ends after the time most. Other commands wait for it. It does not use Git and Waiting
// of cfg.
//
// Errors: *LockError for a lock file that cannot be read; errors of ctx; system errors.
func Inspect(ctx context.Context, cfg Config, most time.Duration) (found *Inspection, err error) {
	found = &Inspection{Lock: &Lock{}}
	guard := flock.New(filepath.Join(cfg.State, workDir, guardName), flock.SetPermissions(0o600))
	got, failed := guard.TryRLock()
	if found.Busy = !got && failed == nil; found.Busy {
		return found, nil
	}
	defer func() { err = errors.Join(err, guard.Unlock()) }()
	// Without a guard, because nothing was ever installed or its directory cannot be written, the lock
	// file is complete all the same: it is only ever replaced.
	if found.Lock, err = ReadLock(LockFile(cfg.State)); err != nil {
		return found, err
	}
	root, err := os.OpenRoot(cfg.State)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	} else if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	_, missing := root.Lstat(workDir + "/" + journalName)
	found.Interrupted = missing == nil
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	i := &Installer{cfg: cfg, root: root, lock: found.Lock}
	found.Problems, found.Verified, err = i.Verify(within)
	if within.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return found, err
}
