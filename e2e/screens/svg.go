package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// columns is the width of the terminal. Longer lines are broken between words, so that digests and words stay
// whole.
const columns = 100

const (
	cellWidth  = 8.4
	lineHeight = 19
	margin     = 16
)

// cell is one character of the terminal and its look.
type cell struct {
	r    rune
	look look
}

// look is the look of characters; the zero look is plain.
type look struct {
	bold  bool
	shade string // a colour; empty means the picture's default
}

// looks maps escape sequences to looks.
var looks = map[string]look{
	"\x1b[0m": {}, "\x1b[1m": {bold: true},
	"\x1b[31m": {shade: "#ff7b72"}, "\x1b[32m": {shade: "#7ee787"}, "\x1b[33m": {shade: "#e3b341"},
}

// terminal returns the lines that a terminal shows after receiving these bytes: text, line ends, carriage
// returns, erasing to the end of the line, and text in known looks. Anything else is an error.
func terminal(sent []byte) ([][]cell, error) {
	lines, at, now := [][]cell{nil}, 0, look{}
	last := func() *[]cell { return &lines[len(lines)-1] }
	for len(sent) > 0 {
		r, n := utf8.DecodeRune(sent)
		switch {
		case r == '\n':
			lines, at = append(lines, nil), 0
		case r == '\r':
			at = 0
		case r == '\x1b':
			end := bytes.IndexAny(sent, "Km") + 1
			chosen, known := looks[string(sent[:end])]
			n = end
			switch {
			case string(sent[:end]) == "\x1b[K":
				*last() = (*last())[:min(at, len(*last()))]
			case known:
				now = chosen
			default:
				return nil, fmt.Errorf("the escape sequence %.10q is not known", sent)
			}
		case r < ' ' || r == 0x7f || r == utf8.RuneError:
			return nil, fmt.Errorf("the byte %q is not known", sent[0])
		default:
			if at == columns {
				whole, from := *last(), columns
				for r != ' ' && from > 0 && whole[from-1].r != ' ' {
					from--
				}
				if from == 0 {
					from = columns // the word is longer than a line
				}
				// The limit of capacity keeps an append to this line from writing into the next one.
				*last() = whole[:from:from]
				lines, at = append(lines, slices.Clone(whole[from:])), columns-from
				// The space is where the line was broken.
				if at == 0 && r == ' ' {
					break
				}
			}
			for len(*last()) <= at {
				*last() = append(*last(), cell{r: ' '})
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

// picture draws lines as SVG. Each run of characters has an explicit position and length, so that columns
// stay aligned in any font. A run contains no two consecutive spaces, and none at its ends: browsers draw
// such spaces as one or none, and stretch the rest. The attributes for other behaviour are not supported
// consistently.
func picture(title string, lines [][]cell) []byte {
	var b bytes.Buffer
	width, height := 2*margin+columns*cellWidth, 2*margin+len(lines)*lineHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]d" `+
		`width="%[1]g" height="%[2]d" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" rx=\"6\" fill=\"#0d1117\"/>\n",
		escaped(title))
	b.WriteString(`<g fill="#d7dde4" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,` +
		`'DejaVu Sans Mono',monospace" font-size="14">` + "\n")
	drawLines(&b, lines)
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// drawLines draws the text of lines.
func drawLines(b *bytes.Buffer, lines [][]cell) {
	for i, line := range lines {
		for from := 0; from < len(line); {
			if line[from].r == ' ' {
				from++
				continue
			}
			to := from + 1
			for to < len(line) && continues(line, to) {
				to++
			}
			b.WriteString(text(line[from:to], from, margin+i*lineHeight+14))
			from = to
		}
	}
}

// frame is a screen of a moving picture, and how long it is shown.
type frame struct {
	lines   [][]cell
	seconds float64
}

// rows is the height of the terminal in a moving picture. Of a longer screen the last lines are shown.
const rows = 24

// moving draws frames as an SVG that shows one after the other, and begins again. A reader who wants no
// motion, and a program that draws none, gets the last one.
func moving(title string, frames []frame) []byte {
	var b, style bytes.Buffer
	all, at := 0.0, 0.0
	for _, f := range frames {
		all += f.seconds
	}
	style.WriteString(".f{visibility:hidden}.last{visibility:visible}" +
		"@media(prefers-reduced-motion:no-preference){")
	for i, f := range frames {
		fmt.Fprintf(&style, ".f%[1]d{animation:f%[1]d %.1[2]fs step-end infinite}", i, all)
		begins, ends := 100*at/all, 100*(at+f.seconds)/all
		fmt.Fprintf(&style, "@keyframes f%d{0%%{visibility:hidden}%.2f%%{visibility:visible}", i, begins)
		if i+1 < len(frames) {
			fmt.Fprintf(&style, "%.2f%%{visibility:hidden}", ends)
		}
		style.WriteString("}")
		at += f.seconds
	}
	style.WriteString("}")
	width, height := 2*margin+columns*cellWidth, 2*margin+rows*lineHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]d" `+
		`width="%[1]g" height="%[2]d" role="img">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n"+
		"<rect width=\"100%%\" height=\"100%%\" rx=\"6\" fill=\"#0d1117\"/>\n", escaped(title), style.Bytes())
	b.WriteString(`<g fill="#d7dde4" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,` +
		`'DejaVu Sans Mono',monospace" font-size="14">` + "\n")
	for i, f := range frames {
		last := ""
		if i+1 == len(frames) {
			last = " last"
		}
		fmt.Fprintf(&b, "<g class=\"f f%d%s\">\n", i, last)
		drawLines(&b, f.lines[max(0, len(f.lines)-rows):])
		b.WriteString("</g>\n")
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// continues reports whether the cell at i belongs to the same run as the previous cell.
func continues(line []cell, i int) bool {
	if line[i].look != line[i-1].look {
		return false
	}
	return line[i].r != ' ' || i+1 < len(line) && line[i+1].r != ' ' && line[i+1].look == line[i].look
}

// text returns the element for a run that starts in a column.
func text(run []cell, column, y int) string {
	var shown strings.Builder
	for _, c := range run {
		shown.WriteRune(c.r)
	}
	style := ""
	if run[0].look.bold {
		style = ` font-weight="bold"`
	}
	if shade := run[0].look.shade; shade != "" {
		style += ` fill="` + shade + `"`
	}
	x, length := margin+float64(column)*cellWidth, float64(len(run))*cellWidth
	return fmt.Sprintf(`<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n", x, y, length, style,
		escaped(shown.String()))
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // writing to a Builder cannot fail
	return b.String()
}
