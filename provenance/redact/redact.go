// Package redact removes declared secrets from texts, streams, JSON and log lines before they are shown,
// recorded or logged.
package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/skillsd/skillsd/provenance"
)

// Limits of a secret's value in bytes, without surrounding white space. A shorter value would be found by
// chance in unrelated text, and its matches would make it easy to guess.
const (
	MinBytes = 6
	MaxBytes = 32 << 10
	minLine  = 8 // minimum length of a line that is searched for separately
)

// ErrSize means that a secret is too short or too long to be redacted.
var ErrSize = errors.New("a secret has from 6 to 32768 bytes")

// A Redactor replaces declared secrets by [secret NAME]. It finds a secret in these forms: as is;
// percent-encoded, fully or in part, also twice; escaped as in JSON, HTML, a shell or a programming language,
// also twice; in hexadecimal, with or without separators; and in base64 of either alphabet, with or without
// padding, at any offset in the encoded text. Line breaks, spaces and NUL bytes within these forms do not
// hide it. Each line of a secret with several lines is searched for too.
//
// It does not find a secret that was changed in any other way: split into pieces with text between them,
// reversed, compressed, encrypted, hashed, in base64 of base64, or signaled by an exit code or by timing. It
// prevents accidental disclosure by scripts; a script that may reveal a secret on purpose must not get it, or
// its output must stay opaque.
//
// Its time is linear in the length of the searched text. A nil Redactor has no secrets. It is immutable.
type Redactor struct {
	plain, dense, base64, hex matcher
	window                    int // maximum length of a form in a text, in bytes
}

// New returns a Redactor for secrets, values by name, or nil without secrets. A name may begin with words in
// angle brackets, which then replace the secret instead of [secret NAME].
//
// Errors: ErrSize, with the name of the secret.
func New(secrets map[string]string) (*Redactor, error) {
	if len(secrets) == 0 {
		return nil, nil
	}
	r := &Redactor{}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		value := strings.TrimSpace(secrets[name])
		if len(value) < MinBytes || len(value) > MaxBytes {
			return nil, fmt.Errorf("secret %s: %w", name, ErrSize)
		}
		r.add(name, value)
		if lines := strings.Split(value, "\n"); len(lines) > 1 {
			for _, line := range lines {
				line = strings.TrimSpace(line)
				// Lines such as -----BEGIN PRIVATE KEY----- are the same in all keys.
				if len(line) >= minLine && !strings.HasPrefix(line, "-----") {
					r.add(name, line)
				}
			}
		}
	}
	return r, nil
}

func (r *Redactor) add(name, value string) {
	const spread = 16 // length of a byte in the loosest form
	r.window = max(r.window, spread*len(value)+1024)
	r.plain.add(pattern{name: name, text: value})
	// Host names, for example, are compared and recorded in lower case.
	for _, folded := range []string{strings.ToLower(value), strings.ToUpper(value)} {
		if folded != value && len(folded) == len(value) {
			r.plain.add(pattern{name: name, text: folded})
		}
	}
	// The query of a URL may have a plus sign for a space.
	if plus := strings.ReplaceAll(value, " ", "+"); plus != value {
		r.plain.add(pattern{name: name, text: plus})
	}
	packed := strings.Join(strings.FieldsFunc(value,
		func(c rune) bool { return c < 0x80 && unicode.IsSpace(c) }), "")
	if len(packed) >= MinBytes {
		r.dense.add(pattern{name: name, text: packed})
	}
	r.hex.add(pattern{name: name, text: hex.EncodeToString([]byte(value))})
	for before := range 3 {
		r.base64.add(base64Pattern(name, value, before))
	}
}

// base64Pattern returns the characters that all base64 texts share in which value begins before bytes into a
// group of three. The adjacent characters contain bits of the value and of a neighbour.
func base64Pattern(name, value string, before int) pattern {
	text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), value...))
	first := (8*before + 5) / 6
	bits := 8 * (before + len(value))
	return pattern{name: name, text: text[first : bits/6], left: before > 0, right: bits%6 > 0}
}

// pattern is one form of a secret.
type pattern struct {
	name, text  string
	left, right bool // an adjacent base64 character is part of the secret
}

// matcher finds patterns of at least four bytes in one pass.
type matcher struct {
	filter [1 << 10]uint64 // bit set of the hashes of the first four bytes
	begins map[uint32][]pattern
}

func (m *matcher) add(p pattern) {
	key := binary.LittleEndian.Uint32([]byte(p.text))
	if m.begins == nil {
		m.begins = map[uint32][]pattern{}
	}
	if slices.Contains(m.begins[key], p) {
		return
	}
	m.begins[key] = append(m.begins[key], p)
	h := gramHash(key)
	m.filter[h>>6] |= 1 << (h & 63)
}

func gramHash(key uint32) uint32 { return key * 0x9e3779b1 >> 16 }

// find calls hit for every occurrence in text, in order of position.
func (m *matcher) find(text []byte, hit func(from, to int, p *pattern)) {
	for i := 0; i+4 <= len(text); i++ {
		key := binary.LittleEndian.Uint32(text[i:])
		h := gramHash(key)
		if m.filter[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		for j := range m.begins[key] {
			p := &m.begins[key][j]
			if len(p.text) <= len(text)-i && string(text[i:i+len(p.text)]) == p.text {
				hit(i, i+len(p.text), p)
			}
		}
	}
}

// cut calls hit for every pattern with at least least characters at the edge where text was cut: its
// beginning at the end of text, or its end at the start.
func (m *matcher) cut(text []byte, least int, atEnd bool, hit func(from, to int, p *pattern)) {
	for _, list := range m.begins {
		for j := range list {
			p := &list[j]
			for n := min(len(text), len(p.text)-1); n >= least; n-- {
				from, part := 0, p.text[len(p.text)-n:]
				if atEnd {
					from, part = len(text)-n, p.text[:n]
				}
				if text[from] == part[0] && string(text[from:from+n]) == part {
					hit(from, from+n, p)
					break
				}
			}
		}
	}
}

// span is a part of a text to replace by the name of a secret, or to remove if the name is empty.
type span struct {
	from, to int
	name     string
}

// marker returns the text that replaces the span.
func (s span) marker() string {
	words, _, bracketed := strings.Cut(s.name, ">")
	switch {
	case s.name == "":
		return ""
	case bracketed && strings.HasPrefix(words, "<"):
		return words + ">"
	}
	return "[secret " + s.name + "]"
}

// finder calls hit for matches of the patterns of m in text.
type finder func(m *matcher, text []byte, hit func(from, to int, p *pattern))

// spans returns the matches of find in all readings of text, unsorted, as positions in text.
func (r *Redactor) spans(text []byte, find finder) []span {
	var found []span
	each := func(v view, m *matcher) {
		find(m, v.text, func(from, to int, p *pattern) {
			if p.left && from > 0 && inBase64(v.text[from-1]) {
				from--
			}
			if p.right && to < len(v.text) && inBase64(v.text[to]) {
				to++
			}
			s := span{from: v.start(from), to: v.end(to - 1), name: p.name}
			// A pass finds spans in order, so adjacent ones are joined at once.
			if n := len(found) - 1; n >= 0 && found[n].name == s.name && s.from >= found[n].from &&
				s.from <= found[n].to {
				found[n].to = max(found[n].to, s.to)
				return
			}
			found = append(found, s)
		})
	}
	for _, v := range decodings(text) {
		each(v, &r.plain)
		packed := v.packed()
		each(packed, &r.dense)
		each(packed.standard(), &r.base64)
		each(v.hexDigits(), &r.hex)
	}
	return found
}

func inBase64(c byte) bool {
	return isAlphanumeric(c) || c == '+' || c == '/'
}

// find returns the spans of secrets in text, unsorted.
func (r *Redactor) find(text []byte) []span {
	// Readings take much more memory than the text, so it is searched in parts. These overlap by more than
	// the longest form of a secret.
	const part, slack = 256 << 10, 64
	overlap := max(r.window, 32<<10)
	var found []span
	for from := 0; from == 0 || from+overlap < len(text); from += part {
		base := max(from-slack, 0)
		for _, s := range r.spans(text[base:min(from+part+overlap, len(text))], (*matcher).find) {
			found = append(found, span{from: base + s.from, to: base + s.to, name: s.name})
		}
	}
	return found
}

// Contains reports whether b contains a secret.
func (r *Redactor) Contains(b []byte) bool { return r != nil && len(r.find(b)) > 0 }

// Bytes returns b with every secret replaced, or b itself if it contains none.
func (r *Redactor) Bytes(b []byte) []byte {
	if r == nil {
		return b
	}
	return replace(b, r.find(b))
}

// Texts returns a list with every secret replaced in its elements.
func (r *Redactor) Texts(list []string) []string {
	if r == nil || list == nil {
		return list
	}
	clean := make([]string, len(list))
	for i, s := range list {
		clean[i] = r.Text(s)
	}
	return clean
}

// replace sorts spans and replaces them by their names.
func replace(b []byte, spans []span) []byte {
	if len(spans) == 0 {
		return b
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	var out bytes.Buffer
	at := 0
	for i := 0; i < len(spans); {
		s := spans[i]
		for i++; i < len(spans) && spans[i].from < s.to; i++ {
			s.to = max(s.to, spans[i].to)
			if s.name == "" {
				s.name = spans[i].name
			}
		}
		out.Write(b[at:s.from])
		out.WriteString(s.marker())
		at = s.to
	}
	out.Write(b[at:])
	return out.Bytes()
}

// cutMark marks where a text was truncated.
const cutMark = "…"

const (
	// maxCutMarks is the maximum number of marks to examine; a text of clipped words has fewer. maxCut is the
	// number of bytes to examine before each, more than a quoted clipped word has.
	maxCutMarks = 4
	maxCut      = 2 << 10
)

// Text returns a text with every secret replaced by [secret NAME]. The beginning of a secret before a
// truncation, which "…" marks, is removed.
func (r *Redactor) Text(s string) string {
	if r == nil || len(s) < MinBytes {
		return s
	}
	b := []byte(s)
	spans := r.find(b)
	for at, marks := 0, 0; marks < maxCutMarks; marks++ {
		i := strings.Index(s[at:], cutMark)
		if i < 0 {
			break
		}
		at += i
		from := max(at-maxCut, 0)
		for _, s := range r.cutAt(b[from:at], minCut, true) {
			spans = append(spans, span{from: from + s.from, to: at})
		}
		at += len(cutMark)
	}
	if len(spans) == 0 {
		return s
	}
	return string(replace(b, spans))
}

// JSON applies Text to every string in a JSON text, including keys. The rest stays equal byte for byte. It
// uses [json.RawMessage], because encoding/json encodes a []byte in an interface as base64.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	if r == nil {
		return raw
	}
	var out []byte
	done := 0
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		from := i
		// Only the bounds of the string are needed here; json.Unmarshal decodes it.
		for i++; i < len(raw) && raw[i] != '"'; i++ {
			if raw[i] == '\\' {
				i++
			}
		}
		token := raw[from:min(i+1, len(raw))]
		var s string
		if len(token) < MinBytes+2 || json.Unmarshal(token, &s) != nil {
			continue
		}
		clean := r.Text(s)
		if clean == s {
			continue
		}
		if quoted, err := provenance.Encode(clean); err == nil {
			out = append(append(out, raw[done:from]...), quoted...)
			done = i + 1
		}
	}
	if done == 0 {
		return raw
	}
	return append(out, raw[done:]...)
}
