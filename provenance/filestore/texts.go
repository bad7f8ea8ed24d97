package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	// syncers is how many texts a store syncs at a time: a journal takes several together.
	syncers = 8

	// maxSynced is how many files of texts are remembered to be on stable storage.
	maxSynced = 10_000

	// syncRounds bounds how often texts are synced before the record waits for those that came meanwhile.
	syncRounds = 3
)

// unsyncedTexts are the files of what was shown, and those that a session begins with, that may not be on
// stable storage.
type unsyncedTexts struct {
	turn   sync.Mutex // held while some are synced; before mu
	rooted bool       // the directory of the texts is on stable storage; guarded by turn

	mu    sync.Mutex
	any   bool                     // the directory of the texts has a new name
	names []string                 // of the files
	sums  map[string]digest.Digest // of those that are no texts, where it is known
}

// syncedTexts are files that are on stable storage, which many sessions may have links to. A file that is
// written anew has another time.
type syncedTexts struct {
	places chan struct{} // holds a token for each that is being synced
	file   func(dir *os.Root, name string) error

	mu    sync.Mutex
	known map[syncedText]bool
	lost  map[syncedText]bool // files whose sync failed: the kernel may say of another that it succeeded
}

type syncedText struct {
	name string
	file fileID
	at   time.Time
}

// has reports whether a text is known to be on stable storage, and by what.
func (t *syncedTexts) has(name string, info fs.FileInfo) (text syncedText, known bool) {
	id, _ := identity(info)
	text = syncedText{name: name, file: id, at: info.ModTime()}
	t.mu.Lock()
	defer t.mu.Unlock()
	return text, t.known[text]
}

// note notes whether a file is on stable storage, which a session that has a link to it can rely on.
func (t *syncedTexts) note(text syncedText, synced bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !synced {
		if t.lost == nil {
			t.lost = make(map[syncedText]bool)
		}
		t.lost[text] = true
		return
	}
	if t.known == nil || len(t.known) >= maxSynced {
		t.known = make(map[syncedText]bool)
	}
	t.known[text] = true
}

// isLost reports whether a sync of a file has failed.
func (t *syncedTexts) isLost(name string, info fs.FileInfo) bool {
	text, _ := t.has(name, info)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost[text]
}

// syncText puts a file that was shown, or that the session begins with, on stable storage, if it is not known
// to be there. One that was removed or replaced is for Verify to find. After a failure the kernel may take
// the content for written: then it is written again, as another file.
func (s *session) syncText(dir *os.Root, name string) error {
	t := &s.store.synced
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, known := t.has(name, info)
	if known {
		return nil
	}
	t.places <- struct{}{}
	defer func() { <-t.places }()
	if !t.isLost(name, info) {
		err = t.file(dir, name)
		if errors.Is(err, provenance.ErrNotFound) || errors.Is(err, fsys.ErrNotRegular) {
			return nil
		}
		// Of a text only, other sessions may have the same file.
		if _, identified := identity(info); identified && (err != nil || path.Dir(name) != ".") {
			t.note(text, err == nil)
		}
		if err == nil {
			return nil
		}
	}
	s.unsynced.mu.Lock()
	sum := s.unsynced.sums[name]
	s.unsynced.mu.Unlock()
	if path.Dir(name) == provenance.ShownDir {
		sum = digest.NewDigestFromEncoded(digest.SHA256, path.Base(name))
		_ = s.store.root.Remove(path.Join(pool, path.Base(name))) // no other session gets a link to it
	}
	f, opened := openRegular(dir, name)
	if opened != nil {
		return errors.Join(err, opened)
	}
	data, read := readAll(f, name, maxShown)
	if read != nil || digest.FromBytes(data) != sum {
		return errors.Join(err, read, fmt.Errorf("%s is lost", name))
	}
	return fsys.WriteFileIn(dir, name, data, info.Mode().Perm())
}

// pooledTexts are the texts of the pool that this Store knows the bytes of.
type pooledTexts struct {
	mu    sync.Mutex
	dir   *openPool // nil: not open
	known map[digest.Digest]*pooledText
}

// openPool is the directory of the pool. It stays open, because each text of each session is a link to a
// file in it.
type openPool struct {
	*os.Root
	file *os.File // the same, for linkIn
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
	t.dir = nil // not closed: others may be using it
	dir, err := root.OpenRoot(pool)
	if err != nil {
		return
	}
	file, err := dir.Open(".")
	if err == nil {
		var info fs.FileInfo
		info, err = file.Stat()
		if err == nil {
			t.dir = &openPool{dir, file, info}
			return
		}
		file.Close()
	}
	dir.Close()
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
	info fs.FileInfo // when its bytes were known; nil: not known
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

// maxKept is how many texts a session remembers to keep: what is shown again costs no call of the system.
const maxKept = 256

// hasRoom reports whether the session may keep one more text. The caller holds shown.mu, and shown is
// counted.
func (s *session) hasRoom(data []byte) bool {
	return s.shown.bytes+int64(len(data)) <= s.opts.Shown && s.shown.files < maxShownFiles
}

// keepText keeps a text with nothing known and nothing open. The caller holds shown.mu.
func (s *session) keepText(dir *os.Root, d digest.Digest, data []byte) error {
	texts, err := dir.OpenRoot(provenance.ShownDir)
	if err == nil {
		defer texts.Close()
		// Verify checks the bytes.
		info, err := texts.Lstat(d.Encoded())
		if err == nil && info.Mode().IsRegular() && info.Size() == int64(len(data)) {
			s.keeps(d)
			return nil
		}
	}
	if err := s.shown.count(dir, provenance.ShownDir); err != nil {
		return err
	}
	if !s.hasRoom(data) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := dir.Mkdir(provenance.ShownDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		texts, err = dir.OpenRoot(provenance.ShownDir)
		if err == nil {
			defer texts.Close()
		}
	}
	if err != nil {
		return err
	}
	s.closeTexts()
	s.texts, err = texts.Open(".")
	if err != nil {
		return err
	}
	if !syncsLater {
		defer s.closeTexts() // an open directory could not be renamed
	}
	s.store.pooled.open(s.store.root)
	if s.linkText(d, data) == nil {
		return nil
	}
	if err := s.writeText(texts, d, data); err != nil {
		return err
	}
	s.addText(d, data, nil)
	return nil
}

// closeTexts closes the directory of the texts. The caller holds shown.mu.
func (s *session) closeTexts() {
	if s.texts != nil {
		s.texts.Close()
		s.texts = nil
	}
}

func (s *session) keeps(d digest.Digest) {
	if s.kept == nil || len(s.kept) >= maxKept {
		s.kept = make(map[digest.Digest]bool)
	}
	s.kept[d] = true
}

// addText notes that the session has a text, whose file is as info says; nil: it has just written it.
func (s *session) addText(d digest.Digest, data []byte, info fs.FileInfo) {
	s.keeps(d)
	s.shown.files++
	s.shown.bytes += int64(len(data))
	name := provenance.ShownName(d)
	if info != nil {
		if _, synced := s.store.synced.has(name, info); synced {
			s.unsynced.add()
			return
		}
	}
	s.unsynced.add(name)
}

// linkText gives the session, which does not have it, a link to a text of the pool. As in
// [session.linkAgain], a text that nobody touched since this Store knew its bytes is not read.
//
// The directories are those that were open. Whether the session still has its name is asked by the append of
// the event that names the text, see [session.intact], which comes before the answer; a directory of texts
// that another process put in the place of the open one lacks those of the last second, which Verify finds.
func (s *session) linkText(d digest.Digest, data []byte) error {
	text, dir := s.store.pooled.text(d)
	if dir == nil || s.texts == nil {
		return fs.ErrNotExist
	}
	text.mu.Lock() // until the link is made: it changes the file's time
	defer text.mu.Unlock()
	name := d.Encoded()
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	if text.info == nil || !untouched(text.info, info) {
		text.info = nil
		info, err = readPooled(dir.Root, name, data)
		if err != nil {
			return err
		}
	}
	if err := linkIn(dir.file, s.texts, name); err != nil {
		return err
	}
	// As in [session.linkTo].
	linked, err := dir.Lstat(name)
	if err == nil && !sameFile(info, linked) {
		err = errors.New("the file was changed or replaced")
	}
	if err != nil {
		return errors.Join(err, s.inDir("keep what is shown", func(own *os.Root) error {
			return own.Remove(provenance.ShownName(d))
		}))
	}
	text.info = linked
	s.addText(d, data, linked)
	return nil
}

// writeText writes a text of the session and offers it to other sessions.
func (s *session) writeText(texts *os.Root, d digest.Digest, data []byte) error {
	if err := writeUnsynced(texts, d.Encoded(), data, sharedMode); err != nil {
		return err
	}
	s.offer(provenance.ShownName(d), d, data)
	return nil
}

// add notes that the session has another text, and the names of files that were written, or linked to one
// that another session may just have written.
func (u *unsyncedTexts) add(names ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.any, u.names = true, append(u.names, names...)
}

// addFile adds a file that is not a text.
func (u *unsyncedTexts) addFile(name string, data []byte) {
	u.add(name)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sums == nil {
		u.sums = make(map[string]digest.Digest)
	}
	u.sums[name] = digest.FromBytes(data)
}

// addAll adds the files of a directory of the session.
func (u *unsyncedTexts) addAll(dir *os.Root, parent string) error {
	entries, err := fs.ReadDir(dir.FS(), parent)
	for _, en := range entries {
		if en.Type().IsRegular() {
			u.add(path.Join(parent, en.Name()))
		}
	}
	return err
}

func (u *unsyncedTexts) take() (names []string, some bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	names, some = u.names, u.any
	u.names, u.any = nil, false
	return names, some
}

// syncMost syncs texts until few are left, while events are recorded: the lines that name a text must not be
// on stable storage before it, so the record waits for those that are left.
func (s *session) syncMost() {
	for range syncRounds {
		s.unsynced.mu.Lock()
		left := s.unsynced.any
		s.unsynced.mu.Unlock()
		if !left || s.syncTexts() != nil {
			return
		}
	}
}

// syncTexts puts on stable storage what was shown, and what the session begins with. After an error the files
// remain to be synced.
func (s *session) syncTexts() error {
	u := &s.unsynced
	u.turn.Lock()
	defer u.turn.Unlock()
	names, some := u.take()
	if !some {
		return nil
	}
	if len(names) == 0 && u.rooted {
		if err := s.syncLinked(); !errors.Is(err, os.ErrClosed) {
			if err != nil {
				u.add()
				return unavailable("sync what was shown", err)
			}
			return nil
		}
	}
	there := false // the directory of the texts
	err := s.inDir("sync what was shown", func(dir *os.Root) error {
		errs := make([]error, syncers)
		var all sync.WaitGroup
		for i := range min(syncers, len(names)) {
			all.Go(func() {
				for at := i; at < len(names); at += syncers {
					errs[i] = errors.Join(errs[i], s.syncText(dir, names[at]))
				}
			})
		}
		all.Wait()
		err := fsys.SyncDir(dir, provenance.ShownDir)
		there = !errors.Is(err, fs.ErrNotExist)
		if there {
			errs = append(errs, err)
		}
		if !u.rooted || slices.ContainsFunc(names, func(name string) bool { return path.Dir(name) == "." }) {
			errs = append(errs, fsys.SyncDir(dir, "."))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		u.add(names...)
		return err
	}
	u.rooted = u.rooted || there
	return nil
}

// syncLinked puts the names of texts on stable storage where they were made. Whether the session still has
// that directory under its name is for [session.intact] to say.
//
// Errors: os.ErrClosed, if it is not open.
func (s *session) syncLinked() error {
	s.shown.mu.Lock()
	texts := s.texts
	s.shown.mu.Unlock()
	if texts == nil {
		return os.ErrClosed
	}
	return texts.Sync()
}

// writeUnsynced writes a file for syncFile.
func writeUnsynced(dir *os.Root, name string, data []byte, mode fs.FileMode) error {
	if !syncsLater {
		return fsys.WriteFileIn(dir, name, data, mode)
	}
	return fsys.WriteUnsyncedIn(dir, name, data, mode)
}

// syncFile puts the content of a file that writeUnsynced wrote on stable storage.
func syncFile(dir *os.Root, name string) error {
	if !syncsLater {
		return nil // it is
	}
	f, err := openRegular(dir, name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
