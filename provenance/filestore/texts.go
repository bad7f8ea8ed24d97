package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
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

// unsyncedTexts are the files of what was shown that may not be on stable storage.
type unsyncedTexts struct {
	turn   sync.Mutex // held while some are synced; before mu
	rooted bool       // the directory of the texts is on stable storage; guarded by turn

	mu    sync.Mutex
	names []string
}

// syncedTexts are files that are on stable storage, which many sessions may have links to. A file that is
// written anew has another time.
type syncedTexts struct {
	places chan struct{} // holds a token for each that is being synced

	mu    sync.Mutex
	known map[syncedText]bool
}

type syncedText struct {
	name string
	file fileID
	at   time.Time
}

// sync puts a text on stable storage, if it is not known to be there.
func (t *syncedTexts) sync(dir *os.Root, name string) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return syncText(dir, name)
	}
	text := syncedText{name: name, at: info.ModTime()}
	id, identified := identity(info)
	text.file = id
	t.mu.Lock()
	known := t.known[text]
	t.mu.Unlock()
	if known {
		return nil
	}
	t.places <- struct{}{}
	err = syncText(dir, name)
	<-t.places
	if err != nil || !identified {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxSynced {
		t.known = make(map[syncedText]bool)
	}
	t.known[text] = true
	return nil
}

// pooledTexts are the texts of the pool that this Store knows the bytes of.
type pooledTexts struct {
	mu    sync.Mutex
	known map[digest.Digest]*pooledText
}

type pooledText struct {
	mu   sync.Mutex
	info fs.FileInfo // when its bytes were known; nil: not known
}

func (t *pooledTexts) text(d digest.Digest) *pooledText {
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
	return text
}

// linkText gives the session, which does not have it, a link to a text of the pool. As in
// [session.linkAgain], a text that nobody touched since this Store knew its bytes is not read.
func (s *session) linkText(texts *os.Root, d digest.Digest, data []byte) error {
	text, name := s.store.pooled.text(d), path.Join(pool, d.Encoded())
	text.mu.Lock() // until the link is made: it changes the file's time
	defer text.mu.Unlock()
	info, err := s.store.root.Lstat(name)
	if err != nil {
		return err
	}
	if text.info == nil || !untouched(text.info, info) {
		text.info = nil
		if info, err = s.pooled(name, data); err != nil {
			return err
		}
	}
	if err := s.store.root.Link(name, path.Join(s.at(), provenance.ShownName(d))); err != nil {
		return err
	}
	// As in [session.linkTo].
	linked, err := texts.Lstat(d.Encoded())
	if err == nil && !sameFile(info, linked) {
		err = errors.New("the file was changed or replaced")
	}
	if err != nil {
		return errors.Join(err, texts.Remove(d.Encoded()))
	}
	text.info = linked
	return nil
}

// writeText writes a text of the session and offers it to other sessions.
func (s *session) writeText(texts *os.Root, d digest.Digest, data []byte) error {
	write := fsys.WriteUnsyncedIn
	if !syncsLater {
		write = fsys.WriteFileIn
	}
	if err := write(texts, d.Encoded(), data, sharedMode); err != nil {
		return err
	}
	s.offer(provenance.ShownName(d), d, data)
	return nil
}

// add notes that a file was written, or linked to one that another session may just have written.
func (u *unsyncedTexts) add(names ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names = append(u.names, names...)
}

func (u *unsyncedTexts) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	names := u.names
	u.names = nil
	return names
}

// syncMost syncs texts until few are left, while events are recorded: the lines that name a text must not be
// on stable storage before it, so the record waits for those that are left.
func (s *session) syncMost() {
	for range syncRounds {
		s.unsynced.mu.Lock()
		left := len(s.unsynced.names)
		s.unsynced.mu.Unlock()
		if left == 0 || s.syncTexts() != nil {
			return
		}
	}
}

// syncTexts puts on stable storage what was shown. After an error the texts remain to be synced.
func (s *session) syncTexts() error {
	u := &s.unsynced
	u.turn.Lock()
	defer u.turn.Unlock()
	names := u.take()
	if len(names) == 0 {
		return nil
	}
	err := s.inDir("sync what was shown", func(dir *os.Root) error {
		errs := make([]error, syncers)
		var all sync.WaitGroup
		for i := range min(syncers, len(names)) {
			all.Go(func() {
				for at := i; at < len(names); at += syncers {
					errs[i] = errors.Join(errs[i], s.store.synced.sync(dir, names[at]))
				}
			})
		}
		all.Wait()
		if err := fsys.SyncDir(dir, provenance.ShownDir); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		if !u.rooted {
			errs = append(errs, fsys.SyncDir(dir, "."))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		u.add(names...)
		return err
	}
	u.rooted = true
	return nil
}

// syncText syncs a text. One that was removed or replaced is for Verify to find.
func syncText(dir *os.Root, name string) error {
	err := syncFile(dir, name)
	if err == nil || errors.Is(err, provenance.ErrNotFound) || errors.Is(err, fsys.ErrNotRegular) {
		return nil
	}
	// After a failure the kernel may take the content for written, so it is written again.
	f, opened := openRegular(dir, name)
	if opened != nil {
		return errors.Join(err, opened)
	}
	data, read := readAll(f, name, maxShown)
	if read != nil || digest.FromBytes(data).Encoded() != path.Base(name) {
		return errors.Join(err, read, fmt.Errorf("%s is lost", name))
	}
	return fsys.WriteFileIn(dir, name, data, sharedMode)
}

// syncFile puts the content of a file on stable storage.
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
