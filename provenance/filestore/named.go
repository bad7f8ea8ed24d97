package filestore

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

const digestDigits = 2 * sha256.Size

// DropNamed implements provenance.Reader. It searches the bytes of the records, whatever they mean.
func (r *reader) DropNamed(ctx context.Context, digests map[digest.Digest]bool) error {
	if r.root == nil {
		return nil
	}
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("search sessions: %w", cause(err))
	}
	for _, en := range entries {
		if len(digests) == 0 {
			return nil
		}
		if !en.IsDir() || !provenance.ValidSessionID(en.Name()) {
			continue
		}
		err := r.dropNamed(ctx, en.Name(), digests)
		if err != nil && !errors.Is(err, provenance.ErrNotFound) {
			return fmt.Errorf("search session %s: %w", en.Name(), err)
		}
	}
	return nil
}

// dropNamed removes from digests those that the record of one session contains.
//
// Errors: provenance.ErrNotFound if there is no record.
func (r *reader) dropNamed(ctx context.Context, id string, digests map[digest.Digest]bool) (err error) {
	dir, err := r.session(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	file, err := openRegular(dir, provenance.EventsFile)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 64<<10)
	var run []byte // hexadecimal digits, at most one more than a digest has
	for {
		c, err := in.ReadByte()
		if err == nil && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			if len(run) <= digestDigits {
				run = append(run, c)
			}
			continue
		}
		if len(run) == digestDigits {
			delete(digests, digest.NewDigestFromEncoded(digest.SHA256, string(run)))
		}
		run = run[:0]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return cause(err)
		case c == '\n' && ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
