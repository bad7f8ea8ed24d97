package cfharness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// Stringify returns a JSON text in the form of JavaScript's JSON.stringify: without white space, with numbers
// in ECMAScript's form, and with keys in their original order. It does not reproduce the treatment of
// keys that are integers, duplicate keys and unpaired surrogates, which do not occur in records.
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

// CompactDigest returns the digest of the [Stringify] form of a JSON text. policy-trace.json identifies a
// policy snapshot by it. It depends on the order of keys, but not on white space.
//
// Errors: ErrInvalid if data is not JSON.
func CompactDigest(data []byte) (digest.Digest, error) {
	compact, err := Stringify(data)
	if err != nil {
		return "", err
	}
	return digest.FromBytes(compact), nil
}

// appendValue appends the next value of a text that must be valid JSON.
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
		// In ASCII, a closing bracket is two above the opening one.
		return append(out, byte(t)+2)
	case string:
		return appendText(out, t)
	case json.Number:
		return appendNumber(out, t)
	case bool:
		return strconv.AppendBool(out, t)
	}
	return append(out, "null"...)
}

// appendNumber appends a number in ECMAScript's form, or null if a float64 cannot hold it.
func appendNumber(out []byte, text json.Number) []byte {
	switch f, err := text.Float64(); {
	case err != nil:
		// JavaScript reads such a number as Infinity, for which JSON.stringify writes null.
		return append(out, "null"...)
	// This includes -0, which JSON.stringify writes as 0.
	case f == 0:
		return append(out, '0')
	default:
		// encoding/json has the form of ECMAScript for a float64.
		raw, _ := json.Marshal(f)
		return append(out, raw...)
	}
}

// appendText appends a string with as few escapes as possible.
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

// object returns the JSON object with the non-nil values, in the order of keys.
func object(keys []string, values map[string]json.RawMessage) json.RawMessage {
	out := []byte{'{'}
	for _, key := range keys {
		if values[key] == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		name, _ := provenance.Encode(key)
		out = append(append(append(out, name...), ':'), values[key]...)
	}
	return append(out, '}')
}

// parseObject parses a JSON object and returns its keys in order. Duplicate keys are rejected.
//
// Errors: ErrInvalid.
func parseObject(data []byte) (keys []string, fields map[string]json.RawMessage, err error) {
	// The decoder below would not notice data after the object.
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, nil, fmt.Errorf("%w: not JSON in UTF-8", provenance.ErrInvalid)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, nil, fmt.Errorf("%w: not an object", provenance.ErrInvalid)
	}
	fields = make(map[string]json.RawMessage)
	for dec.More() {
		token, err := dec.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return nil, nil, fmt.Errorf("%w: not an object", provenance.ErrInvalid)
		}
		if _, twice := fields[key]; twice {
			return nil, nil, fmt.Errorf("%w: key %.40q occurs twice", provenance.ErrInvalid, key)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, nil, fmt.Errorf("%w: value of %.40q", provenance.ErrInvalid, key)
		}
		keys, fields[key] = append(keys, key), raw
	}
	return keys, fields, nil
}

// onlyKeys parses an object and rejects keys that are not in known.
func onlyKeys(raw []byte, known ...string) (map[string]json.RawMessage, error) {
	keys, fields, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("%w: unknown key %.40q", provenance.ErrInvalid, key)
		}
	}
	return fields, nil
}
