package search

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// checkSize is how much of a hash ties a cursor to its query and skills. It guards against mixing
// them up; a forged cursor only names another place in the same list.
const checkSize = 8

// cursor returns the cursor of the page that begins with a hit.
func (x *Index) cursor(query string, from int) string {
	return base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(x.check(query), uint64(from)))
}

// open returns where the page of a cursor begins.
func (x *Index) open(cursor, query string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	if len(cursor) > 64 {
		return 0, ErrCursor
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) <= checkSize || !bytes.Equal(raw[:checkSize], x.check(query)) {
		return 0, ErrCursor
	}
	from, n := binary.Uvarint(raw[checkSize:])
	// The comparison refuses other encodings of the same bytes.
	if n <= 0 || from == 0 || from > uint64(len(x.skills)) || x.cursor(query, int(from)) != cursor {
		return 0, ErrCursor
	}
	return int(from), nil
}

func (x *Index) check(query string) []byte {
	h := sha256.New()
	h.Write(x.identity[:])
	h.Write([]byte(query))
	return h.Sum(nil)[:checkSize]
}
