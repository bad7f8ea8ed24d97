package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// Limits of _meta, and of other values that Unambiguous checks.
	maxDepth       = 32
	maxDeepMembers = 4096

	maxMeta = 64 << 10 // maximum size of _meta in bytes

	// maxValues is the maximum of members and elements of a whole message, at any depth. mcp-go decodes 4 MiB
	// of empty strings to 200 MiB; no method needs as many values.
	maxValues = 10_000

	// maxLevels is the maximum nesting of a whole message. Decoders recurse for each level: 20 KB with 10,000
	// levels need a stack of some MiB.
	maxLevels = 128
)

// Unambiguous checks that the keys of a JSON value mean the same to every reader at any depth, see [Members],
// and that no key differs from one of names in case only, because decoding into a struct would accept it.
//
// Errors: the first ambiguous key; more than 32 levels, or 4096 members and elements. The texts may be shown
// to the sender.
func Unambiguous(raw json.RawMessage, names ...string) error {
	if err := bounded(raw); err != nil {
		return err
	}
	return unambiguous(raw, names)
}

// bounded rejects a JSON value with more than maxDeepMembers members and elements, at any depth, or more than
// maxDepth levels: decoded, each takes far more memory than its text. The errors may be shown to the sender.
func bounded(raw json.RawMessage) error {
	switch values, depth := count(raw); {
	case depth > maxDepth:
		return errors.New("values are nested too deep")
	case values > maxDeepMembers:
		return fmt.Errorf("it has more than %d keys and elements in all", maxDeepMembers)
	}
	return nil
}

// count returns the number of members and elements of a JSON value at any depth, and the number of levels. An
// object or array has one member more than commas; empty ones are taken as having one.
func count(raw []byte) (values, levels int) {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = skipString(raw, i) - 1
		case '{', '[':
			values++
			depth++
			levels = max(levels, depth)
		case '}', ']':
			depth--
		case ',':
			values++
		}
	}
	return values, levels
}

func unambiguous(raw json.RawMessage, names []string) error {
	switch firstByte(raw) {
	case '{':
		members, err := Members(raw)
		if err != nil {
			return err
		}
		for _, m := range members {
			for _, name := range names {
				if name != m.Key && strings.EqualFold(name, m.Key) {
					return fmt.Errorf("key %.64q must be spelt %q", m.Key, name)
				}
			}
			if err := unambiguous(m.Value, names); err != nil {
				return err
			}
		}
	case '[':
		for i := skipSpace(raw, skipSpace(raw, 0)+1); raw[i] != ']'; {
			end := skipValue(raw, i)
			if err := unambiguous(raw[i:end:end], names); err != nil {
				return err
			}
			i = skipSpace(raw, end)
			if raw[i] == ',' {
				i = skipSpace(raw, i+1)
			}
		}
	}
	return nil
}

// decides are prefixes of the members of _meta from which this server or mcp-go reads more than a string.
// Other members are not checked.
var decides = []string{"skillsd/", "codex/", "io.modelcontextprotocol/", "x-codex-turn-metadata"}

// checkMeta rejects a _meta that is too large or ambiguous.
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
		decided := func(prefix string) bool { return strings.HasPrefix(m.Key, prefix) }
		if !slices.ContainsFunc(decides, decided) {
			continue
		}
		if err := unambiguous(m.Value, nil); err != nil {
			return fmt.Errorf("%.64s: %w", m.Key, err)
		}
	}
	return nil
}
