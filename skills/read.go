package skills

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/signal"
	"github.com/skillsd/skillsd/skills/store"
)

// Content is the current content of a file.
type Content struct {
	Data    []byte
	Digest  digest.Digest // digest of Data
	Size    int64         // length of Data
	Matches bool          // Data has the digest of the snapshot
}

// DriftError reports a file on disk that differs from the index.
type DriftError struct {
	Want, Got digest.Digest // digests; Got is empty if the file is gone, Want if it is not indexed
	Path      string        // relative to the skill
}

func (e *DriftError) Error() string {
	switch {
	case e.Got == "":
		return fmt.Sprintf("%s is gone or cannot be read", e.Path)
	case e.Want == "":
		return fmt.Sprintf("%s is not part of the snapshot", e.Path)
	}
	return fmt.Sprintf("%s changed since the snapshot", e.Path)
}

// Read returns the current content of a file of the skill, and whether it matches the snapshot. path is
// SKILL.md or a path of the index, in any spelling that [CleanPath] accepts. The file may have at most limit
// bytes.
//
// Errors: *PathError, ErrNotIndexed, ErrNotFound, ErrNotFile, ErrOutsideRoot, ErrPermission,
// ErrTooLarge, ErrExhausted; as for [Skill.Index].
func (s *Skill) Read(ctx context.Context, path string, limit int64) (*Content, error) {
	path, err := CleanPath(path)
	if err != nil {
		return nil, err
	}
	want := s.Digest
	// SKILL.md is read by the digest of the scan, so that a skill that cannot be indexed can still be read.
	if path != s.File {
		index, err := s.Index(ctx)
		if err != nil {
			return nil, err
		}
		resource := index.Resource(path)
		if resource == nil {
			return nil, fmt.Errorf("read %s of %s: %w", path, s.Path, ErrNotIndexed)
		}
		want = resource.Digest
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := s.location.open()
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", path, s.Path, err)
	}
	defer t.close()
	data, _, err := readTree(t, path, limit, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", path, s.Path, err)
	}
	got := digest.FromBytes(data)
	return &Content{Data: data, Digest: got, Size: int64(len(data)), Matches: got == want}, nil
}

// Verify compares all files on disk with the index. It lists them, and reads the files whose marks changed or
// cannot vouch for their bytes.
//
// Errors: *DriftError for the first difference, by path; ErrExhausted, which is not a difference; the errors
// of [Skill.Index].
func (s *Skill) Verify(ctx context.Context) error {
	index, err := s.Index(ctx)
	if err != nil {
		return err
	}
	if s.untouched(ctx, index) {
		return nil
	}
	t, err := s.location.open()
	if err != nil {
		return driftOf(err, &DriftError{Want: s.Digest, Path: s.File})
	}
	defer t.close()
	files, _, err := listFiles(ctx, t, s.opts, s.File)
	if err != nil {
		// A canceled listing does not show that the skill has changed.
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return driftOf(err, &DriftError{Want: s.Digest, Path: s.File})
	}
	rest, marks := index.Files, index.marks
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if errors.Is(file.err, ErrExhausted) {
			return file.err
		}
		// Both lists are sorted: an indexed file that the listing skipped is gone.
		if len(rest) > 0 && rest[0].Path < file.path {
			break
		}
		if len(rest) == 0 || rest[0].Path != file.path {
			// The index left it out when it was made, so it is not new.
			if index.ignored[file.path] {
				continue
			}
			return s.unknown(t, file)
		}
		if err := compare(t, marks[0], rest[0], file); err != nil {
			return err
		}
		rest, marks = rest[1:], marks[1:]
	}
	if len(rest) > 0 {
		return &DriftError{Want: rest[0].Digest, Path: rest[0].Path}
	}
	return nil
}

// unknown returns the drift error for a file that is not indexed.
func (s *Skill) unknown(t tree, file candidate) error {
	// Got must not be empty, which would mean that the file is gone.
	drift := &DriftError{Path: file.path, Got: digest.FromBytes(nil)}
	if file.err == nil {
		if got, err := digestNow(t, file.path); err == nil {
			drift.Got = got
		}
	}
	return drift
}

// compare returns the drift error of one file, or nil.
func compare(t tree, known mark, want store.File, file candidate) error {
	drift := &DriftError{Want: want.Digest, Path: want.Path}
	if file.err != nil {
		return drift
	}
	info, err := t.stat(file.path)
	if err != nil {
		return driftOf(cause(err), drift)
	}
	// Most files are compared by one stat, because this runs before every load and every run.
	if known.vouches(markOf(info)) {
		return nil
	}
	got, err := digestNow(t, file.path)
	if err != nil {
		return driftOf(err, drift)
	}
	if got == want.Digest {
		return nil
	}
	drift.Got = got
	return drift
}

// digestNow returns the current digest of a file.
func digestNow(t tree, name string) (digest.Digest, error) {
	file, info, err := openFile(t, name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	read, err := searchFile(file, info, MaxFile, make([]byte, hashBuffer), &signal.Scanner{})
	return read.digest, err
}

// driftOf returns drift for a file that cannot be read, or err if this process cannot open any file.
func driftOf(err error, drift *DriftError) error {
	if errors.Is(err, ErrExhausted) {
		return err
	}
	return drift
}

// Stage copies the files of the index into a store. The store checks every digest, so the copy has exactly
// the indexed bytes.
//
// Errors: *DriftError if the files differ from the index; the errors of [Skill.Index]; errors of the store.
func (s *Skill) Stage(ctx context.Context, st store.Putter) (*store.Tree, error) {
	return s.StageWith(ctx, st, nil, nil)
}

// StageWith is Stage with further files, which are not in the directory of the skill. open opens them.
func (s *Skill) StageWith(
	ctx context.Context, st store.Putter, more []store.File, open store.Opener,
) (*store.Tree, error) {
	index, err := s.Index(ctx)
	if err != nil {
		return nil, err
	}
	t, err := s.location.open()
	if err != nil {
		return nil, driftOf(err, &DriftError{Want: s.Digest, Path: s.File})
	}
	defer t.close()
	further := map[string]bool{}
	for _, f := range more {
		further[f.Path] = true
	}
	files := slices.Concat(index.Files, more)
	slices.SortFunc(files, func(a, b store.File) int { return strings.Compare(a.Path, b.Path) })
	staged, err := st.Put(ctx, files, func(path string) (io.ReadCloser, error) {
		if further[path] {
			return open(path)
		}
		// The store compares the digest while it copies, so a file that is replaced now is refused there.
		file, _, err := openFile(t, path)
		return file, err
	})
	if err == nil {
		return staged, nil
	}
	if ctx.Err() != nil {
		return staged, err
	}
	// The error of the store does not name the file that differs; the error of Verify does.
	var drift *DriftError
	if errors.As(s.Verify(ctx), &drift) {
		return nil, drift
	}
	return nil, fmt.Errorf("stage %s: %w", s.Path, err)
}
