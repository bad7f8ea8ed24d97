package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// WriteJSON writes v as every --json prints it: with two spaces of indentation, one newline at the end,
// and no control character for a terminal.
func WriteJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(QuietJSON(text.Bytes()))
	return err
}

// QuietJSON returns the same JSON with the characters escaped that move a cursor or change the direction of
// text. JSON itself requires that for characters below a space only. They can only be in strings.
func QuietJSON(text []byte) []byte {
	loud := func(r rune) bool {
		return r >= 0x7f && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || r == '\u2028' ||
			r == '\u2029')
	}
	if bytes.IndexFunc(text, loud) < 0 {
		return text
	}
	var out bytes.Buffer
	out.Grow(len(text) + len(text)/8)
	for len(text) > 0 {
		n := bytes.IndexFunc(text, loud)
		if n < 0 {
			break
		}
		out.Write(text[:n])
		r := []rune(string(text[n:min(len(text), n+4)]))[0]
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
		text = text[n+len(string(r)):]
	}
	out.Write(text)
	return out.Bytes()
}
