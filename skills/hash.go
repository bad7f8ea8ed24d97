package skills

import (
	"bytes"
	"crypto/sha256"
	"io"
	"io/fs"
	"sync"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/signal"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Sizes of read buffers, in bytes. Most files are small, so a large buffer is allocated only for a larger
// file.
const (
	hashBuffer  = 32 << 10
	smallBuffer = 8 << 10
)

// readBuffers are buffers for reading files, one per running index.
var readBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}

// hashed is the result of one pass over a file.
type hashed struct {
	size   int64
	digest digest.Digest
	text   bool
	head   []byte // the first 4 KiB
}

// searchFile reads a file to its end, hashes it, and searches it for signals while it is valid text.
//
// Errors: ErrTooLarge.
func searchFile(file fs.File, info fs.FileInfo, limit int64, buf []byte, search *signal.Scanner) (
	hashed, error) {
	if info.Size() > limit {
		return hashed{}, ErrTooLarge
	}
	sum, reader := sha256.New(), fsys.Ending(file, info.Size())
	h := hashed{text: true}
	cut := 0 // bytes of an incomplete character, kept at the start of buf
	for {
		n, err := reader.Read(buf[cut:])
		chunk, whole := buf[cut:cut+n], buf[:cut+n]
		if len(h.head) < 4096 {
			h.head = append(h.head, chunk[:min(n, 4096-len(h.head))]...)
		}
		sum.Write(chunk)
		h.size += int64(n)
		if h.size > limit {
			return hashed{}, ErrTooLarge
		}
		// A character that the end of the buffer splits must not make a text binary. Its first bytes are
		// judged with the next chunk.
		for cut = min(utf8.UTFMax-1, len(whole)); cut > 0; cut-- {
			if last := whole[len(whole)-cut:]; utf8.RuneStart(last[0]) && !utf8.FullRune(last) {
				break
			}
		}
		// The NUL is searched in chunk alone, because kept bytes were searched with the chunk that they came
		// with.
		h.text = h.text && utf8.Valid(whole[:len(whole)-cut]) && bytes.IndexByte(chunk, 0) < 0
		if h.text {
			search.Add(chunk)
		}
		copy(buf, whole[len(whole)-cut:])
		if err == io.EOF {
			break
		}
		if err != nil {
			return hashed{}, cause(err)
		}
	}
	// Bytes that are still kept at the end are an incomplete character.
	h.digest, h.text = digest.NewDigest(digest.SHA256, sum), h.text && cut == 0
	return h, nil
}
