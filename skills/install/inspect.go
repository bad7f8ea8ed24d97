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

// Inspection is what Inspect found.
type Inspection struct {
	Lock     *Lock
	Problems []Problem // as of Verify
	Verified int       // skills that were looked at in full; fewer than there are when the time was up
	// Busy says that another command changes the installation at this moment: nothing was looked at.
	Busy bool
	// Interrupted says that a command was: the next one undoes it.
	Interrupted bool
}

// Inspect is Verify for who must not change anything, nor wait: it undoes nothing that was interrupted
// and ends when the time is up. Another command waits as long. Of cfg, Git, Waiting and Now are not
// used.
//
// Errors: *LockError for a lock file that cannot be read; those of ctx and of the system.
func Inspect(ctx context.Context, cfg Config, most time.Duration) (found *Inspection, err error) {
	found = &Inspection{}
	guard := flock.New(filepath.Join(cfg.State, workDir, guardName), flock.SetPermissions(0o600))
	switch got, failed := guard.TryRLock(); {
	case got:
		defer func() { err = errors.Join(err, guard.Unlock()) }()
	case failed == nil:
		found.Busy, found.Lock = true, &Lock{}
		return found, nil
	}
	// Without a guard, where nothing was ever installed or its directory cannot be written, the lock
	// file is still one that is complete.
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
	if _, err := root.Lstat(workDir + "/" + journalName); err == nil {
		found.Interrupted = true
	}
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	i := &Installer{cfg: cfg, root: root, lock: found.Lock}
	found.Problems, found.Verified, err = i.verify(within)
	if within.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return found, err
}
