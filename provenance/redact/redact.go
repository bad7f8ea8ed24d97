// Package redact takes declared secrets out of texts, streams, JSON and log lines before they are
// shown, recorded or logged.
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

// Bounds of a secret's value, in bytes, without the white space around it. A shorter value would be found by
// chance in unrelated text, and could be guessed from how often it is found.
const (
	MinBytes = 6
	MaxBytes = 32 << 10
	minLine  = 8 // of a line of a secret that is searched for by itself
)

// ErrSize means that a secret is too short or too long to be redacted.
var ErrSize = errors.New("a secret has from 6 to 32768 bytes")

// A Redactor replaces declared secrets by [secret NAME] wherever they show. It finds a secret as it
// is; percent-encoded, fully or in part, twice too; escaped as in JSON, HTML, a shell or a
// programming language, twice too; in hexadecimal, with or without separators; and in base64 of
// either alphabet, with or without padding, wherever in the encoded text the secret begins. Line
// breaks, spaces and NUL bytes between the characters of these forms do not hide it. Of a secret of
// several lines, each line is looked for too.
//
// It does not find a secret that was changed in any other way: split into pieces with something
// between them, reversed, compressed, encrypted, hashed, in base64 of base64, or signaled by an exit
// code or by how long something takes. It keeps secrets out of what scripts print by accident; a
// script that means to reveal a secret must not get it, or its output must stay opaque.
//
// Its time is linear in the bytes it searches. A nil Redactor has no secrets. It is immutable.
type Redactor struct {
	plain, dense, base64, hex matcher
	window                    int // raw bytes in which the longest form fits
}

// New returns a Redactor of secrets, values by name, or nil without secrets. A name may begin with words in
// angle brackets, which then take the place of [secret NAME].
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
				if len(line) >= minLine && !strings.HasPrefix(line, "-----") {
					r.add(name, line)
				}
			}
		}
	}
	return r, nil
}

func (r *Redactor) add(name, value string) {
	const spread = 16 // of the loosest form, of a byte
	r.window = max(r.window, spread*len(value)+1024)
	r.plain.add(pattern{name: name, text: value})
	// Names of hosts, for one, are compared and recorded in lower case.
	for _, folded := range []string{strings.ToLower(value), strings.ToUpper(value)} {
		if folded != value && len(folded) == len(value) {
			r.plain.add(pattern{name: name, text: folded})
		}
	}
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
// group of three. A character next to them holds bits of the value and of a neighbour.
func base64Pattern(name, value string, before int) pattern {
	text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), value...))
	first := (8*before + 5) / 6
	bits := 8 * (before + len(value))
	return pattern{name: name, text: text[first : bits/6], left: before > 0, right: bits%6 > 0}
}

// pattern is one form of a secret.
type pattern struct {
	name, text  string
	left, right bool // a character of the alphabet before or after it belongs to it
}

// matcher finds patterns of at least four bytes, all in one pass.
type matcher struct {
	filter [1 << 10]uint64 // of the hashes of first four bytes
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

// find calls hit for every occurrence in text, in the order of their beginnings.
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

// cut calls hit for every pattern of which at least least characters are where text was cut: its beginning at
// the end of text, or its end at the start.
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

// span is a part of a text to be replaced by the name of a secret, or removed if the name is empty.
type span struct {
	from, to int
	name     string
}

type finder func(m *matcher, text []byte, hit func(from, to int, p *pattern))

// spans returns what find finds in all readings of text, unsorted, as positions in text.
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
			// A pass finds spans in order, so those that touch are joined at once.
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
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

// find returns where secrets show in text, unsorted. It searches a part at a time, since a reading takes much
// more memory than the text; parts overlap by more than the longest form of a secret.
func (r *Redactor) find(text []byte) []span {
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

// Contains reports whether b shows a secret.
func (r *Redactor) Contains(b []byte) bool { return r != nil && len(r.find(b)) > 0 }

// Bytes returns b with every secret replaced; b itself if it shows none.
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

// replace replaces spans, which it sorts, by their names.
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
		if words, _, bracketed := strings.Cut(s.name, ">"); bracketed && words[0] == '<' {
			out.WriteString(words + ">")
		} else if s.name != "" {
			out.WriteString("[secret " + s.name + "]")
		}
		at = s.to
	}
	out.Write(b[at:])
	return out.Bytes()
}

// cutMark marks where a text was cut to a length.
const cutMark = "…"

const (
	// maxCutMarks is the number of marks that are examined; a text made of clipped words has fewer. maxCut
	// is the number of bytes before each, more than a clipped word has when it is quoted.
	maxCutMarks = 4
	maxCut      = 2 << 10
)

// Text returns a text with every secret replaced by [secret NAME]. The beginning of a secret where the
// text was cut, which "…" shows, is left out.
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

// JSON is Text for every string of a JSON text, keys included. The rest stays byte for byte. It takes and
// returns [json.RawMessage], because encoding/json writes a []byte that stands in an interface as base64.
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
