package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	// maxShown is the default limit for the shown texts of a session, in bytes; maxShownFiles limits their
	// number.
	maxShown      = 256 << 20
	maxShownFiles = 10_000

	// syncers is how many files a session, or texts a store, syncs concurrently; one journal commit then
	// covers several.
	syncers = 8

	// maxSynced is how many synced files the store remembers.
	maxSynced = 10_000

	// syncRounds bounds how often texts are synced before the record waits for texts that arrived meanwhile.
	syncRounds = 3
)

// maxKept is how many kept texts a session remembers. Showing one of them again costs no system call.
const maxKept = 256

// KeepsShown returns the limit for the shown texts of a session, in bytes; 0 if none are kept.
func (st *Store) KeepsShown() int64 {
	if st.opts.ForgetShown {
		return 0
	}
	return st.opts.Shown
}

// Keep implements provenance.Writer. The text is synced together with the event that names it, and before it.
func (st *Store) Keep(ctx context.Context, id string, data []byte) (digest.Digest, error) {
	if !provenance.ValidSessionID(id) {
		return "", fmt.Errorf("keep shown text: %w: session id", provenance.ErrInvalid)
	}
	d := digest.FromBytes(data)
	err := st.with(ctx, id, func(s *session) error {
		if st.opts.ForgetShown {
			return nil
		}
		s.shown.mu.Lock()
		defer s.shown.mu.Unlock()
		if s.kept[d] {
			// Verify reports a text that was removed since.
			return nil
		}
		if s.shown.counted && s.hasRoom(data) && s.linkText(d, data) == nil {
			return nil
		}
		return s.inDir("keep shown text", func(dir *os.Root) error { return s.keepText(dir, d, data) })
	})
	return d, err
}

// hasRoom reports whether the session may keep another text. The caller holds shown.mu and has called
// shown.count.
func (s *session) hasRoom(data []byte) bool {
	return s.shown.bytes+int64(len(data)) <= s.opts.Shown && s.shown.files < maxShownFiles
}

// keepText keeps a text without relying on earlier state: neither counts nor open directories. The caller
// holds shown.mu.
func (s *session) keepText(dir *os.Root, d digest.Digest, data []byte) error {
	texts, err := dir.OpenRoot(provenance.ShownDir)
	if err == nil {
		defer texts.Close()
		// The size is enough here; Verify checks the bytes.
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
	return s.keepIn(texts, d, data)
}

// keepIn links a text of the pool into the directory of the session's texts, which then stays open, or writes
// the text there. The caller holds shown.mu.
func (s *session) keepIn(texts *os.Root, d digest.Digest, data []byte) (err error) {
	s.closeTexts()
	s.texts, err = texts.Open(".")
	if err != nil {
		return err
	}
	if !syncsLater {
		// On these systems, an open directory cannot be renamed.
		defer s.closeTexts()
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

// linkText links a text of the pool into the session, which does not have the text yet. As in
// [session.linkAgain], a file that is unchanged since this Store knew its bytes is not read.
//
// linkText uses directories that were opened earlier. Append checks whether the session still has its name,
// see [session.intact], when it records the event that names the text, which is before the answer. If another
// process replaced the directory of texts, the new one lacks the texts of the last second, and Verify reports
// them missing.
func (s *session) linkText(d digest.Digest, data []byte) error {
	text, dir := s.store.pooled.text(d)
	if dir == nil || s.texts == nil {
		return fs.ErrNotExist
	}
	// Linking changes the ctime of the file, so the lock is held until the link exists.
	text.mu.Lock()
	defer text.mu.Unlock()
	name := d.Encoded()
	info, err := checkPooled(dir.Root, name, text.info, hasBytes(data))
	if err != nil {
		text.info = nil
		return err
	}
	if err := linkIn(dir.file, s.texts, name); err != nil {
		return err
	}
	// The file may have changed before it was linked, as in [session.linkTo].
	linked, err := dir.Lstat(name)
	if err != nil || !sameFile(info, linked) {
		return errors.Join(cmp.Or(err, errOtherFile), s.inDir("keep what is shown", func(own *os.Root) error {
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

// addText records that the session has a text. info describes its file, or is nil if it was just written.
func (s *session) addText(d digest.Digest, data []byte, info fs.FileInfo) {
	s.keeps(d)
	s.shown.files++
	s.shown.bytes += int64(len(data))
	name := provenance.ShownName(d)
	if info != nil {
		if s.store.synced.has(keyOf(name, info)) {
			s.unsynced.add()
			return
		}
	}
	s.unsynced.add(name)
}

// keeps remembers that the session has a text.
func (s *session) keeps(d digest.Digest) {
	if s.kept == nil || len(s.kept) >= maxKept {
		s.kept = make(map[digest.Digest]bool)
	}
	s.kept[d] = true
}

// closeTexts closes the directory of the texts. The caller holds shown.mu.
func (s *session) closeTexts() {
	if s.texts != nil {
		s.texts.Close()
		s.texts = nil
	}
}

// unsyncedTexts are the shown texts, and the first files of a session, that may not be on stable storage.
type unsyncedTexts struct {
	turn   sync.Mutex // held during a sync; acquired before mu
	rooted bool       // the directory of the texts is synced; guarded by turn

	mu    sync.Mutex
	any   bool                     // the directory of the texts has a new entry
	names []string                 // names of unsynced files
	sums  map[string]digest.Digest // digests of unsynced files other than texts, if known
}

// add records that the directory of the texts changed, and the names of files that may not be synced: files
// just written, or links to files that another session may just have written.
func (u *unsyncedTexts) add(names ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.any, u.names = true, append(u.names, names...)
}

// addFile adds a file other than a text.
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

// syncMost syncs texts until few are left, while events are being recorded. Lines must not be on stable
// storage before the texts they name, so the record then waits for the remaining texts.
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

// syncTexts syncs the shown texts and the first files of the session. After an error, the files stay in
// unsynced.
func (s *session) syncTexts() error {
	u := &s.unsynced
	u.turn.Lock()
	defer u.turn.Unlock()
	u.mu.Lock()
	names, some := u.names, u.any
	u.names, u.any = nil, false
	u.mu.Unlock()
	if !some {
		return nil
	}
	// Only links are new. Opening the directories by name again would cost 12 system calls for one fsync.
	if len(names) == 0 && u.rooted {
		if err := s.syncLinked(); !errors.Is(err, os.ErrClosed) {
			if err != nil {
				u.add()
				return unavailable("sync what was shown", err)
			}
			return nil
		}
	}
	there := false // the directory of the texts exists
	err := s.inDir("sync what was shown", func(dir *os.Root) error {
		errs := []error{syncAll(names, func(name string) error { return s.syncText(dir, name) })}
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

// syncAll calls sync for each file, for up to syncers at a time, and returns the first error.
func syncAll(names []string, sync func(name string) error) error {
	var g errgroup.Group
	g.SetLimit(syncers)
	for _, name := range names {
		g.Go(func() error { return sync(name) })
	}
	return g.Wait()
}

// syncText syncs a shown text, or a first file of the session, unless that is known to be done. It ignores a
// file that was removed or replaced; Verify reports it. After a failed sync the kernel may report the pages
// as written, so syncText writes the content again, to a new file.
func (s *session) syncText(dir *os.Root, name string) error {
	t := &s.store.synced
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text := keyOf(name, info)
	if t.has(text) {
		return nil
	}
	t.tokens <- struct{}{}
	defer func() { <-t.tokens }()
	if !t.isLost(text) {
		err = t.file(dir, name)
		if errors.Is(err, provenance.ErrNotFound) || errors.Is(err, fsys.ErrNotRegular) {
			return nil
		}
		// Only a text may be shared with other sessions.
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
		// Without its name in the pool, the file gets no new links.
		_ = s.store.root.Remove(path.Join(pool, path.Base(name)))
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

// syncLinked syncs the directory entries of texts, in the directory where they were created. [session.intact]
// checks whether that directory is still the session's.
//
// Errors: os.ErrClosed if the directory is not open.
func (s *session) syncLinked() error {
	s.shown.mu.Lock()
	texts := s.texts
	s.shown.mu.Unlock()
	if texts == nil {
		return os.ErrClosed
	}
	return texts.Sync()
}

// syncedTexts are files on stable storage to which many sessions may have links. The modification time
// distinguishes a rewritten file.
type syncedTexts struct {
	tokens chan struct{} // holds a token for each sync in progress
	file   func(dir *os.Root, name string) error

	mu    sync.Mutex
	known map[syncedText]bool
	lost  map[syncedText]bool // files whose sync failed; the kernel may report success for the next
}

type syncedText struct {
	name string
	file fileID
	at   time.Time
}

// keyOf returns the key of a file.
func keyOf(name string, info fs.FileInfo) syncedText {
	id, _ := identity(info)
	return syncedText{name: name, file: id, at: info.ModTime()}
}

// has reports whether a file is known to be synced.
func (t *syncedTexts) has(text syncedText) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[text]
}

// note records whether a file was synced. Sessions with a link to the file rely on it.
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

// isLost reports whether a sync of the file has failed.
func (t *syncedTexts) isLost(text syncedText) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost[text]
}
