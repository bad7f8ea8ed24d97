package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestTerminal(t *testing.T) {
	for _, c := range []struct{ name, sent, want string }{
		{"lines", "a\r\nb\r\n", "a\nb"},
		{"a counter that is erased", "scan: 1 of 2\x1b[K\rscan: 2 of 2\x1b[K\r\x1b[Kdone\r\n", "done"},
		{"a shorter line over a longer one", "abc\rx\r\n", "xbc"},
		{"a line longer than the terminal", strings.Repeat("x", columns) + "y", strings.Repeat("x", columns) + "\ny"},
		{"words", strings.Repeat("x", columns-3) + " yyyy z", strings.Repeat("x", columns-3) + " \nyyyy z"},
		{"a space at the end", strings.Repeat("x", columns) + " y", strings.Repeat("x", columns) + "\ny"},
		{"colours", "\x1b[32mok\x1b[0m \x1b[31mbad\x1b[0m", "ok bad"},
		{"bold text", "\x1b[1mbad\x1b[0m good", "bad good"},
	} {
		lines, err := terminal([]byte(c.sent))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, line := range lines {
			var s strings.Builder
			for _, cell := range line {
				s.WriteRune(cell.r)
			}
			got = append(got, s.String())
		}
		if got := strings.Join(got, "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, sent := range []string{"\x1b[2J", "\x1b]0;title\a", "\x1b[38m", "\a", "\xff", "\x1b", "\x1b[", "\x1b[xm"} {
		if _, err := terminal([]byte(sent)); err == nil {
			t.Errorf("%q is taken", sent)
		}
	}
}

func FuzzTerminal(f *testing.F) {
	f.Add([]byte("\x1b[1m✓\x1b[0m a\r\x1b[Kb<&>\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		lines, err := terminal(sent)
		if err != nil {
			return
		}
		decoder := xml.NewDecoder(strings.NewReader(string(picture("a <title>", lines))))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A moving picture is well-formed, and shows its last frame where nothing moves.
func TestMoving(t *testing.T) {
	var frames []frame
	for _, text := range []string{"$ a", "$ a\r\n<b> & c", strings.Repeat("line\r\n", rows+5) + "end"} {
		lines, err := terminal([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame{lines, 1.5})
	}
	picture := string(moving("a <title>", frames))
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]int{">line<": rows - 1, ">end<": 1, "@keyframes": 3, `class="f f2 last"`: 1,
		"@media(prefers-reduced-motion:no-preference){": 1, "%!": 0} {
		if got := strings.Count(picture, text); got != want {
			t.Errorf("%q is there %d times, want %d", text, got, want)
		}
	}
}
