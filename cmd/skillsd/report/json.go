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
	var out bytes.Buffer
	out.Grow(len(text))
	for _, r := range string(text) {
		if r < 0x7f || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.Bytes()
}
