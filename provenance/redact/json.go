package redact

import (
	"encoding/json"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

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

// JSON is Text for every string of a JSON text, keys included. The rest stays byte for byte.
func (r *Redactor) JSON(raw []byte) []byte {
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
