package skills

import (
	"bytes"
	"crypto/sha256"
	"io"
	"io/fs"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/signal"
)

// How much of a file is read at a time, in bytes. Most files are small, so the buffer is small until a
// larger file is read.
const (
	hashBuffer  = 32 << 10
	smallBuffer = 8 << 10
)

// hashed is the result of one pass over a file.
type hashed struct {
	size   int64
	digest digest.Digest
	text   bool
	head   []byte // the first 4 KiB
}

// digestFile reads a file to its end.
//
// Errors: ErrTooLarge.
func digestFile(file fs.File, info fs.FileInfo, limit int64, buf []byte) (hashed, error) {
	return searchFile(file, info, limit, buf, &signal.Scanner{})
}

// searchFile is digestFile, and searches what it reads for signals as long as it is text.
func searchFile(file fs.File, info fs.FileInfo, limit int64, buf []byte, search *signal.Scanner) (
	hashed, error) {
	if info.Size() > limit {
		return hashed{}, ErrTooLarge
	}
	sum := sha256.New()
	scan := textScan{text: true}
	var h hashed
	for {
		n, err := file.Read(buf)
		chunk := buf[:n]
		if len(h.head) < 4096 {
			h.head = append(h.head, chunk[:min(n, 4096-len(h.head))]...)
		}
		sum.Write(chunk)
		if scan.add(chunk); scan.text {
			search.Add(chunk)
		}
		if h.size += int64(n); h.size > limit {
			return hashed{}, ErrTooLarge
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return hashed{}, cause(err)
		}
	}
	h.digest, h.text = digest.NewDigest(digest.SHA256, sum), scan.end()
	return h, nil
}

// textScan decides whether bytes that come in pieces are UTF-8 without NUL.
type textScan struct {
	text bool
	rest []byte // the start of a character that the last piece cut
}

func (t *textScan) add(piece []byte) {
	if !t.text {
		return
	}
	for len(t.rest) > 0 && len(piece) > 0 && !utf8.FullRune(t.rest) {
		t.rest, piece = append(t.rest, piece[0]), piece[1:]
	}
	if len(t.rest) > 0 && utf8.FullRune(t.rest) {
		t.text = utf8.Valid(t.rest)
		t.rest = t.rest[:0]
	}
	cut := len(piece)
	for back := 1; back <= min(utf8.UTFMax-1, len(piece)); back++ {
		if utf8.RuneStart(piece[len(piece)-back]) {
			if !utf8.FullRune(piece[len(piece)-back:]) {
				cut = len(piece) - back
			}
			break
		}
	}
	t.rest = append(t.rest, piece[cut:]...)
	t.text = t.text && utf8.Valid(piece[:cut]) && bytes.IndexByte(piece, 0) < 0
}

func (t *textScan) end() bool { return t.text && len(t.rest) == 0 }
