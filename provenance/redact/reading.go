package redact

import (
	"bytes"
	"html"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// view is a decoding of a text, with the position in the text of each decoded byte.
type view struct {
	text       []byte
	from, upTo []int32 // nil: identity
}

func (v *view) start(i int) int {
	if v.from == nil {
		return i
	}
	return int(v.from[i])
}

func (v *view) end(i int) int {
	if v.from == nil {
		return i + 1
	}
	return int(v.upTo[i])
}

func newView(size int) view {
	return view{text: make([]byte, 0, size), from: make([]int32, 0, size), upTo: make([]int32, 0, size)}
}

// put appends c, which is the decoding of bytes i to j of another view.
func (v *view) put(of *view, i, j int, c byte) {
	v.text = append(v.text, c)
	v.from = append(v.from, int32(of.start(i)))
	v.upTo = append(v.upTo, int32(of.end(j-1)))
}

// escapes are the supported escapes: the byte that begins one, how often it may be nested, and a
// function that returns the length of an escape at the start of b and its decoding.
var escapes = []struct {
	mark  byte
	times int
	step  func(b []byte) (int, []byte)
}{{'\\', 2, backslash}, {'%', 2, percent}, {'&', 1, reference}, {'\'', 1, quote}}

// decodings returns the readings of a text: unchanged, and with its escapes decoded.
func decodings(text []byte) []view {
	views := []view{{text: text}}
	for _, e := range escapes {
		v := views[0]
		for range e.times {
			if bytes.IndexByte(v.text, e.mark) < 0 {
				break
			}
			next := newView(len(v.text))
			for i := 0; i < len(v.text); {
				n, what := 1, v.text[i:i+1]
				if v.text[i] == e.mark {
					n, what = e.step(v.text[i:])
				}
				for _, c := range what {
					next.put(&v, i, i+n, c)
				}
				i += n
			}
			// Every escape is longer than its decoding, so an equal length means that none was decoded.
			if len(next.text) == len(v.text) {
				break
			}
			v = next
			views = append(views, v)
		}
	}
	return views
}

// quote decodes single quotes within single quotes of a shell.
func quote(b []byte) (int, []byte) {
	for _, q := range []string{`'\''`, `'"'"'`} {
		if bytes.HasPrefix(b, []byte(q)) {
			return len(q), b[:1]
		}
	}
	return 1, b[:1]
}

// percent decodes %XX.
func percent(b []byte) (int, []byte) {
	if n, ok := hexNumber(b, 1, 2); ok {
		return 3, []byte{byte(n)}
	}
	return 1, b[:1]
}

// hexNumber parses exactly n hexadecimal digits.
func hexNumber(b []byte, at, n int) (uint32, bool) {
	value, err := strconv.ParseUint(string(b[min(at, len(b)):min(at+n, len(b))]), 16, 32)
	return uint32(value), err == nil && at+n <= len(b)
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// backslash decodes the escape at the start of b, and returns its length and its decoding.
func backslash(b []byte) (int, []byte) {
	if len(b) < 2 {
		return 1, b[:1]
	}
	const letters, controls = "abefnrtv", "\a\b\x1b\f\n\r\t\v"
	switch c := b[1]; {
	case c == 'U':
		if n, ok := hexNumber(b, 2, 8); ok {
			return 10, utf8.AppendRune(nil, rune(n))
		}
	case c == 'u':
		return unicodeEscape(b)
	case c == 'x':
		for digits := 2; digits > 0; digits-- {
			if n, ok := hexNumber(b, 2, digits); ok {
				return 2 + digits, []byte{byte(n)}
			}
		}
	case isOctal(c):
		return octalEscape(b)
	// A line continuation of a shell or of C.
	case c == '\n':
		return 2, nil
	// Punctuation means itself. A letter without a meaning may be anything, and stays unchanged.
	case !isAlphanumeric(c):
		return 2, b[1:2]
	default:
		if i := strings.IndexByte(letters, c); i >= 0 {
			return 2, []byte{controls[i]}
		}
	}
	return 1, b[:1]
}

// octalEscape decodes a backslash and one to three octal digits.
func octalEscape(b []byte) (int, []byte) {
	n, value := 1, 0
	for n < 4 && n < len(b) && isOctal(b[n]) {
		value = value<<3 | int(b[n]-'0')
		n++
	}
	return n, []byte{byte(value)}
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// unicodeEscape decodes \u{X} and \uXXXX, also as a surrogate pair.
func unicodeEscape(b []byte) (int, []byte) {
	if len(b) > 3 && b[2] == '{' {
		if end := bytes.IndexByte(b[:min(len(b), 11)], '}'); end > 3 {
			if n, err := strconv.ParseUint(string(b[3:end]), 16, 31); err == nil {
				return end + 1, utf8.AppendRune(nil, rune(n))
			}
		}
	}
	n, ok := hexNumber(b, 2, 4)
	if !ok {
		return 1, b[:1]
	}
	// JSON and JavaScript escape characters beyond U+FFFF as two surrogates.
	if len(b) > 7 && b[6] == '\\' && b[7] == 'u' {
		low, _ := hexNumber(b, 8, 4)
		if r := utf16.DecodeRune(rune(n), rune(low)); r != utf8.RuneError {
			return 12, utf8.AppendRune(nil, r)
		}
	}
	return 6, utf8.AppendRune(nil, rune(n))
}

// reference decodes an HTML character reference.
func reference(b []byte) (int, []byte) {
	const longest = 12
	token := string(b[:bytes.IndexByte(b[:min(len(b), longest)], ';')+1])
	if text := html.UnescapeString(token); text != token {
		return len(token), []byte(text)
	}
	return 1, b[:1]
}

// packed returns v without white space and NUL bytes, which wrap and space texts.
func (v view) packed() view {
	const blank = " \t\n\v\f\r\x00"
	if !bytes.ContainsAny(v.text, blank) {
		return v
	}
	out := newView(len(v.text))
	for i, c := range v.text {
		if strings.IndexByte(blank, c) < 0 {
			out.put(&v, i, i+1, c)
		}
	}
	return out
}

// standard returns v with the URL alphabet of base64 replaced by the standard one.
func (v view) standard() view {
	if bytes.ContainsAny(v.text, "-_") {
		v.text = bytes.ReplaceAll(bytes.ReplaceAll(v.text, []byte("-"), []byte("+")), []byte("_"),
			[]byte("/"))
	}
	return v
}

// hexDigits returns only the hexadecimal digits of v, in lower case, with a break where two are further apart
// than bytes in a hex dump.
func (v view) hexDigits() view {
	const apart = 6
	out := newView(len(v.text) / 2)
	last := 0
	for i, c := range v.text {
		d := hexDigit(c)
		if d < 0 || c == '0' && v.prefixAt(i) {
			continue
		}
		if i-last > apart {
			out.put(&v, i, i+1, '.')
		}
		out.put(&v, i, i+1, "0123456789abcdef"[d])
		last = i
	}
	if n := len(v.text); n-last > apart {
		out.put(&v, n-1, n, '.')
	}
	return out
}

// prefixAt reports whether a word that begins with 0x is at i.
func (v view) prefixAt(i int) bool {
	return i+1 < len(v.text) && (v.text[i+1] == 'x' || v.text[i+1] == 'X') &&
		(i == 0 || hexDigit(v.text[i-1]) < 0)
}
