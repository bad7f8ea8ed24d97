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
	// shownPool is the directory, beside those of the sessions and no session's name, of the bytes
	// that models were shown. Sessions have links of its files, so it can be emptied at any time.
	shownPool = "~shown"

	// maxShown is how many bytes a session keeps of what was shown by default, maxShownFiles how many
	// files.
	maxShown      = 256 << 20
	maxShownFiles = 10_000

	// maxKnown is how many digests a session remembers to have kept.
	maxKnown = 256
)

// KeepsShown is how many bytes of what its model is shown a session keeps; 0 when none are.
func (st *Store) KeepsShown() int64 {
	if st.opts.ForgetShown {
		return 0
	}
	return st.opts.Shown
}

// Keep implements provenance.Writer. Bytes that are kept for the first time are synced; what other
// sessions were shown is linked.
func (st *Store) Keep(ctx context.Context, session string, data []byte) (digest.Digest, error) {
	if !provenance.ValidSessionID(session) {
		return "", fmt.Errorf("keep what is shown: %w: session id", provenance.ErrInvalid)
	}
	d := digest.FromBytes(data)
	for {
		s, err := st.open(ctx, session)
		if err != nil {
			return "", err
		}
		if st.opts.ForgetShown {
			return d, nil
		}
		if s.keptBefore(d) {
			return d, nil
		}
		err = s.keep(d, data)
		if errors.Is(err, errReleased) {
			<-s.released
			continue
		}
		return d, err
	}
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

// keeps reports whether the session has the file. That it holds the bytes is for Verify to see.
func keeps(dir *os.Root, name string, data []byte) bool {
	info, err := dir.Lstat(name)
	return err == nil && info.Mode().IsRegular() && info.Size() == int64(len(data))
}

// linkShown makes name a link of the pool's file, which is written when it is not there. Where the
// file system has no links the session has a file of its own.
func (s *session) linkShown(dir *os.Root, name string, d digest.Digest, data []byte) error {
	root := s.store.root
	pooled := path.Join(shownPool, d.Encoded())
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

// pool offers a file to other sessions. That it cannot costs them a file each and nothing else.
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
