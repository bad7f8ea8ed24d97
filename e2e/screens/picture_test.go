package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/e2e/browser"
)

// glyph is a character at a place in a picture, in pixels.
type glyph struct {
	Char   string
	Left   float64
	Middle float64 // from the top
}

// place is the cell of the terminal to whose start a glyph is nearest.
func (g *glyph) place() (row, column int) {
	return int(math.Floor((g.Middle - margin) / lineHeight)), int(math.Round((g.Left - margin) / cellWidth))
}

// meant returns the glyphs of a picture, spaces too, where its file has them.
func meant(t *testing.T, svg []byte) (list []glyph) {
	t.Helper()
	var file struct {
		Texts []struct {
			X    float64 `xml:"x,attr"`
			Y    float64 `xml:"y,attr"`
			Text string  `xml:",chardata"`
		} `xml:"g>text"`
	}
	if err := xml.Unmarshal(svg, &file); err != nil {
		t.Fatal(err)
	}
	for _, text := range file.Texts {
		x := text.X
		for _, r := range text.Text {
			list = append(list, glyph{string(r), x, text.Y - 5})
			x += cellWidth
		}
	}
	return list
}

// grid returns the lines as glyphs show them, without spaces at their ends. Two glyphs in one
// cell fail the test.
func grid(t *testing.T, glyphs []glyph) (lines []string) {
	t.Helper()
	var screen [][]string
	for _, g := range glyphs {
		if g.Char == " " {
			continue
		}
		row, column := g.place()
		if row < 0 || column < 0 {
			t.Errorf("%q is outside of the picture: %+v", g.Char, g)
			continue
		}
		for len(screen) <= row {
			screen = append(screen, nil)
		}
		for len(screen[row]) <= column {
			screen[row] = append(screen[row], " ")
		}
		if had := screen[row][column]; had != " " {
			t.Errorf("row %d, column %d has %q and %q", row, column, had, g.Char)
		}
		screen[row][column] = g.Char
	}
	for _, row := range screen {
		lines = append(lines, strings.Join(row, ""))
	}
	return lines
}

// shown is an expression: the glyphs of a picture, spaces too, where the browser draws them.
const shown = `[...document.querySelectorAll("text")].flatMap(e => [...e.firstChild.data].map((char, i) => {
	const range = document.createRange();
	range.setStart(e.firstChild, i);
	range.setEnd(e.firstChild, i + 1);
	const r = range.getBoundingClientRect();
	return {char, left: r.left, middle: (r.top + r.bottom) / 2};
}))`

// monospaced is an expression: whether the font of a picture is monospaced, as its name promises.
const monospaced = `(() => {
	const c = document.createElement("canvas").getContext("2d");
	c.font = "14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
	return c.measureText("i").width === c.measureText("W").width;
})()`

// screenText is sent to a terminal for a picture of all that is hard to place.
const screenText = "\x1b[1m$ a  command\x1b[0m\r\n\r\n  KEY     VALUE   \r\n" +
	"\x1b[32m✓\x1b[0m name    one two   three  <&>\r\n" +
	"                                                                 far right\r\n" +
	"\x1b[31mred\x1b[0m \x1b[33m  amber  \x1b[0m plain\r\n" +
	"iiiiiiiiiiiiiiiiiiii    WWWWWWWWWWWWWWWWWWWW    .\r\n"

// TestPicture wants every character in its column, and no spaces that a browser would leave out.
func TestPicture(t *testing.T) {
	t.Parallel()
	lines, err := terminal([]byte(screenText))
	if err != nil {
		t.Fatal(err)
	}
	svg := picture("a title", lines)
	if got, want := grid(t, meant(t, svg)), words(lines); !slices.Equal(got, want) {
		t.Errorf("the picture has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for line := range strings.Lines(string(svg)) {
		_, text, _ := strings.Cut(line, ">")
		text, _, is := strings.Cut(text, "</text>")
		if is && (text == "" || text != strings.Join(strings.Fields(text), " ")) {
			t.Errorf("a browser leaves out spaces of %q", text)
		}
	}
}

// words are lines of a terminal as text, without spaces at their ends.
func words(lines [][]cell) (list []string) {
	for _, line := range lines {
		var s strings.Builder
		for _, c := range line {
			s.WriteRune(c.r)
		}
		list = append(list, strings.TrimRight(s.String(), " "))
	}
	return list
}

// frameStart begins each frame of a moving picture.
const frameStart = `<g class="f `

// framesOf returns the frames of a moving picture, each as a picture; a picture that does not move is one frame.
func framesOf(svg string) (parts []string) {
	head, frames, moves := strings.Cut(svg, frameStart)
	if !moves {
		return []string{svg}
	}
	for one := range strings.SplitSeq(frames, frameStart) {
		_, lines, _ := strings.Cut(one, "\n")
		lines, _, _ = strings.Cut(lines, "</g>")
		parts = append(parts, head+lines+"</g>\n</svg>\n")
	}
	return parts
}

// TestPicturesInBrowser wants a reader of each picture of the README to read, in a browser, the words that its
// file has, in their columns.
func TestPicturesInBrowser(t *testing.T) {
	t.Parallel()
	path := browser.Find()
	if path == "" {
		t.Skip("missing capability: a Chromium (Debian: chromium-headless-shell)")
	}
	files, err := filepath.Glob("../../.github/screens/*.svg")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pictures: %v", err)
	}
	lines, err := terminal([]byte(screenText))
	if err != nil {
		t.Fatal(err)
	}
	drawn := filepath.Join(t.TempDir(), "drawn.svg")
	if err := os.WriteFile(drawn, picture("a title", lines), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := browser.Start(t.Context(), path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	tab, err := b.Tab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var even bool
	if err := tab.Eval(monospaced, &even); err != nil {
		t.Fatal(err)
	}
	if !even {
		t.Skip("missing capability: a font whose characters are equally wide (Debian: fonts-dejavu-core)")
	}
	for _, file := range append(files, drawn) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			svg, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			file, err = filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := tab.Open("file://" + file); err != nil {
				t.Fatal(err)
			}
			for i, part := range framesOf(string(svg)) {
				in := shown
				if strings.Contains(string(svg), frameStart) {
					in = strings.Replace(shown, `"text"`, fmt.Sprintf(`".f%d text"`, i), 1)
				}
				var glyphs []glyph
				if err := tab.Eval(in, &glyphs); err != nil {
					t.Fatal(err)
				}
				if got, want := grid(t, glyphs), grid(t, meant(t, []byte(part))); !slices.Equal(got, want) {
					t.Errorf("frame %d: the browser shows\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}
