package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

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
	var found hexRuns
	for reader := bufio.NewReaderSize(file, 64<<10); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := reader.Peek(1)
		if errors.Is(err, io.EOF) {
			found.add([]byte{'\n'}, digests) // the record may end in a digest
			return nil
		}
		if err != nil {
			return cause(err)
		}
		block, _ := reader.Peek(reader.Buffered())
		found.add(block, digests)
		if _, err := reader.Discard(len(block)); err != nil {
			return cause(err)
		}
	}
}

// hexRuns finds digests, as runs of hexadecimal digits of their length, in a text that comes in pieces.
type hexRuns struct {
	digits [2 * 32]byte // of the unfinished run
	n      int          // how many digits the run has
}

// add removes the runs that end in a piece from digests.
func (h *hexRuns) add(piece []byte, digests map[digest.Digest]bool) {
	for _, c := range piece {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' {
			if h.n < len(h.digits) {
				h.digits[h.n] = c
			}
			h.n++
			continue
		}
		if h.n == len(h.digits) {
			delete(digests, digest.NewDigestFromEncoded(digest.SHA256, string(h.digits[:])))
		}
		h.n = 0
	}
}
