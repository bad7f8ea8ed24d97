package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestWriteJSON wants the same value back, and nothing in between that a terminal obeys.
func TestWriteJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "plain", "äöü 中文 🎈", "a\x1b[2Jb", "\u009b31m", "\u202egnp", "\u2028\u2029", "\x7f",
		"\u200b\ufeff", "\U000e0041tag", "\\u009b", "\u009b\u009b\u202e", "\ufffd", "end\u009b",
	} {
		var out bytes.Buffer
		if err := WriteJSON(&out, map[string]string{text: text}); err != nil {
			t.Fatalf("WriteJSON(%q): %v", text, err)
		}
		if shown := Printable(strings.ReplaceAll(out.String(), "\n", "")); shown != strings.ReplaceAll(
			out.String(), "\n", "") {
			t.Errorf("WriteJSON(%q) = %q: a terminal obeys it", text, out.String())
		}
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back) != 1 || back[text] != text {
			t.Errorf("WriteJSON(%q) is read as %q, %v", text, back, err)
		}
	}
}
