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
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/content"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	// pool is a directory next to the session directories, under a name that no session can have, with texts
	// shown to models and large snapshots, such as the registry. Sessions have links to its files, so it can
	// be emptied at any time.
	pool = "~shown"

	// minShared is the smallest snapshot that is shared, in bytes; linking a smaller one saves too little.
	minShared = 16 << 10
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
		return s.inDir("put "+name, func(dir *os.Root) error {
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
	if err := w.checkEarlier(found); err != nil {
		return nil, err
	}
	sum, err := w.digestEqual(found, file)
	if err != nil {
		return nil, err
	}
	k := &sharedFile{pooled: pooled, size: w.size, digest: sum}
	k.info, err = s.linkTo(dir, name, pooled, info)
	return k, err
}

// checkEarlier returns an error if the time in found, where w wrote its time, is later than that time.
func (w *sharedWriter) checkEarlier(found io.ReaderAt) error {
	if w.time == nil {
		return nil
	}
	stamp := make([]byte, len(w.time))
	if _, err := found.ReadAt(stamp, w.timeAt); err != nil {
		return err
	}
	at, err := provenance.ParseTime(string(stamp))
	ours, errOurs := provenance.ParseTime(string(w.time))
	if err != nil || errOurs != nil || at.After(ours) {
		return errChanged
	}
	return nil
}

// digestEqual returns the digest of found, which must equal the file that w wrote except for the time.
func (w *sharedWriter) digestEqual(found, file io.ReaderAt) (digest.Digest, error) {
	whole := sha256.New()
	var theirs, ours [64 << 10]byte
	for at := int64(0); at < w.size; at += int64(len(ours)) {
		n := min(int64(len(ours)), w.size-at)
		if _, err := found.ReadAt(theirs[:n], at); err != nil {
			return "", err
		}
		if _, err := file.ReadAt(ours[:n], at); err != nil {
			return "", err
		}
		// The session gets their file, so the digest covers their time; the comparison ignores it.
		whole.Write(theirs[:n])
		for i := range w.time {
			if in := w.timeAt + int64(i) - at; in >= 0 && in < n {
				theirs[in] = ours[in]
			}
		}
		if !bytes.Equal(theirs[:n], ours[:n]) {
			return "", errChanged
		}
	}
	return digest.NewDigest(digest.SHA256, whole), nil
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

// share links name to the pool's file with these bytes. If the pool has none, or the file system has no
// links, it writes the file and offers it to other sessions. The content is on stable storage; the name is
// durable once its directory is synced.
func (s *session) share(dir *os.Root, name string, d digest.Digest, data []byte) error {
	// Another session may have just written the file. If it cannot be synced, it is written again.
	if s.link(dir, name, path.Join(pool, d.Encoded()), data) == nil && s.store.synced.file(dir, name) == nil {
		return nil
	}
	if err := dir.Mkdir(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := fsys.WriteFileIn(dir, name, data, sharedMode); err != nil {
		return err
	}
	s.offer(name, d, data)
	return nil
}

// offer links a file of the session into the pool. If that fails, other sessions write files of their own.
func (s *session) offer(name string, d digest.Digest, data []byte) {
	s.store.ledger.add(s.id, "", int64(len(data)), 0)
	root, own, pooled := s.store.root, path.Join(s.dirName(), name), path.Join(pool, d.Encoded())
	switch err := root.Link(own, pooled); {
	case errors.Is(err, fs.ErrNotExist):
		_ = root.Mkdir(pool, 0o700)
		_ = root.Link(own, pooled)
	case errors.Is(err, fs.ErrExist):
		// The file was changed, or has the maximum number of links.
		_ = root.Remove(pooled)
		_ = root.Link(own, pooled)
	}
}

// link links name to a file of the pool, which must have these bytes.
func (s *session) link(dir *os.Root, name, pooled string, data []byte) error {
	info, err := checkPooled(s.store.root, pooled, nil, hasBytes(data))
	if err != nil {
		return err
	}
	_, err = s.linkTo(dir, name, pooled, info)
	return err
}

// checkPooled checks that a file of the pool has the expected bytes, and returns its info as of before it was
// read. It does not read a file with the marks of known, the info as of when its bytes were known, or nil.
func checkPooled(
	root *os.Root, name string, known fs.FileInfo, has func(*os.File) error,
) (fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if mark := content.MarkOf(info); known != nil && mark != (content.Mark{}) &&
		mark == content.MarkOf(known) && sameFile(known, info) {
		return info, nil
	}
	f, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Another process may have replaced the file. A write after this is found once the file is linked.
	info, err = f.Stat()
	if err != nil {
		return nil, err
	}
	return info, has(f)
}

// hasBytes returns a function that reports an error if a file does not have these bytes.
func hasBytes(data []byte) func(*os.File) error {
	return func(f *os.File) error {
		// One byte more than data also finds a file that only begins with data.
		found := make([]byte, len(data)+1)
		if n, _ := io.ReadFull(f, found); !bytes.Equal(found[:n], data) {
			return errChanged
		}
		return nil
	}
}

// errChanged is the error of a file of the pool that does not have the expected bytes.
var errChanged = errors.New("the file was changed")

// errOtherFile is the error of a file that is not the one whose information was read.
var errOtherFile = errors.New("the file was changed or replaced")

// sameFile reports whether was and is describe one file that was not written in between.
func sameFile(was, is fs.FileInfo) bool {
	return os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime())
}

// linkTo links name to a file of the pool, if that is still the file that info describes. It returns the
// file's new info.
func (s *session) linkTo(dir *os.Root, name, pooled string, info fs.FileInfo) (fs.FileInfo, error) {
	// The new directory, like the link, may be lost in a crash: syncing it would delay the first text.
	if err := dir.Mkdir(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	// link(2) does not replace an existing name, so the link is made under another name and renamed.
	temp := path.Join(path.Dir(name), fsys.TempPrefix+rand.Text())
	if err := s.store.root.Link(pooled, path.Join(s.dirName(), temp)); err != nil {
		return nil, err
	}
	err := renameSame(dir, temp, name, info)
	// Renaming a file to another link to itself does nothing, so the temporary name may still exist.
	if removed := dir.Remove(temp); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return nil, err
	}
	// Making and renaming links has changed the ctime.
	return dir.Lstat(name)
}

// renameSame renames a file that is still the one that info describes: another process may have replaced or
// written it after info was read.
func renameSame(dir *os.Root, temp, name string, info fs.FileInfo) error {
	linked, err := dir.Lstat(temp)
	if err != nil {
		return err
	}
	if !sameFile(info, linked) {
		return errOtherFile
	}
	return dir.Rename(temp, name)
}

// pooledTexts are the texts of the pool with bytes known to this Store.
type pooledTexts struct {
	mu    sync.Mutex
	dir   *openPool // nil if not open
	known map[digest.Digest]*pooledText
}

// openPool is the directory of the pool. It stays open, because every text of every session is a link to a
// file in it.
type openPool struct {
	*os.Root
	file *os.File // the same directory, for linkIn
	info fs.FileInfo
}

// open opens the pool, unless it is open and still has its name.
func (t *pooledTexts) open(root *os.Root) {
	named, err := root.Lstat(pool)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dir != nil && err == nil && os.SameFile(named, t.dir.info) {
		return
	}
	// The earlier directory is not closed, because other goroutines may be using it.
	t.dir = nil
	dir, err := root.OpenRoot(pool)
	if err != nil {
		return
	}
	file, err := dir.Open(".")
	if err != nil {
		dir.Close()
		return
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		dir.Close()
		return
	}
	t.dir = &openPool{dir, file, info}
}

func (t *pooledTexts) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dir == nil {
		return nil
	}
	return errors.Join(t.dir.Close(), t.dir.file.Close())
}

type pooledText struct {
	mu   sync.Mutex
	info fs.FileInfo // as of when the bytes were known, or nil
}

func (t *pooledTexts) text(d digest.Digest) (*pooledText, *openPool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.known[d]
	if text == nil {
		if t.known == nil || len(t.known) >= maxSynced {
			t.known = make(map[digest.Digest]*pooledText)
		}
		text = &pooledText{}
		t.known[d] = text
	}
	return text, t.dir
}
