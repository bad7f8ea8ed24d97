package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what Unambiguous looks through, where each key costs a comparison with those beside it, and
// of _meta.
const (
	maxDepth       = 32
	maxDeepMembers = 4096

	// maxMeta is the most bytes of a _meta.
	maxMeta = 64 << 10
)

var (
	errDeep = errors.New("values are nested too deep")
	errMany = fmt.Errorf("it has more than %d keys and elements in all", maxDeepMembers)
)

// Unambiguous makes sure that the keys of a JSON value mean the same to every reader at any depth, see
// [Members], and that none is spelt like one of names but for its case, which decoding into a struct
// would take for it.
//
// Errors: the first key that does not; more than 32 levels, or 4096 members and elements. The texts may
// be shown to the sender.
func Unambiguous(raw json.RawMessage, names ...string) error {
	left := maxDeepMembers
	return unambiguous(raw, names, maxDepth, &left)
}

// bounded counts the members and elements of a JSON value, at any depth, whatever they mean: decoded
// each takes far more memory than it is long. Those of each object and array are counted as one more
// than it has commas.
//
// Errors: more than maxDeepMembers of them, more than maxDepth levels. The texts may be shown to the
// sender.
func bounded(raw json.RawMessage) error {
	values, depth := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = skipString(raw, i) - 1
		case '{', '[':
			values++
			if depth++; depth > maxDepth {
				return errDeep
			}
		case '}', ']':
			depth--
		case ',':
			values++
		}
	}
	if values > maxDeepMembers {
		return errMany
	}
	return nil
}

func unambiguous(raw json.RawMessage, names []string, depth int, left *int) error {
	if depth == 0 {
		return errDeep
	}
	switch firstByte(raw) {
	case '{':
		members, err := Members(raw)
		if err != nil {
			return err
		}
		if *left -= len(members); *left < 0 {
			return errMany
		}
		for _, m := range members {
			if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, m.Key) }); i >= 0 && names[i] != m.Key {
				return fmt.Errorf("key %q must be spelt %q", clipKey(m.Key), names[i])
			}
			if err := unambiguous(m.Value, names, depth-1, left); err != nil {
				return err
			}
		}
	case '[':
		for i := skipSpace(raw, skipSpace(raw, 0)+1); raw[i] != ']'; {
			if *left--; *left < 0 {
				return errMany
			}
			end := skipValue(raw, i)
			if err := unambiguous(raw[i:end:end], names, depth-1, left); err != nil {
				return err
			}
			if i = skipSpace(raw, end); raw[i] == ',' {
				i = skipSpace(raw, i+1)
			}
		}
	}
	return nil
}

// answerNames are the keys of the answer to a form.
func answerNames() []string { return []string{"action", "content"} }

// decides reports whether a member of _meta is one that this server, or mcp-go, reads more of than a
// text. What others put there is theirs to understand.
func decides(key string) bool {
	return key == "x-codex-turn-metadata" || strings.HasPrefix(key, "skillsd/") || strings.HasPrefix(key, "codex/") || strings.HasPrefix(key, "io.modelcontextprotocol/")
}

// checkMeta refuses a _meta that is too large, and one that readers could understand differently.
func checkMeta(raw json.RawMessage) error {
	if len(raw) > maxMeta {
		return fmt.Errorf("it has %d bytes, the most is %d", len(raw), maxMeta)
	}
	if err := bounded(raw); err != nil {
		return err
	}
	members, err := Members(raw)
	if err != nil {
		return err
	}
	for _, m := range members {
		if !decides(m.Key) {
			continue
		}
		if err := Unambiguous(m.Value); err != nil {
			return fmt.Errorf("%s: %w", clipKey(m.Key), err)
		}
	}
	return nil
}
