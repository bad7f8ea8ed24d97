package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

const (
	// shownPool is a directory next to the directories of the sessions, under a name that no session has,
	// with the texts that models were shown. Sessions have links to its files, so it can be emptied at any
	// time.
	shownPool = "~shown"

	// maxShown is how many bytes of shown texts a session keeps by default; maxShownFiles is how many texts
	// it keeps.
	maxShown      = 256 << 20
	maxShownFiles = 10_000

	// maxKnown is how many digests of kept texts a session remembers.
	maxKnown = 256
)

// KeepsShown returns how many bytes a session keeps of the texts that its model is shown; 0 if it keeps none.
func (st *Store) KeepsShown() int64 {
	if st.opts.ForgetShown {
		return 0
	}
	return st.opts.Shown
}

// Keep implements provenance.Writer. It syncs texts that are kept for the first time, and links to the
// ones that other sessions were shown.
func (st *Store) Keep(ctx context.Context, id string, data []byte) (digest.Digest, error) {
	if !provenance.ValidSessionID(id) {
		return "", fmt.Errorf("keep what is shown: %w: session id", provenance.ErrInvalid)
	}
	d := digest.FromBytes(data)
	err := st.with(ctx, id, func(s *session) error {
		if st.opts.ForgetShown || s.keptBefore(d) {
			return nil
		}
		return s.keep(d, data)
	})
	return d, err
}

// keptBefore reports whether the session is known to keep d.
func (s *session) keptBefore(d digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stopped && s.known[d]
}

func (s *session) noteKept(d digest.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxKnown {
		s.known = make(map[digest.Digest]bool)
	}
	s.known[d] = true
}

func (s *session) keep(d digest.Digest, data []byte) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.wg.Done()
	dir, err := s.openDir()
	if err != nil {
		return unavailable("keep what is shown", err)
	}
	defer dir.Close()
	name := provenance.ShownName(d)
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	if keeps(dir, name, data) {
		s.noteKept(d)
		return nil
	}
	if err := s.shown.count(dir, provenance.ShownDir); err != nil {
		return unavailable("count what was shown", err)
	}
	if s.shown.bytes+int64(len(data)) > s.opts.Shown || s.shown.files >= maxShownFiles {
		return nil
	}
	if err := s.linkShown(dir, name, d, data); err != nil {
		return unavailable("keep what is shown", err)
	}
	s.noteKept(d)
	s.shown.files++
	s.shown.bytes += int64(len(data))
	return nil
}

// keeps reports whether the session has a file of the length of data. Verify checks its bytes.
func keeps(dir *os.Root, name string, data []byte) bool {
	info, err := dir.Lstat(name)
	return err == nil && info.Mode().IsRegular() && info.Size() == int64(len(data))
}

// linkShown makes name a link to the pool's file, which it writes if it is not there. Where the file system
// has no links, the session has a file of its own.
func (s *session) linkShown(dir *os.Root, name string, d digest.Digest, data []byte) error {
	root := s.store.root
	pooled := path.Join(shownPool, d.Encoded())
	// The second try is for a session that has no directory of shown texts yet.
	for range 2 {
		if !holds(root, pooled, data) {
			break
		}
		err := root.Link(pooled, path.Join(s.id, name))
		if errors.Is(err, fs.ErrNotExist) {
			if err := dir.Mkdir(provenance.ShownDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			continue
		}
		if err == nil {
			return nil
		}
		break
	}
	if err := writeFile(dir, name, data, sharedMode); err != nil {
		return err
	}
	s.pool(name, pooled)
	return nil
}

// pool offers a file to other sessions. A failure only costs them a file each.
func (s *session) pool(name, pooled string) {
	root := s.store.root
	if err := root.Mkdir(shownPool, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return
	}
	_ = root.Remove(pooled)
	_ = root.Link(path.Join(s.id, name), pooled)
}

// holds reports whether a regular file has these bytes.
func holds(root *os.Root, name string, data []byte) bool {
	f, err := openRegular(root, name)
	if err != nil {
		return false
	}
	defer f.Close()
	buf := make([]byte, 32<<10)
	for len(data) > 0 {
		part := buf[:min(len(buf), len(data))]
		if _, err := io.ReadFull(f, part); err != nil || !bytes.Equal(part, data[:len(part)]) {
			return false
		}
		data = data[len(part):]
	}
	n, err := f.Read(buf[:1])
	return n == 0 && errors.Is(err, io.EOF)
}
