package cfharness

import (
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
// other keys keep their order.
//
// Errors: ErrInvalid if data is not JSON in UTF-8.
func Stringify(data []byte) (json.RawMessage, error) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, fmt.Errorf("stringify: %w: not JSON", provenance.ErrInvalid)
	}
	s := stringifier{in: data, out: make([]byte, 0, len(data))}
	s.value()
	return s.out, nil
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

// stringifier walks a text that is known to be valid JSON.
type stringifier struct {
	in  []byte
	at  int
	out []byte
}

// next skips white space and returns the next byte.
func (s *stringifier) next() byte {
	for strings.IndexByte(" \t\r\n", s.in[s.at]) >= 0 {
		s.at++
	}
	return s.in[s.at]
}

func (s *stringifier) value() {
	switch s.next() {
	case '{':
		s.object()
	case '[':
		s.array()
	case '"':
		s.text()
	case 't', 'n':
		s.out = append(s.out, s.in[s.at:s.at+4]...)
		s.at += 4
	case 'f':
		s.out = append(s.out, s.in[s.at:s.at+5]...)
		s.at += 5
	default:
		s.number()
	}
}

func (s *stringifier) array() {
	s.at++
	s.out = append(s.out, '[')
	for first := true; s.next() != ']'; first = false {
		if !first {
			s.at++ // the comma
			s.out = append(s.out, ',')
		}
		s.value()
	}
	s.at++
	s.out = append(s.out, ']')
}

// member is a key with its value, as written to out.
type member struct {
	key        string // in quotes
	index      uint32 // if the key is an array index
	isIndex    bool
	start, end int
}

func (s *stringifier) object() {
	s.at++
	begin := len(s.out)
	s.out = append(s.out, '{')
	var members []member
	for first := true; s.next() != '}'; first = false {
		if !first {
			s.at++
			s.out = append(s.out, ',')
			s.next()
		}
		m := member{start: len(s.out)}
		s.text()
		m.key = string(s.out[m.start:])
		m.index, m.isIndex = arrayIndex(m.key)
		s.next()
		s.at++ // the colon
		s.out = append(s.out, ':')
		s.value()
		m.end = len(s.out)
		members = append(members, m)
	}
	s.at++
	if ordered, changed := order(members); changed {
		body := make([]byte, 0, len(s.out)-begin)
		for i, m := range ordered {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, s.out[m.start:m.end]...)
		}
		s.out = append(s.out[:begin+1], body...)
	}
	s.out = append(s.out, '}')
}

// order puts members in the order of an ECMAScript object's own keys, and reports whether that
// changed anything.
func order(members []member) (ordered []member, changed bool) {
	at := make(map[string]int, len(members))
	for _, m := range members {
		if i, known := at[m.key]; known {
			ordered[i].start, ordered[i].end = m.start, m.end
			continue
		}
		at[m.key] = len(ordered)
		ordered = append(ordered, m)
	}
	slices.SortStableFunc(ordered, func(a, b member) int {
		switch {
		case a.isIndex && b.isIndex:
			return int(int64(a.index) - int64(b.index))
		case a.isIndex:
			return -1
		case b.isIndex:
			return 1
		}
		return 0
	})
	return ordered, !slices.Equal(ordered, members)
}

// arrayIndex reads a key in quotes that is the canonical form of a number below 2^32-1.
func arrayIndex(quoted string) (uint32, bool) {
	key := quoted[1 : len(quoted)-1]
	n, err := strconv.ParseUint(key, 10, 32)
	return uint32(n), err == nil && n != math.MaxUint32 && strconv.FormatUint(n, 10) == key
}

func (s *stringifier) number() {
	end := s.at
	for end < len(s.in) && strings.IndexByte("+-.0123456789eE", s.in[end]) >= 0 {
		end++
	}
	f, _ := strconv.ParseFloat(string(s.in[s.at:end]), 64) // out of range is infinite, which is null
	s.at = end
	s.out = appendNumber(s.out, f)
}

// appendNumber appends f as ECMAScript's Number::toString does, and null for numbers that JSON does not have.
func appendNumber(out []byte, f float64) []byte {
	switch abs := math.Abs(f); {
	case math.IsInf(f, 0):
		return append(out, "null"...)
	case f == 0:
		return append(out, '0')
	case abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(out, f, 'f', -1, 64)
	}
	text := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	return append(out, mantissa+"e"+exponent[:1]+strings.TrimLeft(exponent[1:], "0")...)
}

const (
	surrogateMin    = 0xD800
	lowSurrogateMin = 0xDC00
	surrogateMax    = 0xDFFF
)

// text writes a string with the fewest escapes. A surrogate without its other half stays an escape.
func (s *stringifier) text() {
	s.at++
	s.out = append(s.out, '"')
	for s.in[s.at] != '"' {
		c := s.in[s.at]
		if c != '\\' {
			s.out = append(s.out, c)
			s.at++
			continue
		}
		if s.in[s.at+1] != 'u' {
			s.escaped(s.in[s.at+1])
			s.at += 2
			continue
		}
		unit := s.unit(s.at)
		s.at += 6
		if unit >= surrogateMin && unit < lowSurrogateMin && s.in[s.at] == '\\' && s.in[s.at+1] == 'u' {
			if low := s.unit(s.at); low >= lowSurrogateMin && low <= surrogateMax {
				s.at += 6
				s.out = utf8.AppendRune(s.out, 0x10000+(unit-surrogateMin)<<10+(low-lowSurrogateMin))
				continue
			}
		}
		s.rune(unit)
	}
	s.at++
	s.out = append(s.out, '"')
}

// unit reads the \uXXXX at a position.
func (s *stringifier) unit(at int) rune {
	n, _ := strconv.ParseUint(string(s.in[at+2:at+6]), 16, 16) // valid JSON has four digits there
	return rune(n)
}

// escaped writes the character of the escape sequence of a backslash and c.
func (s *stringifier) escaped(c byte) {
	switch c {
	case 'b':
		s.rune('\b')
	case 'f':
		s.rune('\f')
	case 'n':
		s.rune('\n')
	case 'r':
		s.rune('\r')
	case 't':
		s.rune('\t')
	default:
		s.rune(rune(c))
	}
}

func (s *stringifier) rune(r rune) {
	const short = "\b\f\n\r\t\"\\"
	switch i := strings.IndexRune(short, r); {
	case i >= 0:
		s.out = append(s.out, '\\', `bfnrt"\`[i])
	case r < 0x20, r >= surrogateMin && r <= surrogateMax:
		s.out = fmt.Appendf(s.out, `\u%04x`, r)
	default:
		s.out = utf8.AppendRune(s.out, r)
	}
}
