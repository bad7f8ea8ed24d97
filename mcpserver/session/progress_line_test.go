package session

import (
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	for _, tt := range []struct {
		writes []string
		want   string
	}{
		{nil, ""},
		{[]string{"page 1"}, ""},
		{[]string{"page 1\npa", "ge 2\npage"}, "; last line: page 2"},
		{[]string{"done\n\n \n"}, "; last line: done"},
		{[]string{"10 %\r20 %\r"}, "; last line: 20 %"},
		{[]string{"\x1b[31mred\x1b[0m \u202eevil\u200b\tx\n"}, "; last line: [31mred[0m evil x"},
		{[]string{"\xff!\n"}, "; last line: \uFFFD!"},
		{[]string{strings.Repeat("ä", 100) + "\n"}, "; last line: " + strings.Repeat("ä", 79) + "…"},
		{[]string{strings.Repeat("x", 1<<16), "\n\n"}, "; last line: " + strings.Repeat("x", 79) + "…"},
	} {
		l := new(lastLine)
		for _, text := range tt.writes {
			l.Write([]byte(text))
		}
		if got := l.shown(); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.writes, got, tt.want)
		}
		if len(l.rest) > maxHeldLine {
			t.Errorf("%d bytes are held", len(l.rest))
		}
	}
	if got := (*lastLine)(nil).shown(); got != "" {
		t.Errorf("nothing is %q", got)
	}
}
