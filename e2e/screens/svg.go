package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// columns is the width of the terminal; a longer line continues on the next, as it does there.
const columns = 80

const (
	cellWidth  = 8.4
	lineHeight = 19
	margin     = 16
)

// cell is one character of the terminal and how it looks.
type cell struct {
	r    rune
	bold bool
}

// terminal returns the lines that a terminal shows after it was sent these bytes: text, line
// ends, carriage returns, erasing to the end of the line, and bold text. Anything else is an error.
func terminal(sent []byte) ([][]cell, error) {
	lines, at, bold := [][]cell{nil}, 0, false
	last := func() *[]cell { return &lines[len(lines)-1] }
	for len(sent) > 0 {
		r, n := utf8.DecodeRune(sent)
		switch {
		case r == '\n':
			lines, at = append(lines, nil), 0
		case r == '\r':
			at = 0
		case r == '\x1b':
			switch rest := string(sent); {
			case strings.HasPrefix(rest, "\x1b[K"):
				*last() = (*last())[:min(at, len(*last()))]
				n = len("\x1b[K")
			case strings.HasPrefix(rest, "\x1b[1m"), strings.HasPrefix(rest, "\x1b[0m"):
				bold = rest[2] == '1'
				n = len("\x1b[1m")
			default:
				return nil, fmt.Errorf("the escape sequence %.10q is not known", sent)
			}
		case r < ' ' || r == 0x7f || r == utf8.RuneError:
			return nil, fmt.Errorf("the byte %q is not known", sent[0])
		default:
			if at == columns {
				lines, at = append(lines, nil), 0
			}
			for len(*last()) <= at {
				*last() = append(*last(), cell{r: ' '})
			}
			(*last())[at] = cell{r, bold}
			at++
		}
		sent = sent[n:]
	}
	for len(lines) > 0 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines, nil
}

// picture draws lines as SVG. Each run of characters has its place and its length, so that columns
// stay columns in whatever font the reader has.
func picture(title string, lines [][]cell) []byte {
	var b bytes.Buffer
	width, height := 2*margin+columns*cellWidth, 2*margin+len(lines)*lineHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]d" `+
		`width="%[1]g" height="%[2]d" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" rx=\"6\" fill=\"#0d1117\"/>\n",
		escaped(title))
	b.WriteString(`<g fill="#d7dde4" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,` +
		`'DejaVu Sans Mono',monospace" font-size="14" xml:space="preserve">` + "\n")
	for i, line := range lines {
		for from := 0; from < len(line); {
			to := from + 1
			for to < len(line) && line[to].bold == line[from].bold {
				to++
			}
			b.WriteString(text(line[from:to], from, margin+i*lineHeight+14))
			from = to
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// text is the element of cells that look alike, the first in a column; empty for spaces.
func text(cells []cell, column, y int) string {
	var s strings.Builder
	for _, c := range cells {
		s.WriteRune(c.r)
	}
	shown := strings.TrimRight(s.String(), " ")
	column += len(shown) - len(strings.TrimLeft(shown, " "))
	shown = strings.TrimLeft(shown, " ")
	if shown == "" {
		return ""
	}
	look := ""
	if cells[0].bold {
		look = ` font-weight="bold"`
	}
	x, length := margin+float64(column)*cellWidth, float64(utf8.RuneCountInString(shown))*cellWidth
	return fmt.Sprintf(`<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n", x, y, length, look,
		escaped(shown))
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
