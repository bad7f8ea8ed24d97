package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	maxCell  = 64 << 10 // bytes of one cell
	maxCells = 2_000    // cells of one directory
	cellLock = "lock"
)

// Codes returns the calls that wait for the user's decision, of all processes with this state directory.
//
// The files are as trustworthy as the configuration: only programs of this user can write either, and a
// script in a sandbox sees neither.
func Codes(state string) *approval.Codes {
	return approval.NewCodes(cellFiles(filepath.Join(state, "approvals")))
}

// cellFiles are cells in files of a directory that only its user can access.
type cellFiles string

// Change implements approval.Cells.
func (c cellFiles) Change(
	ctx context.Context, key string, life time.Duration, change func(value []byte) []byte,
) (err error) {
	if err := os.MkdirAll(string(c), 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(string(c))
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", c)
	}
	// Another user who can write the cells could approve a call.
	if err := fsys.Exposed(info); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	root, err := os.OpenRoot(string(c))
	if err != nil {
		return err
	}
	defer root.Close()
	lock := flock.New(filepath.Join(string(c), cellLock),
		flock.SetFlag(os.O_CREATE|os.O_RDWR|fsys.NoFollow|fsys.NonBlock), flock.SetPermissions(0o600))
	const again, most = 20 * time.Millisecond, 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, most) // a held lock must not keep runs waiting
	defer cancel()
	if _, err := lock.TryLockContext(ctx, again); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	sum := sha256.Sum256([]byte(key))
	name := hex.EncodeToString(sum[:])
	was, err := cellValue(root, name, life)
	if err != nil {
		return err
	}
	next := change(was)
	if next == nil {
		return nil
	}
	// Only a new cell can exceed the limit, and each call that asks makes one, so that the directory is
	// cleaned often enough.
	if was == nil {
		if err := pruneCells(root, life); err != nil {
			return err
		}
	}
	// After a crash the user is asked again; a sync would keep the call waiting for the disk.
	return fsys.WriteUnsyncedIn(root, name, next, 0o600)
}

// cellValue returns the value of a cell, or nil.
func cellValue(root *os.Root, name string, life time.Duration) ([]byte, error) {
	file, info, err := fsys.OpenIn(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := fsys.Exposed(info); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if time.Since(info.ModTime()) > life {
		return nil, nil
	}
	return fsys.ReadAll(file, maxCell)
}

// pruneCells removes expired cells.
func pruneCells(root *os.Root, life time.Duration) error {
	list, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	left := 0
	for _, entry := range list {
		info, err := entry.Info()
		if err != nil || entry.Name() == cellLock || strings.HasPrefix(entry.Name(), fsys.TempPrefix) {
			continue
		}
		if time.Since(info.ModTime()) <= life {
			left++
			continue
		}
		_ = root.Remove(entry.Name())
	}
	if left >= maxCells {
		return errors.New("too many calls wait for the user")
	}
	return nil
}
