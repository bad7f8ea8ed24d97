package filestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	// minShared is the size in bytes from which a file is shared; a link to a smaller one saves too little.
	minShared = 16 << 10

	// maxShares is how many contents are remembered. Sessions of the same time have the same snapshots, so
	// a few are enough.
	maxShares = 16
)

// shares remembers files that another session can have as a hard link. It is safe for concurrent
// use.
type shares struct {
	mu    sync.Mutex
	known []share // the newest last
}

// share is a file of a session, by content.
type share struct {
	session string
	provenance.File
}

// shareable reports whether sessions share a file. They share large ones except outputs, which differ, and
// which deleting a session must delete.
func shareable(f provenance.File) bool {
	return f.Size >= minShared && !strings.HasPrefix(f.Name, provenance.OutputsDir+"/")
}

// write makes f a link to a file with the same content, or writes f if no such file can be linked to.
// Writers wait for each other: of two writers of the same content, the second finds the file of the first.
func (sh *shares) write(s *session, dir *os.Root, f provenance.File, data []byte) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i, k := range sh.known {
		if k.Digest != f.Digest {
			continue
		}
		if linkFile(s.store.root, k, s.id, dir, f) == nil {
			return nil
		}
		// The file is gone or changed, has too many links or is on another device.
		sh.known = append(sh.known[:i], sh.known[i+1:]...)
		break
	}
	if err := writeFile(dir, f.Name, data, sharedMode); err != nil {
		return err
	}
	if len(sh.known) == maxShares {
		sh.known = sh.known[1:]
	}
	sh.known = append(sh.known, share{s.id, f})
	return nil
}

// linkFile replaces f in dir, the directory of session id, by a link to k, after reading k: it may have been
// changed. After a crash, f is the old file or the new one.
func linkFile(root *os.Root, k share, id string, dir *os.Root, f provenance.File) error {
	info, err := checkShare(root, k)
	if err != nil {
		return err
	}
	temp := fsys.TempPrefix + rand.Text()
	if err := root.Link(path.Join(k.session, k.Name), path.Join(id, temp)); err != nil {
		return err
	}
	// Another process may have replaced the file after it was read.
	linked, err := dir.Lstat(temp)
	if err == nil && !os.SameFile(info, linked) {
		err = errors.New("the file was replaced")
	}
	if err == nil {
		err = dir.Rename(temp, f.Name)
	}
	// Renaming a file to another link to itself does nothing, so the temporary name may still be there.
	if removed := dir.Remove(temp); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return err
	}
	return fsys.SyncDir(dir, ".")
}

// checkShare returns the file info of k if it still has the bytes that were put there.
func checkShare(root *os.Root, k share) (os.FileInfo, error) {
	dir, err := openSession(root, k.session)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := openRegular(dir, k.Name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := digest.SHA256.Digester()
	// One byte more than the size shows that the file has grown.
	size, err := io.Copy(d.Hash(), io.LimitReader(f, k.Size+1))
	if err != nil || size != k.Size || d.Digest() != k.Digest {
		return nil, errors.Join(fmt.Errorf("%s of session %s changed", k.Name, k.session), err)
	}
	return f.Stat()
}
