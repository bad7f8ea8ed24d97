package search

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// cursor returns the cursor of the page that starts at a hit. Part of a hash binds it to its query and
// skills, to detect mistakes; a forged cursor only selects another position in the same list.
func (x *Index) cursor(query string, from int) string {
	h := sha256.New()
	h.Write(x.identity[:])
	h.Write([]byte(query))
	return fmt.Sprintf("%d-%x", from, h.Sum(nil)[:8])
}

// open returns the first hit of the page of a cursor.
func (x *Index) open(cursor, query string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	number, _, _ := strings.Cut(cursor, "-")
	from, err := strconv.Atoi(number)
	if err != nil || from < 1 || from > len(x.skills) || x.cursor(query, from) != cursor {
		return 0, ErrCursor
	}
	return from, nil
}
