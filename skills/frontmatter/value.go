package frontmatter

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// valueKind is the type of a value in the YAML 1.2 core schema.
type valueKind int

const (
	null valueKind = iota
	boolean
	number
	text
	list
	mapping
)

// value is a YAML value. Its methods may be called on nil, which has no members.
type value struct {
	kind   valueKind
	source string // of a scalar, as written
	number float64
	keys   []string // of a mapping, one per item
	items  []value
}

// member returns the value of a key of a mapping, or nil.
func (v *value) member(key string) *value {
	if v == nil {
		return nil
	}
	for i, k := range v.keys {
		if k == key {
			return &v.items[i]
		}
	}
	return nil
}

// scalar returns the text of a scalar, or "" for other values.
func (v *value) scalar() string {
	if v == nil || v.kind == null || v.kind == list || v.kind == mapping {
		return ""
	}
	return strings.TrimSpace(v.source)
}

func (v *value) text(key string) string { return v.member(key).scalar() }

// keyText returns a scalar in the form of a JSON key.
func (v *value) keyText() string {
	switch v.kind {
	case null:
		return ""
	case text:
		return v.source
	}
	return string(v.appendJSON(nil))
}

// flag returns a boolean member. A value that is neither true nor false is read as the opposite of the
// default, which is the stricter choice.
func (v *value) flag(key string, byDefault bool) bool {
	m := v.member(key)
	if m == nil || m.kind == null {
		return byDefault
	}
	switch strings.ToLower(m.scalar()) {
	case "true", "yes", "on", "1":
		return true
	case "false", "no", "off", "0":
		return false
	}
	return !byDefault
}

// words returns the texts in a list, or the parts of a text as split by split.
func (v *value) words(split func(string) []string) []string {
	if v == nil || v.kind != list {
		return split(v.scalar())
	}
	var words []string
	for i := range v.items {
		if word := v.items[i].scalar(); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// appendJSON appends the value as JSON, with keys in the order of the file.
func (v *value) appendJSON(out []byte) []byte {
	switch v.kind {
	case null:
		return append(out, "null"...)
	case boolean:
		return append(out, strings.ToLower(v.source)...)
	case number:
		return appendNumber(out, v.number)
	case text:
		return appendString(out, v.source)
	case list:
		out = append(out, '[')
		for i := range v.items {
			if i > 0 {
				out = append(out, ',')
			}
			out = v.items[i].appendJSON(out)
		}
		return append(out, ']')
	}
	out = append(out, '{')
	for i, key := range v.keys {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, key), ':')
		out = v.items[i].appendJSON(out)
	}
	return append(out, '}')
}

// appendNumber appends a number in the form of JavaScript's JSON, because verifiers compare with that:
// numbers without a notation become null.
func appendNumber(out []byte, n float64) []byte {
	switch {
	case math.IsInf(n, 0) || math.IsNaN(n):
		return append(out, "null"...)
	// JavaScript writes -0 as 0.
	case n == 0:
		return append(out, '0')
	}
	raw, err := json.Marshal(n)
	if err != nil {
		panic("skills: a finite number does not marshal: " + err.Error())
	}
	return append(out, raw...)
}

// appendString appends a JSON string with as few escapes as possible.
func appendString(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			out = utf8.AppendRune(out, r)
			i += size
			continue
		}
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, '\\', 'n')
		case c < 0x20:
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			out = append(out, c)
		}
		i++
	}
	return append(out, '"')
}

// resolve returns a plain scalar with its type in the YAML 1.2 core schema (YAML 1.2.2, 10.3.2). The library
// uses 1.1, where dates, yes and no have types, and 0777 is octal.
func resolve(s string) value {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return value{kind: null, source: s}
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return value{kind: boolean, source: s}
	case ".nan", ".NaN", ".NAN":
		return value{kind: number, source: s, number: math.NaN()}
	}
	if n, ok := coreNumber(s); ok {
		return value{kind: number, source: s, number: n}
	}
	return value{kind: text, source: s}
}

func coreNumber(s string) (n float64, ok bool) {
	if c := s[0]; c != '+' && c != '-' && c != '.' && (c < '0' || c > '9') {
		return 0, false
	}
	for _, base := range []struct {
		prefix, digits string
		factor         float64
	}{{"0o", "01234567", 8}, {"0x", "0123456789abcdef", 16}} {
		// The core schema allows no sign here, unlike in decimal numbers.
		if digits, ok := strings.CutPrefix(s, base.prefix); ok {
			for _, digit := range strings.ToLower(digits) {
				n = n*base.factor + float64(strings.IndexRune(base.digits, digit))
			}
			return n, digits != "" && strings.Trim(strings.ToLower(digits), base.digits) == ""
		}
	}
	unsigned := strings.TrimPrefix(s, "-")
	if unsigned == s {
		unsigned = strings.TrimPrefix(s, "+")
	}
	if unsigned == ".inf" || unsigned == ".Inf" || unsigned == ".INF" {
		return math.Inf(1), true
	}
	if !isDecimal(unsigned) {
		return 0, false
	}
	n, _ = strconv.ParseFloat(s, 64) // infinite if out of range, as in JavaScript
	return n, true
}

// isDecimal matches (\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?.
func isDecimal(s string) bool {
	whole := digits(s)
	rest, fraction := s[whole:], 0
	if strings.HasPrefix(rest, ".") {
		fraction = digits(rest[1:])
		rest = rest[1+fraction:]
	}
	if whole == 0 && fraction == 0 {
		return false
	}
	if rest == "" {
		return true
	}
	if rest[0] != 'e' && rest[0] != 'E' {
		return false
	}
	rest = rest[1:]
	if strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		rest = rest[1:]
	}
	return rest != "" && digits(rest) == len(rest)
}

// digits returns the number of decimal digits at the start of s.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}
