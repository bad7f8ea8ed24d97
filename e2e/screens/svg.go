package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// columns is the width of the terminal; a longer line continues on the next, as it does there.
const columns = 80

const (
	cellWidth  = 8.4
	lineHeight = 19
	margin     = 16
	background = "#0d1117"
	plain      = "#d7dde4"
)

// colours are the sixteen of a terminal, dark ones first.
var colours = [16]string{"#6e7681", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf",
	"#d7dde4",
	"#8b949e", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff"}

// cell is one character of the terminal and how it looks.
type cell struct {
	r     rune
	style style
}

type style struct {
	colour    string
	bold, dim bool
}

// terminal returns the lines that a terminal shows after it was sent these bytes: text, line
// ends, carriage returns, erasing to the end of the line, and colours. Anything else is an error.
func terminal(sent []byte) ([][]cell, error) {
	lines, at, now := [][]cell{nil}, 0, style{colour: plain}
	last := func() *[]cell { return &lines[len(lines)-1] }
	for len(sent) > 0 {
		r, n := utf8.DecodeRune(sent)
		switch {
		case r == '\n':
			lines, at = append(lines, nil), 0
		case r == '\r':
			at = 0
		case r == '\x1b':
			final := bytes.IndexAny(sent, "mK")
			if final < 2 || sent[1] != '[' {
				return nil, fmt.Errorf("the escape sequence %.10q is not known", sent)
			}
			if sent[final] == 'K' {
				*last() = (*last())[:min(at, len(*last()))]
			} else if err := now.change(string(sent[2:final])); err != nil {
				return nil, err
			}
			n = final + 1
		case r < ' ' || r == 0x7f || r == utf8.RuneError:
			return nil, fmt.Errorf("the byte %q is not known", sent[0])
		default:
			if at == columns {
				lines, at = append(lines, nil), 0
			}
			for len(*last()) <= at {
				*last() = append(*last(), cell{' ', style{colour: plain}})
			}
			(*last())[at] = cell{r, now}
			at++
		}
		sent = sent[n:]
	}
	for len(lines) > 0 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines, nil
}

// change applies the parameters of a sequence that selects how characters look.
func (s *style) change(parameters string) error {
	for _, word := range strings.Split(parameters, ";") {
		code := 0
		if word != "" {
			var err error
			if code, err = strconv.Atoi(word); err != nil {
				return fmt.Errorf("the colour %q is not known", parameters)
			}
		}
		switch {
		case code == 0:
			*s = style{colour: plain}
		case code == 1:
			s.bold = true
		case code == 2:
			s.dim = true
		case code == 22:
			s.bold, s.dim = false, false
		case code >= 30 && code <= 37:
			s.colour = colours[code-30]
		case code == 39:
			s.colour = plain
		case code >= 90 && code <= 97:
			s.colour = colours[code-90+8]
		default:
			return fmt.Errorf("the colour %d is not known", code)
		}
	}
	return nil
}

// picture draws lines as SVG. Each run of characters has its place and its length, so that columns
// stay columns in whatever font the reader has.
func picture(title string, lines [][]cell) []byte {
	var b bytes.Buffer
	width, height := 2*margin+columns*cellWidth, 2*margin+len(lines)*lineHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]d" `+
		`width="%[1]g" height="%[2]d" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" rx=\"6\" fill=\"%s\"/>\n",
		escaped(title), background)
	b.WriteString(`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,` +
		`'DejaVu Sans Mono',monospace" font-size="14" xml:space="preserve">` + "\n")
	for i, line := range lines {
		for from := 0; from < len(line); {
			to := from + 1
			for to < len(line) && line[to].style == line[from].style {
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
	look := ` fill="` + cells[0].style.colour + `"`
	if cells[0].style.bold {
		look += ` font-weight="bold"`
	}
	if cells[0].style.dim {
		look += ` opacity="0.7"`
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
