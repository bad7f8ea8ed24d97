package cfharness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// Stringify returns a JSON text as JavaScript's JSON.stringify writes the value that JSON.parse reads
// from it: without white space, with numbers as ECMAScript writes them, and with the keys in their order. It
// does not imitate what nobody writes: numbers as keys, the same key twice, half of a surrogate pair.
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
		out = append(out, byte(t))
		for first := true; dec.More(); first = false {
			if !first {
				out = append(out, ',')
			}
			if t == '{' {
				out = append(appendValue(out, dec), ':')
			}
			out = appendValue(out, dec)
		}
		_, _ = dec.Token()
		return append(out, byte(t)+2) // the closing bracket
	case string:
		return appendText(out, t)
	case json.Number:
		return appendNumber(out, t)
	case bool:
		return strconv.AppendBool(out, t)
	}
	return append(out, "null"...)
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
