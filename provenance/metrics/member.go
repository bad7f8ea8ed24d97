package metrics

import (
	"bytes"
	"encoding/json"
	"iter"
	"math"
	"strconv"
)

// members yields the names in the JSON object raw, in order and as they are written, and what begins with
// their values, so that nobody looks for the end of a value that nobody needs. It looks at the one level
// only and decodes nothing; raw may go on after the object. Rows are valid JSON, for a store has accepted them; of
// anything else it yields some part or nothing.
func members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, rest []byte) bool) {
		at := skipSpace(raw, 0)
		if at >= len(raw) || raw[at] != '{' {
			return
		}
		for more := true; more; {
			start := skipSpace(raw, at+1)
			if start >= len(raw) || raw[start] != '"' {
				return
			}
			end := skipString(raw, start)
			at = skipSpace(raw, end)
			if end-start < 2 || at >= len(raw) || raw[at] != ':' {
				return
			}
			name := raw[start+1 : end-1]
			start = skipSpace(raw, at+1)
			if !yield(name, raw[start:]) {
				return
			}
			at = skipSpace(raw, skipValue(raw, start))
			more = at < len(raw) && raw[at] == ','
		}
	}
}

// member returns the value of the first member of that name, nil when there is none.
func member(raw []byte, name string) []byte {
	for key, rest := range members(raw) {
		if string(key) == name {
			return value(rest)
		}
	}
	return nil
}

// value is the value that rest begins with.
func value(rest []byte) []byte { return rest[:skipValue(rest, 0)] }

func skipSpace(raw []byte, at int) int {
	for at < len(raw) && (raw[at] == ' ' || raw[at] == '\n' || raw[at] == '\t' || raw[at] == '\r') {
		at++
	}
	return at
}

// skipString returns where the string that starts at a quote ends, at most the length of raw.
func skipString(raw []byte, start int) int {
	for at := start + 1; at < len(raw); at++ {
		quote := bytes.IndexByte(raw[at:], '"')
		if quote < 0 {
			break
		}
		at += quote
		escapes := 0
		for raw[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
	return len(raw)
}

// skipValue returns where the value that starts at at ends.
func skipValue(raw []byte, at int) int {
	depth := 0
	for at < len(raw) {
		switch raw[at] {
		case '"':
			at = skipString(raw, at)
			if depth == 0 {
				return at
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return at + depth + 1 // at, when the bracket closes what the value stands in
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return at
			}
		}
		at++
	}
	return at
}

// text is the string that a JSON value is, "" when it is none.
func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// integer is the number that a JSON value is, 0 when it is none or negative.
func integer(raw []byte) uint64 {
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || n > math.MaxInt64 {
		return 0
	}
	return n
}
