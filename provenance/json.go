package provenance

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// List is a slice that is encoded as [] if it is nil.
type List[T any] []T

// MarshalJSON implements json.Marshaler.
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return Encode([]T(l))
}

// Encode returns v as compact JSON without escaping <, > and &, as in records.
func Encode(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// EncodePretty returns v as JSON for a file of a session: indented by two spaces, with one final newline, and
// without escaping <, > and &.
func EncodePretty(v any) ([]byte, error) {
	raw, err := Encode(v)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := json.Indent(&buf, raw, "", "  "); err != nil {
		return nil, err
	}
	buf.WriteByte('\n')
	return buf.Bytes(), nil
}

// MembersOf sets values to the values of the members with these keys in a JSON object, nil for missing ones,
// and reports whether it did, about ten times faster than encoding/json. It returns false if encoding/json
// might find other values: for an object with white space, with a duplicate key, or with a key that differs
// only in case. The object must be valid.
func MembersOf(object []byte, keys []string, values [][]byte) bool {
	clear(values)
	if string(object) == "{}" {
		return true
	}
	if len(object) == 0 || object[0] != '{' {
		return false
	}
	for i := 1; i < len(object) && object[i] == '"'; i++ {
		colon := skipString(object, i)
		if colon < 0 || colon == len(object) || object[colon] != ':' {
			return false
		}
		end := skipValue(object, colon+1)
		if end < 0 || !setMember(object[i+1:colon-1], keys, values, object[colon+1:end]) {
			return false
		}
		if object[end] != ',' {
			return end == len(object)-1
		}
		i = end
	}
	return false
}

// setMember sets the value of a key if it is one of keys. It returns false if that is uncertain.
func setMember(key []byte, keys []string, values [][]byte, value []byte) bool {
	escaped := bytes.IndexByte(key, '\\') >= 0
	for k, want := range keys {
		if string(key) == want && values[k] == nil {
			values[k] = value
		} else if escaped || bytes.EqualFold(key, []byte(want)) {
			return false
		}
	}
	return true
}

// skipValue returns the index of the comma or bracket after the value that begins at i, or -1 if it finds
// white space first.
func skipValue(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end := skipString(b, i)
			if end < 0 {
				return -1
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		case ' ', '\t', '\r', '\n':
			return -1
		}
	}
	return -1
}

// skipString returns the index after the string that begins at i, or -1.
func skipString(b []byte, i int) int {
	for i++; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		// A quote after an even number of backslashes ends the string.
		escapes := 0
		for k := i + n - 1; k >= i && b[k] == '\\'; k-- {
			escapes++
		}
		i += n + 1
		if escapes%2 == 0 {
			return i
		}
	}
}

// PlainText returns the text of a JSON value if it is a string without escapes.
func PlainText(value []byte) (string, bool) {
	n := len(value)
	if n < 2 || value[0] != '"' || value[n-1] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return "", false
	}
	return string(value[1 : n-1]), true
}

// jsonValue returns the length of the JSON value without white space at the start of b, or 0 without such a
// value. It accepts exactly the values of encoding/json, and takes a number at the end of b as complete.
func jsonValue(b []byte) int {
	// A nesting of up to 32 needs no allocation.
	var stack [32]byte
	s := jsonScanner{open: stack[:0]}
	n, err := s.feed(b)
	if err != nil || !s.complete() {
		return 0
	}
	return n
}

// jsonScanner tracks the state within one JSON value. The zero jsonScanner is before the value.
type jsonScanner struct {
	state jsonState
	open  []byte // the open { and [
	rest  string // remaining bytes of true, false or null
	hex   int    // missing digits of \u
	key   bool   // the string is a key
}

// jsonState determines the bytes that may come next.
type jsonState uint8

const (
	wantValue      jsonState = iota
	wantFirstValue           // or ]
	wantKey
	wantFirstKey // or }
	wantColon
	wantMore // a comma, or the end of the object or list; nothing if none is open
	inString
	inEscape
	inHex
	inWord
	// The states of a number. It cannot end in those before afterZero.
	afterMinus
	afterPoint
	afterExponent
	afterSign
	afterZero
	inDigits
	inFraction
	inPower
)

// maxJSONDepth is the maximum nesting depth of encoding/json.
const maxJSONDepth = 10_000

var errSyntax = errors.New("not JSON")

// complete reports whether the bytes so far are a value.
func (s *jsonScanner) complete() bool {
	return len(s.open) == 0 && (s.state == wantMore || s.state >= afterZero)
}

// feed scans b and returns the number of bytes scanned: all of b, or those before white space between two
// tokens or before the first byte after the value.
//
// Errors: errSyntax.
func (s *jsonScanner) feed(b []byte) (int, error) {
	for i := 0; i < len(b); i++ {
		if s.state == inString {
			n, ok := s.text(b[i:])
			i += n
			if !ok {
				return i, errSyntax
			}
			if i == len(b) {
				break
			}
			continue
		}
		c := b[i]
		// A number has no end mark: the byte after it ends the number and is then scanned as a token.
		if s.state >= afterMinus && s.number(c) {
			continue
		}
		if s.state <= wantMore && (c == ' ' || c == '\t' || c == '\r' || c == '\n') ||
			s.state == wantMore && len(s.open) == 0 {
			return i, nil
		}
		if !s.token(c) {
			return i, errSyntax
		}
	}
	return len(b), nil
}

// text scans the bytes of a string up to its end or to an escape. It returns the number of bytes before the
// one that ends the string or begins the escape, and false for an invalid byte.
func (s *jsonScanner) text(b []byte) (n int, ok bool) {
	for n < len(b) && b[n] != '"' && b[n] != '\\' && b[n] >= ' ' {
		n++
	}
	switch {
	case n == len(b):
	case b[n] == '\\':
		s.state = inEscape
	case b[n] < ' ':
		return n, false
	case s.key:
		s.state = wantColon
	default:
		s.state = wantMore
	}
	return n, true
}

// token scans a byte outside of numbers and of the plain text of strings.
func (s *jsonScanner) token(c byte) bool {
	closable := s.state == wantMore || s.state == wantFirstKey || s.state == wantFirstValue
	if closable && (c == '}' || c == ']') {
		// In ASCII, a closing bracket is two above the opening one.
		last := len(s.open) - 1
		matches := s.open[last] == c-2
		s.state, s.open = wantMore, s.open[:last]
		return matches
	}
	switch s.state {
	case wantFirstValue, wantValue:
		return s.begin(c)
	case wantFirstKey, wantKey:
		s.state, s.key = inString, true
		return c == '"'
	case wantColon:
		s.state = wantValue
		return c == ':'
	case wantMore:
		s.state = wantValue
		if s.open[len(s.open)-1] == '{' {
			s.state = wantKey
		}
		return c == ','
	case inEscape, inHex:
		return s.escape(c)
	case inWord:
		matches := c == s.rest[0]
		s.rest = s.rest[1:]
		if s.rest == "" {
			s.state = wantMore
		}
		return matches
	}
	return false
}

// escape scans a byte after a backslash.
func (s *jsonScanner) escape(c byte) bool {
	if s.state == inHex {
		s.hex--
		if s.hex == 0 {
			s.state = inString
		}
		return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
	}
	if c == 'u' {
		s.state, s.hex = inHex, 4
		return true
	}
	s.state = inString
	return bytes.IndexByte([]byte(`"\/bfnrt`), c) >= 0
}

// begin scans the first byte of a value.
func (s *jsonScanner) begin(c byte) bool {
	switch {
	case c == '{' || c == '[':
		s.state = wantFirstKey
		if c == '[' {
			s.state = wantFirstValue
		}
		s.open = append(s.open, c)
		return len(s.open) <= maxJSONDepth
	case c == '"':
		s.state, s.key = inString, false
	case c == '-':
		s.state = afterMinus
	case c == '0':
		s.state = afterZero
	case c >= '1' && c <= '9':
		s.state = inDigits
	case c == 't':
		s.state, s.rest = inWord, "rue"
	case c == 'f':
		s.state, s.rest = inWord, "alse"
	case c == 'n':
		s.state, s.rest = inWord, "ull"
	default:
		return false
	}
	return true
}

// The columns of numberStates are the bytes of numbers: 0, the other digits, the point, e and E, and the
// signs.
const (
	zeroByte = iota
	digitByte
	pointByte
	exponentByte
	signByte
)

// numberStates has the state of a number after each byte that may come next; in the other columns it has
// wantValue.
var numberStates = [...][5]jsonState{
	afterMinus:    {zeroByte: afterZero, digitByte: inDigits},
	afterPoint:    {zeroByte: inFraction, digitByte: inFraction},
	afterExponent: {zeroByte: inPower, digitByte: inPower, signByte: afterSign},
	afterSign:     {zeroByte: inPower, digitByte: inPower},
	afterZero:     {pointByte: afterPoint, exponentByte: afterExponent},
	inDigits: {zeroByte: inDigits, digitByte: inDigits, pointByte: afterPoint,
		exponentByte: afterExponent},
	inFraction: {zeroByte: inFraction, digitByte: inFraction, exponentByte: afterExponent},
	inPower:    {zeroByte: inPower, digitByte: inPower},
}

// number scans a byte of a number. It returns false for the first byte after it, or for an invalid byte,
// after which no token is accepted.
func (s *jsonScanner) number(c byte) bool {
	next := wantValue
	row := &numberStates[s.state]
	switch c {
	case '0':
		next = row[zeroByte]
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		next = row[digitByte]
	case '.':
		next = row[pointByte]
	case 'e', 'E':
		next = row[exponentByte]
	case '-', '+':
		next = row[signByte]
	}
	if next == wantValue {
		if s.state >= afterZero {
			s.state = wantMore
		}
		return false
	}
	s.state = next
	return true
}

// AppendIndented appends a valid JSON value to dst in the form of json.Indent, and reports whether it could:
// it appends nothing if the value has white space.
func AppendIndented(dst, value []byte, prefix, indent string) ([]byte, bool) {
	before, depth := len(dst), 0
	line := func() {
		dst = append(append(dst, '\n'), prefix...)
		for range depth {
			dst = append(dst, indent...)
		}
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch c {
		case '"':
			end := skipString(value, i)
			if end < 0 {
				return dst[:before], false
			}
			dst = append(dst, value[i:end]...)
			i = end - 1
		case '{', '[':
			dst = append(dst, c)
			// json.Indent keeps empty objects and lists on one line.
			if i+1 < len(value) && (value[i+1] == '}' || value[i+1] == ']') {
				i++
				dst = append(dst, value[i])
				continue
			}
			depth++
			line()
		case '}', ']':
			depth--
			line()
			dst = append(dst, c)
		case ',':
			dst = append(dst, c)
			line()
		case ':':
			dst = append(dst, ": "...)
		case ' ', '\t', '\r', '\n':
			return dst[:before], false
		default:
			dst = append(dst, c)
		}
	}
	return dst, true
}

// Compactor removes the white space of a JSON text, like json.Compact, in memory that does not grow with the
// text.
type Compactor struct {
	w io.Writer
	s jsonScanner
}

// NewCompactor returns a Compactor that writes to w.
func NewCompactor(w io.Writer) *Compactor { return &Compactor{w: w} }

// Write writes the next part of the text.
//
// Errors: an error for invalid JSON, or the error of the underlying writer.
func (w *Compactor) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n, err := w.s.feed(rest)
		if err != nil {
			return len(p) - len(rest), err
		}
		if n > 0 {
			_, err = w.w.Write(rest[:n])
		}
		if err != nil {
			return len(p) - len(rest), err
		}
		after := bytes.TrimLeft(rest[n:], " \t\r\n")
		if len(after) == len(rest) {
			// The value is complete, so this is trailing data.
			return len(p) - len(rest), errSyntax
		}
		rest = after
	}
	return len(p), nil
}

// Close returns an error if the text is incomplete. It does not close the underlying writer.
func (w *Compactor) Close() error {
	if w.s.complete() {
		return nil
	}
	return io.ErrUnexpectedEOF
}
