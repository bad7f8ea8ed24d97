package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// DropNamed takes from a set of sha256 digests those that stand in the record of a session below dir,
// whatever they mean there, so that what is left is named by none. Records are searched as they are, also
// what is damaged of them or was not finished; a dir that does not exist has none.
//
// Errors: that of reading dir or a record, or of ctx. There may then be more that are named.
func DropNamed(ctx context.Context, dir string, digests map[digest.Digest]bool) (err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("search sessions: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
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
		err := dropNamed(ctx, root, en.Name(), digests)
		if err != nil && !errors.Is(err, provenance.ErrNotFound) {
			return fmt.Errorf("search session %s: %w", en.Name(), err)
		}
	}
	return nil
}

// dropNamed takes from digests those that stand in the record of one session.
//
// Errors: provenance.ErrNotFound when there is none.
func dropNamed(ctx context.Context, root *os.Root, id string, digests map[digest.Digest]bool) (err error) {
	dir, err := openSession(root, id)
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
			found.add([]byte{'\n'}, digests) // a digest may stand at the very end
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

// hexRuns finds runs of hexadecimal digits of the length of a digest in a text that comes in pieces.
type hexRuns struct {
	digits [2 * 32]byte // of the run that goes on
	n      int          // how many there were
}

// add takes the runs that end in a piece from digests.
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
