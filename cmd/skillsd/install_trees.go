package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/install"
)

// collectTime is how long the records of sessions are read for trees that they name. A server that
// starts meanwhile waits.
const collectTime = 3 * time.Second

// collectTrees removes the stored trees that neither the lock file nor a session names. It costs space
// only when that cannot be told, or while a server runs: then all stay.
func (a *app) collectTrees(ctx context.Context, i *install.Installer) {
	state, errState := a.stateDir()
	records, errRecords := a.artifactDir()
	if errState != nil || errRecords != nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	n, err := i.Collect(ctx, func(trees map[digest.Digest]bool) error {
		// Servers that were given no place for their records have them in the state directory.
		return errors.Join(dropUsed(within, records, trees), dropUsed(within, filepath.Join(state, "sessions"), trees))
	})
	if err == nil && n > 0 {
		fmt.Fprintf(a.err, "skillsd: note: %s that nothing needs any more left the store\n", plural(n, "tree"))
	}
}

// dropUsed takes from a set of trees those that a session below dir names, with whatever meaning.
func dropUsed(ctx context.Context, dir string, trees map[digest.Digest]bool) (err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	sessions, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, session := range sessions {
		if len(trees) == 0 {
			return nil
		}
		if !strings.HasPrefix(session.Name(), "ses_") {
			continue
		}
		if err := dropNamed(ctx, root, session.Name()+"/events.jsonl", trees); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// dropNamed takes from a set of trees those whose digests stand in a file.
func dropNamed(ctx context.Context, root *os.Root, name string, trees map[digest.Digest]bool) (err error) {
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fs.ErrNotExist)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	const length = 2 * 32 // of a digest in hexadecimal digits
	var digits [length]byte
	n := 0
	for reader := bufio.NewReaderSize(file, 1<<16); ; {
		_, end := reader.Peek(1)
		if end != nil && end != io.EOF {
			return end
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		block := []byte{'\n'} // a digest may stand at the very end
		if end == nil {
			block, _ = reader.Peek(reader.Buffered())
		}
		for _, c := range block {
			switch {
			case c >= '0' && c <= '9' || c >= 'a' && c <= 'f':
				if n < length {
					digits[n] = c
				}
				n++
			case n == length:
				delete(trees, digest.NewDigestFromEncoded(digest.SHA256, string(digits[:])))
				n = 0
			default:
				n = 0
			}
		}
		if end != nil {
			return nil
		}
		if _, err := reader.Discard(len(block)); err != nil {
			return err
		}
	}
}
