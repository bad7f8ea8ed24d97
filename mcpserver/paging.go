package mcpserver

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// pageSize is the number of entries on a page of a list.
const pageSize = 100

func encodeCursor(last string) mcp.Cursor {
	return mcp.Cursor(base64.RawURLEncoding.EncodeToString([]byte(last)))
}

// position returns the index of the element with a key in a sorted list, or the index to insert it at.
func position[T any](all []T, key string, of func(T) string) (at int, found bool) {
	return slices.BinarySearchFunc(all, key, func(element T, key string) int {
		return strings.Compare(of(element), key)
	})
}

// following returns the elements of a sorted list after a key.
func following[T any](all []T, key string, of func(T) string) []T {
	at, found := position(all, key, of)
	if found {
		at++
	}
	return all[at:]
}
