package filestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

var (
	_ provenance.Originals       = (*Store)(nil)
	_ provenance.OriginalsReader = (*reader)(nil)
)

const (
	// maxOriginals is the default limit for the originals of a session, in bytes.
	maxOriginals = 256 << 20
	// maxChanges is the maximum size of a list of changes, in bytes.
	maxChanges = 16 << 20
	// listSuffix ends the names of lists of changes. All other originals are contents of files.
	listSuffix = ".json"
)

// originals guards the originals of a session.
type originals struct {
	mu       sync.Mutex // held while the files are written
	unsynced []string   // names of the files that may not be on stable storage; no run relies on them yet
}

// originalName returns the name of a kept content.
func originalName(d digest.Digest) string { return path.Join(provenance.OriginalsDir, d.Encoded()) }

// RoomForOriginals implements provenance.Originals. The limits of the principal and the floor of free space
// apply as for other files.
func (st *Store) RoomForOriginals(ctx context.Context, id string, bytes int64) error {
	if bytes > st.opts.Originals {
		return unavailable("keep originals",
			fmt.Errorf("%d bytes are more than %d", bytes, st.opts.Originals))
	}
	if err := st.free(bytes); err != nil {
		return err
	}
	return st.with(ctx, id, func(s *session) error {
		principal := s.point().tally.Session.Principal
		if err := st.admit(ctx, principal, use{principal: principal, bytes: bytes}); err != nil {
			return err
		}
		return s.inDir("keep originals", func(dir *os.Root) error {
			s.originals.mu.Lock()
			defer s.originals.mu.Unlock()
			return s.dropOriginals(ctx, dir, st.opts.Originals-bytes)
		})
	})
}

// dropOriginals deletes the oldest originals until the rest has at most left bytes. A list is deleted with
// all the contents that no later list has, since a run is undone whole.
func (s *session) dropOriginals(ctx context.Context, dir *os.Root, left int64) error {
	entries, err := fs.ReadDir(dir.FS(), provenance.OriginalsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var infos []fs.FileInfo
	total := int64(0)
	for _, en := range entries {
		info, err := en.Info()
		if err != nil {
			return err
		}
		infos = append(infos, info)
		total += info.Size()
	}
	if total <= left {
		return nil
	}
	groups, err := keptTogether(ctx, dir, infos)
	if err != nil {
		return err
	}
	for _, group := range groups {
		if total <= left {
			break
		}
		// The list is the first of its group: after an error, no list names contents that are gone.
		for _, info := range group {
			if err := dir.Remove(path.Join(provenance.OriginalsDir, info.Name())); err != nil {
				return err
			}
			total -= info.Size()
			s.store.ledger.add(s.id, "", -info.Size(), 0)
		}
	}
	return nil
}

// keptTogether groups originals, the oldest first: each list with the contents that no later list has, and
// each content that is in no list, such as one of a run that has not ended. The list is the first of its
// group.
func keptTogether(
	ctx context.Context, dir *os.Root, infos []fs.FileInfo,
) (groups [][]fs.FileInfo, err error) {
	contents, unlisted := map[digest.Digest]fs.FileInfo{}, map[digest.Digest]bool{}
	for _, info := range infos {
		d := digest.NewDigestFromEncoded(digest.SHA256, info.Name())
		switch {
		case strings.HasSuffix(info.Name(), listSuffix):
		case d.Validate() == nil:
			contents[d], unlisted[d] = info, true
		default:
			groups = append(groups, []fs.FileInfo{info})
		}
	}
	// The latest list is first, so that it gets the contents that several lists have.
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, list := range infos {
		if !strings.HasSuffix(list.Name(), listSuffix) {
			continue
		}
		before := maps.Clone(unlisted)
		f, err := openRegular(dir, path.Join(provenance.OriginalsDir, list.Name()))
		if err != nil {
			return nil, err
		}
		err = errors.Join(provenance.DropDigests(ctx, f, unlisted), f.Close())
		if err != nil {
			return nil, err
		}
		group := []fs.FileInfo{list}
		for d := range before {
			if !unlisted[d] {
				group = append(group, contents[d])
			}
		}
		groups = append(groups, group)
	}
	for d := range unlisted {
		groups = append(groups, []fs.FileInfo{contents[d]})
	}
	slices.SortFunc(groups, func(a, b []fs.FileInfo) int { return a[0].ModTime().Compare(b[0].ModTime()) })
	return groups, nil
}

// KeepOriginal implements provenance.Originals. Equal contents are stored once.
func (st *Store) KeepOriginal(
	ctx context.Context, id string, content io.Reader,
) (d digest.Digest, err error) {
	err = st.with(ctx, id, func(s *session) error {
		return s.inDir("keep original", func(dir *os.Root) error {
			s.originals.mu.Lock()
			defer s.originals.mu.Unlock()
			d, err = s.writeOriginal(dir, content, "")
			return err
		})
	})
	return d, err
}

// writeOriginal writes a file named by its digest, without syncing it.
func (s *session) writeOriginal(dir *os.Root, content io.Reader, suffix string) (digest.Digest, error) {
	if err := makeDir(dir, provenance.OriginalsDir); err != nil {
		return "", err
	}
	temp := path.Join(provenance.OriginalsDir, fsys.TempPrefix+rand.Text())
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return "", err
	}
	sum := digest.SHA256.Digester()
	size, err := io.Copy(io.MultiWriter(f, sum.Hash()), content)
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", errors.Join(err, dir.Remove(temp))
	}
	// The times that the system sets have steps of milliseconds: files of two runs could have the same.
	now := time.Now()
	if err := dir.Chtimes(temp, now, now); err != nil {
		return "", errors.Join(err, dir.Remove(temp))
	}
	name := originalName(sum.Digest()) + suffix
	if fsys.ExistsIn(dir, name) {
		size = 0
	}
	// An older equal file is replaced, so that it is not among the oldest.
	if err := dir.Rename(temp, name); err != nil {
		return "", errors.Join(err, dir.Remove(temp))
	}
	s.store.ledger.add(s.id, "", size, 0)
	s.originals.unsynced = append(s.originals.unsynced, name)
	return sum.Digest(), nil
}

// KeepChanges implements provenance.Originals.
func (st *Store) KeepChanges(
	ctx context.Context, id string, list []byte, earlier digest.Digest,
) (d digest.Digest, err error) {
	if len(list) > maxChanges {
		return "", fmt.Errorf("keep changes: %w: %d bytes", provenance.ErrInvalid, len(list))
	}
	err = st.with(ctx, id, func(s *session) error {
		return s.inDir("keep changes", func(dir *os.Root) error {
			s.originals.mu.Lock()
			defer s.originals.mu.Unlock()
			if list != nil {
				d, err = s.writeOriginal(dir, bytes.NewReader(list), listSuffix)
				if err != nil {
					return err
				}
				if err := s.syncOriginals(dir); err != nil {
					return err
				}
			}
			// The earlier list is removed last, so that a crash leaves at least one of them.
			if earlier == "" || earlier == d {
				return nil
			}
			return dir.Remove(originalName(earlier) + listSuffix)
		})
	})
	return d, err
}

// syncOriginals syncs the written originals and their directory. After an error, the next call syncs all of
// them again.
func (s *session) syncOriginals(dir *os.Root) error {
	err := syncAll(s.originals.unsynced, func(name string) error { return syncFile(dir, name) })
	if err != nil {
		return err
	}
	if err := fsys.SyncDir(dir, provenance.OriginalsDir); err != nil {
		return err
	}
	s.originals.unsynced = nil
	return nil
}

// Original implements provenance.OriginalsReader.
func (r *reader) Original(_ context.Context, id string, d digest.Digest) (io.ReadCloser, error) {
	if d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("open original: %w", provenance.ErrNotFound)
	}
	dir, err := r.session(id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openRegular(dir, originalName(d))
}

// Changes implements provenance.OriginalsReader.
func (r *reader) Changes(_ context.Context, id string) (map[digest.Digest][]byte, error) {
	dir, err := r.session(id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := fs.ReadDir(dir.FS(), provenance.OriginalsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list changes of session %s: %w", id, cause(err))
	}
	lists := map[digest.Digest][]byte{}
	for _, en := range entries {
		hex, list := strings.CutSuffix(en.Name(), listSuffix)
		d := digest.NewDigestFromEncoded(digest.SHA256, hex)
		if !list || d.Validate() != nil {
			continue
		}
		name := path.Join(provenance.OriginalsDir, en.Name())
		f, err := openRegular(dir, name)
		if errors.Is(err, provenance.ErrNotFound) {
			// A server has just replaced it.
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s of session %s: %w", name, id, err)
		}
		data, err := readAll(f, name, maxChanges)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", id, err)
		}
		// An undo must not follow a list that was changed. checkOriginals reports such a list.
		if digest.FromBytes(data) == d {
			lists[d] = data
		}
	}
	return lists, nil
}

// checkOriginals compares each original with the digest in its name. An original that was removed meanwhile
// made room for a later one, and is no difference.
func (v *verifier) checkOriginals() error {
	entries, err := fs.ReadDir(v.dir.FS(), provenance.OriginalsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list %s: %w", provenance.OriginalsDir, cause(err))
	}
	for _, en := range entries {
		name := path.Join(provenance.OriginalsDir, en.Name())
		if strings.HasPrefix(en.Name(), fsys.TempPrefix) {
			continue
		}
		d := digest.NewDigestFromEncoded(digest.SHA256, strings.TrimSuffix(en.Name(), listSuffix))
		if d.Validate() != nil {
			v.report.Unrecorded = append(v.report.Unrecorded, name)
			continue
		}
		err := v.checkFile(provenance.File{Name: name, Size: -1, Digest: d})
		if gone, ok := errors.AsType[*provenance.VerifyError](err); ok && gone.What == "missing" {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
