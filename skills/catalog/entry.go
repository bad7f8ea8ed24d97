package catalog

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills"
)

// full stands for a description that is not cut.
const full = math.MaxInt

// maxDescription is how much of a description is looked at, in bytes.
const maxDescription = 16 << 10

// entry is a skill as its line shows it. The description is made plain when it is first needed,
// because most of a large catalogue is shown by name.
type entry struct {
	name  string
	width int // of name, in characters
	raw   string

	plain           bool // description and its width are set
	description     string
	descriptionWide int
}

func newEntry(sk *skills.Skill) entry {
	name := quoteName(sk.Path)
	return entry{name: name, width: width(name), raw: sk.Description()}
}

// text is the description as one line, cut to at characters.
func (e *entry) text(at int) string {
	if at == 0 {
		return ""
	}
	if !e.plain {
		e.description = oneLine(e.raw[:min(len(e.raw), maxDescription)])
		if len(e.raw) > maxDescription {
			e.description = shorten(e.description, width(e.description))
		}
		e.descriptionWide, e.plain = width(e.description), true
	}
	if e.descriptionWide > at {
		return shorten(e.description, at)
	}
	return e.description
}

// cost is the width of the entry's line with its newline.
func (e *entry) cost(at int) int {
	text := e.text(at)
	switch {
	case text == "":
		return e.width + 1
	case e.descriptionWide <= at:
		return e.width + len(": ") + e.descriptionWide + 1
	}
	return e.width + len(": ") + width(text) + 1
}

func (e *entry) line(at int) string {
	if text := e.text(at); text != "" {
		return e.name + ": " + text
	}
	return e.name
}

func cost(entries []entry, at int) int {
	sum := 0
	for i := range entries {
		sum += entries[i].cost(at)
	}
	return sum
}

func lines(entries []entry, at int) string {
	var b strings.Builder
	for i := range entries {
		b.WriteString(entries[i].line(at))
		b.WriteByte('\n')
	}
	return b.String()
}

// ellipsis marks a cut. It is three characters because a client that writes "…" out as "..." would
// push the text over its limit and cut it.
const ellipsis = "..."

// shorten cuts text to at most most characters, the ellipsis included: at a space when one lies in
// the second half, else in the middle of a word, since not every script has spaces.
func shorten(text string, most int) string {
	cut, spaces := 0, 0 // cut: end of the last word that fits whole
	count := 0
	for i, r := range text {
		if count == most-len(ellipsis) {
			if r == ' ' || cut == 0 || spaces < most/2 {
				cut = i
			}
			break
		}
		if r == ' ' {
			cut, spaces = i, count
		}
		count++
	}
	return strings.TrimRight(text[:cut], " ,;:.-–—(") + ellipsis
}

// quoteName returns a path as it stands in a list: in quotes when it holds anything but letters,
// digits and the punctuation of ordinary file names, so that it cannot pass for two names or for a
// name with a description.
func quoteName(path string) string {
	for _, r := range path {
		if !ordinary(r) {
			return strconv.QuoteToGraphic(path)
		}
	}
	return path
}

func ordinary(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '-' <= r && r <= '9' || r == '_' || r == '+' || r == '@'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

// oneLine makes text plain: all space is single spaces, an ellipsis is three dots, and neither
// control nor invisible characters are left. The joiners that scripts and emoji need stay.
func oneLine(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	space := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			space = b.Len() > 0
			continue
		case invisible(r):
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		if r == '…' {
			b.WriteString(ellipsis)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// invisible reports characters that show nothing and can carry text or reorder what is shown:
// format characters except the joiners, and the variation selectors beyond the first 16.
func invisible(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	if r < 0xad || r == nonJoiner || r == joiner {
		return false
	}
	return unicode.Is(unicode.Cf, r) || 0xe0100 <= r && r <= 0xe01ef
}

func width(s string) int { return utf8.RuneCountInString(s) }

// join puts blocks of whole lines and a last line together, without a final newline.
func join(pinned, others, tail string) string {
	return strings.TrimSuffix(pinned+others+tail, "\n")
}
