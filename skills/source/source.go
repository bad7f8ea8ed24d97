// Package source serves skills that do not lie in a directory: [Zip] reads an archive in place, [FS] any
// [fs.FS]. Both are a [skills.Source], which a [skills.Root] takes as its FS; an implementation for something
// remote follows the contract there. Nothing is extracted: a scan, a read and a check for drift read the
// archive, and only a tree that is executed is copied, to the store, with every digest checked on the way.
//
// A zip archive is used only if it follows the rules of package archive, which are checked whenever the file
// changed.
//
// # Limits
//
// The package does not look for archives: it reads archives that it is given, and none that lies in
// another. It does not guard against an [fs.FS] that blocks or panics, nor against programs that may
// write the archive.
package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/skillsd/skillsd/skills"
)

// Limits of the tree that Version of [FS] reads, in files and bytes.
const (
	maxFiles = 100_000
	maxTotal = 4 << 30
)

// tree is an fs.FS that does not change.
type tree struct {
	fs.FS
	origin string

	mu      sync.Mutex
	version string // empty until the first call of Version
}

// FS returns the source of a tree that does not change while it is served, such as an [embed.FS]. If it does
// change, reads notice it, but Version does not. origin is as in [skills.Source].
//
// Its Version reads every file, once. It fails for more than 100,000 files and directories, for more than 4
// GiB, and for an entry that is neither a file nor a directory.
//
// For a directory of this machine use a root without FS: os.DirFS follows links out of it.
func FS(fsys fs.FS, origin string) skills.Source { return &tree{FS: fsys, origin: origin} }

// Origin returns the origin.
func (t *tree) Origin() string { return t.origin }

// Pin returns the tree itself.
func (t *tree) Pin() (fs.FS, error) { return t.FS, nil }

// Version returns a digest of all names, executable bits and bytes.
func (t *tree) Version(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.version != "" {
		return t.version, nil
	}
	sum := sha256.New()
	files, left := 0, int64(maxTotal)
	err := fs.WalkDir(t.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		err = ctx.Err()
		if err != nil {
			return err
		}
		files++
		if files > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		if entry.IsDir() {
			fmt.Fprintf(sum, "%q\n", name+"/")
			return nil
		}
		info, err := fs.Stat(t.FS, name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%q is neither a file nor a directory", name)
		}
		file, err := t.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		content := sha256.New()
		n, err := io.Copy(content, io.LimitReader(file, left+1))
		if err != nil {
			return err
		}
		left -= n
		if left < 0 {
			return errors.New("the tree is too large")
		}
		// One line with a digest for each file: no two lists of files give the same bytes.
		fmt.Fprintf(sum, "%q %t %x\n", name, info.Mode()&0o111 != 0, content.Sum(nil))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", t.origin, err)
	}
	// Failures are not kept, so that a canceled call does not fail the source for good.
	t.version = fmt.Sprintf("sha256:%x", sum.Sum(nil))
	return t.version, nil
}
