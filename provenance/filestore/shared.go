package filestore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// sharedPrefix begins the pool names of files written by PutShared. The digest of the content without its
// time follows, so that a later server finds the file of an earlier one.
const sharedPrefix = "common-"

// sharedFile is the state that a Store keeps about a [provenance.Shared].
type sharedFile struct {
	pooled string // its name in the pool, or empty
	size   int64
	digest digest.Digest
	info   fs.FileInfo // as of when its bytes were known
}

// PutShared implements provenance.Writer. It links the pool's file into the session, or writes the file and
// offers it to other sessions. A file that is unchanged since this Store knew its bytes is linked without
// being read: the owner of the records could also change it afterwards, and Verify finds both.
func (st *Store) PutShared(
	ctx context.Context, id, name string, c *provenance.Shared,
) (f provenance.File, err error) {
	if !provenance.ValidSessionID(id) {
		return f, fmt.Errorf("put %.60q: %w: session id", name, provenance.ErrInvalid)
	}
	if err := provenance.CheckFileName(name); err != nil {
		return f, fmt.Errorf("put: %w", err)
	}
	if strings.Contains(name, "/") {
		return f, fmt.Errorf("put %s: %w: outputs are not shared", name, provenance.ErrInvalid)
	}
	c.Lock()
	defer c.Unlock()
	err = st.with(ctx, id, func(s *session) error {
		return s.use("put "+name, func(dir *os.Root) error {
			kept, _ := c.Kept.(*sharedFile)
			if kept == nil || s.linkAgain(dir, name, kept) != nil {
				kept, err = s.writeShared(dir, name, c)
				if err != nil {
					return err
				}
				c.Kept = kept
			}
			f = provenance.File{Name: name, Size: kept.size, Digest: kept.digest}
			return fsys.SyncDir(dir, ".")
		})
	})
	if err != nil {
		return provenance.File{}, err
	}
	return f, nil
}

// linkAgain links name to a file that an earlier session wrote. It reads the file if that was changed since.
func (s *session) linkAgain(dir *os.Root, name string, k *sharedFile) error {
	known := k.info
	if known.Size() != k.size {
		// The file changed while this Store wrote it.
		known = nil
	}
	info, err := checkPooled(s.store.root, k.pooled, known, func(f *os.File) error {
		found, err := digest.FromReader(io.LimitReader(f, k.size+1))
		if err != nil || found != k.digest {
			return errors.Join(errChanged, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	linked, err := s.linkTo(dir, name, k.pooled, info)
	if err != nil {
		return err
	}
	k.info = linked
	return nil
}

// writeShared writes a file of the session, or links name to an equal file of the pool. After a crash, name
// is the old file or the new one.
func (s *session) writeShared(dir *os.Root, name string, c *provenance.Shared) (_ *sharedFile, err error) {
	root, temp := s.store.root, fsys.TempPrefix+rand.Text()
	file, err := dir.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if gone := dir.Remove(temp); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	w := &sharedWriter{out: bufio.NewWriterSize(file, 64<<10), whole: sha256.New(), timeless: sha256.New()}
	if err := errors.Join(c.Write(w, w.made), w.out.Flush()); err != nil {
		return nil, err
	}
	k := &sharedFile{size: w.size, digest: digest.NewDigest(digest.SHA256, w.whole),
		pooled: path.Join(pool, sharedPrefix+digest.NewDigest(digest.SHA256, w.timeless).Encoded())}
	for synced := false; ; synced = true {
		found, err := s.linkEqual(dir, name, k.pooled, file, w)
		if err == nil {
			return found, nil
		}
		if synced {
			break
		}
		// A file is synced before it enters the pool, because other sessions rely on its content.
		if err := errors.Join(file.Chmod(sharedMode), file.Sync()); err != nil {
			return nil, err
		}
		if !errors.Is(err, provenance.ErrNotFound) {
			// The file was changed, or has the maximum number of links.
			_ = root.Remove(k.pooled)
		}
		if err := root.Mkdir(pool, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			break
		}
		// If two servers write the same content at once, the second uses the first one's file. After any
		// other failure, sessions write files of their own.
		if !errors.Is(root.Link(path.Join(s.dirName(), temp), k.pooled), fs.ErrExist) {
			break
		}
	}
	if err := dir.Rename(temp, name); err != nil {
		return nil, err
	}
	k.info, err = dir.Lstat(name)
	return k, err
}

// linkEqual links name to a file of the pool if that equals the content that w wrote to file, except for an
// earlier time.
func (s *session) linkEqual(
	dir *os.Root, name, pooled string, file *os.File, w *sharedWriter,
) (*sharedFile, error) {
	found, err := openRegular(s.store.root, pooled)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	info, err := found.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != w.size {
		return nil, errChanged
	}
	if w.time != nil {
		stamp := make([]byte, len(w.time))
		if _, err := found.ReadAt(stamp, w.timeAt); err != nil {
			return nil, err
		}
		at, err := provenance.ParseTime(string(stamp))
		ours, errOurs := provenance.ParseTime(string(w.time))
		if err != nil || errOurs != nil || at.After(ours) {
			return nil, errChanged
		}
	}
	whole := sha256.New()
	var theirs, ours [64 << 10]byte
	for at := int64(0); at < w.size; at += int64(len(ours)) {
		n := min(int64(len(ours)), w.size-at)
		if _, err := found.ReadAt(theirs[:n], at); err != nil {
			return nil, err
		}
		if _, err := file.ReadAt(ours[:n], at); err != nil {
			return nil, err
		}
		// The session gets their file, so the digest covers their time; the comparison ignores it.
		whole.Write(theirs[:n])
		for i := range w.time {
			if in := w.timeAt + int64(i) - at; in >= 0 && in < n {
				theirs[in] = ours[in]
			}
		}
		if !bytes.Equal(theirs[:n], ours[:n]) {
			return nil, errChanged
		}
	}
	k := &sharedFile{pooled: pooled, size: w.size, digest: digest.NewDigest(digest.SHA256, whole)}
	k.info, err = s.linkTo(dir, name, pooled, info)
	return k, err
}

// sharedWriter writes the content of PutShared and computes its digests.
type sharedWriter struct {
	out             *bufio.Writer
	whole, timeless hash.Hash
	size            int64
	time            []byte // as written; nil before made is called
	timeAt          int64  // offset of time
}

func (w *sharedWriter) Write(p []byte) (int, error) {
	w.timeless.Write(p)
	return w.write(p)
}

func (w *sharedWriter) write(p []byte) (int, error) {
	w.whole.Write(p)
	w.size += int64(len(p))
	return w.out.Write(p)
}

// made writes the time at which the content was created.
func (w *sharedWriter) made(at time.Time) error {
	if w.time != nil {
		return errors.New("shared content has one time")
	}
	w.time, w.timeAt = []byte(provenance.FormatTime(at)), w.size
	_, err := w.write(w.time)
	return err
}
