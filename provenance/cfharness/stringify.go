package cfharness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// Stringify returns a JSON text as JavaScript's JSON.stringify writes the value that JSON.parse reads
// from it: without white space, with numbers as ECMAScript writes them, with the last value of equal
// keys at the place of the first, and with keys that are array indexes first, in ascending order. All
// other keys keep their order. Half of a surrogate pair becomes U+FFFD.
//
// Errors: ErrInvalid if data is not JSON in UTF-8.
func Stringify(data []byte) (json.RawMessage, error) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, fmt.Errorf("stringify: %w: not JSON", provenance.ErrInvalid)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return appendValue(make([]byte, 0, len(data)), dec), nil
}

// CompactDigest returns the digest of the [Stringify] form of a JSON text. policy-trace.json names a policy
// snapshot by it. White space does not change it, the order of keys does.
//
// Errors: ErrInvalid if data is not JSON.
func CompactDigest(data []byte) (digest.Digest, error) {
	compact, err := Stringify(data)
	if err != nil {
		return "", err
	}
	return digest.FromBytes(compact), nil
}

// appendValue appends the next value of a text that is known to be valid JSON.
func appendValue(out []byte, dec *json.Decoder) []byte {
	token, _ := dec.Token()
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return appendObject(out, dec)
		}
		out = append(out, '[')
		for first := true; dec.More(); first = false {
			if !first {
				out = append(out, ',')
			}
			out = appendValue(out, dec)
		}
		_, _ = dec.Token()
		return append(out, ']')
	case string:
		return appendText(out, t)
	case json.Number:
		return appendNumber(out, t)
	case bool:
		return strconv.AppendBool(out, t)
	}
	return append(out, "null"...)
}

// member is a key with its value, as written.
type member struct {
	key   string
	index int64 // as an array index; -1 for other keys
	text  []byte
}

func appendObject(out []byte, dec *json.Decoder) []byte {
	var members []member
	at := make(map[string]int)
	for dec.More() {
		token, _ := dec.Token()
		key, _ := token.(string)
		text := appendValue(append(appendText(nil, key), ':'), dec)
		if i, known := at[key]; known {
			members[i].text = text
			continue
		}
		at[key] = len(members)
		members = append(members, member{key, arrayIndex(key), text})
	}
	_, _ = dec.Token()
	// The order of an ECMAScript object's own keys.
	slices.SortStableFunc(members, func(a, b member) int {
		if a.index < 0 || b.index < 0 {
			return cmp.Compare(min(b.index, 0), min(a.index, 0))
		}
		return cmp.Compare(a.index, b.index)
	})
	out = append(out, '{')
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.text...)
	}
	return append(out, '}')
}

// arrayIndex reads a key that is the canonical form of a number below 2^32-1, or returns -1.
func arrayIndex(key string) int64 {
	n, err := strconv.ParseUint(key, 10, 32)
	if err != nil || n == math.MaxUint32 || strconv.FormatUint(n, 10) != key {
		return -1
	}
	return int64(n)
}

// appendNumber appends a number as ECMAScript writes it, and null for one that a float64 cannot hold.
func appendNumber(out []byte, text json.Number) []byte {
	switch f, err := text.Float64(); {
	case err != nil:
		return append(out, "null"...)
	case f == 0: // also -0
		return append(out, '0')
	default:
		raw, _ := json.Marshal(f) // has ECMAScript's form
		return append(out, raw...)
	}
}

// appendText appends a string with the fewest escapes.
func appendText(out []byte, text string) []byte {
	const short = "\b\f\n\r\t\"\\"
	out = append(out, '"')
	for _, r := range text {
		switch i := strings.IndexRune(short, r); {
		case i >= 0:
			out = append(out, '\\', `bfnrt"\`[i])
		case r < 0x20:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return append(out, '"')
}
