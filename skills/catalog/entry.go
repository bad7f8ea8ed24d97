package catalog

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/skillsd/skillsd/skills"
)

// full is the length of a description that is not truncated.
const full = math.MaxInt

// maxDescription is the maximum length of a description that is used, in bytes.
const maxDescription = 16 << 10

// entry is a skill in the catalogue. Its parts are computed when needed, because most of a large catalogue is
// not shown.
type entry struct {
	sk   *skills.Skill
	opts *Options
	raw  string // the description as written
	at   int    // number of characters to show

	framed bool // before, after and wide are set
	// before and after are the texts around the description, adjacent without one.
	before, after string
	wide          int // width of before and after, in characters

	plain           bool // the following fields are set
	description     string
	descriptionWide int
	shownWide       int // width of the description when escaped
}

// addWhen appends when_to_use to the description, like clients that load skills themselves.
func (e *entry) addWhen() {
	when := e.sk.Frontmatter.WhenToUse
	if e.opts.Format == FormatXML || e.raw == "" || strings.TrimSpace(when) == "" {
		return
	}
	e.raw = strings.TrimSpace(e.raw) + " - " + when
}

// frame sets the texts around the description.
func (e *entry) frame() {
	if e.framed {
		return
	}
	e.framed = true
	if e.opts.Format != FormatXML {
		e.before, e.after = quoteName(e.sk.Path), "\n"
		if e.opts.Location != nil {
			e.after = " (" + e.location(e.opts.Location) + ")\n"
		}
		e.wide = width(e.before) + width(e.after)
		return
	}
	location := e.location(Location)
	if e.opts.Location != nil {
		location = e.location(e.opts.Location)
	}
	e.before = "<skill>\n<name>\n" + escape(e.xmlName()) + "\n</name>\n"
	e.after = "<location>\n" + escape(location) + "\n</location>\n</skill>\n"
	e.wide = width(e.before) + width(e.after)
}

// location returns the result of of, or a URI if it would have to be changed to be shown, or could be
// mistaken for several lines: the changed location would name another file.
func (e *entry) location(of func(sk *skills.Skill) string) string {
	own := of(e.sk)
	if lines(own) != own || strings.ContainsAny(own, "\n\ufffe\uffff") {
		return e.sk.URI(cmp.Or(e.sk.File, "SKILL.md"))
	}
	return own
}

func (e *entry) xmlName() string { return lines(cmp.Or(e.sk.Name(), e.sk.Path)) }

// isLong reports whether a name has more than maxName characters.
func (e *entry) isLong() bool {
	if e.opts.Format == FormatXML {
		return len(cmp.Or(e.sk.Name(), e.sk.Path)) > maxName && width(e.xmlName()) > maxName
	}
	e.frame()
	return e.wide-width(e.after) > maxName
}

// prepare computes the plain description if any of it is shown.
func (e *entry) prepare(at int) {
	if at == 0 || e.plain {
		return
	}
	clean := Plain
	if e.opts.Format == FormatXML {
		clean = lines
	}
	// The raw text is cut first: a description may have the size of a SKILL.md.
	e.description = clean(e.raw[:min(len(e.raw), maxDescription)])
	if len(e.raw) > maxDescription {
		e.description = shorten(e.description, width(e.description))
	}
	e.descriptionWide, e.plain = width(e.description), true
	e.shownWide = e.escapedWidth(e.description) + e.descriptionWide
}

// escapedWidth returns the number of characters that escaping adds to a text.
func (e *entry) escapedWidth(text string) int {
	if e.opts.Format != FormatXML {
		return 0
	}
	return len(escape(text)) - len(text)
}

// markup returns the width of the texts around a description.
func (e *entry) markup() int {
	if e.opts.Format == FormatXML {
		return len(xmlDescription) + len(xmlDescriptionEnd)
	}
	return len(textDescription)
}

// cost returns the width of the entry including its newline.
func (e *entry) cost(at int) int {
	e.frame()
	e.prepare(at)
	switch {
	case at == 0 || e.descriptionWide == 0:
		return e.wide
	case e.descriptionWide <= at:
		return e.wide + e.markup() + e.shownWide
	}
	kept := keep(e.description, at)
	return e.wide + e.markup() + width(kept) + e.escapedWidth(kept) + len(ellipsis)
}

const (
	textDescription   = ": "
	xmlDescription    = "<description>\n"
	xmlDescriptionEnd = "\n</description>\n"
)

func (e *entry) write(b *strings.Builder) {
	e.frame()
	e.prepare(e.at)
	text := e.description
	if e.descriptionWide > e.at {
		text = shorten(text, e.at)
	}
	b.WriteString(e.before)
	switch {
	case e.at == 0 || text == "":
	case e.opts.Format == FormatXML:
		b.WriteString(xmlDescription)
		b.WriteString(escape(text))
		b.WriteString(xmlDescriptionEnd)
	default:
		b.WriteString(textDescription)
		b.WriteString(text)
	}
	b.WriteString(e.after)
}

// cost returns the total width of entries, or some width above most if it is larger.
func cost(entries []entry, at, most int) int {
	sum := 0
	for i := range entries {
		sum += entries[i].cost(at)
		if sum > most {
			break
		}
	}
	return sum
}

// ellipsis marks a truncation. It is three characters because a client that replaces "…" by "..." would make
// the text longer than its limit and truncate it.
const ellipsis = "..."

// shorten truncates text to at most most characters, including the ellipsis.
func shorten(text string, most int) string { return keep(text, most) + ellipsis }

// keep returns the part of a text that shorten keeps: up to a space if there is one in the second half, else
// to the middle of a word, since some scripts have no spaces.
func keep(text string, most int) string {
	cut, spaces := 0, 0 // cut: end of the last word that fits whole
	count := 0
	for i, r := range text {
		space := r == ' ' || r == '\n'
		count += units(r)
		if count > most-len(ellipsis) {
			if space || cut == 0 || spaces < most/2 {
				cut = i
			}
			break
		}
		if space {
			cut, spaces = i, count-1
		}
	}
	return strings.TrimRight(text[:cut], " \n,;:.-–—(")
}

// quoteName returns a path for a list: in quotes if it contains anything but letters, digits and the
// punctuation of ordinary file names, so that it cannot be mistaken for two names or for a name with a
// description.
func quoteName(path string) string {
	switch {
	case strings.ContainsFunc(path, blank):
		// Invisible letters must be seen as escapes, so that no path looks like another one.
		return strconv.QuoteToASCII(path)
	case strings.ContainsFunc(path, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && (r > '9' || r < '-') &&
			!strings.ContainsRune("_+@", r)
	}):
		return strconv.QuoteToGraphic(path)
	}
	return path
}

// blank reports whether a letter or mark is invisible, such as the fillers of Hangul.
func blank(r rune) bool {
	return r >= 0xad && unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// Plain returns text in the form of a catalogue: on one line, with single spaces and three dots for an
// ellipsis, without control and invisible characters, except for the joiners that scripts and emoji need.
func Plain(text string) string {
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

// lines returns text without the characters that Plain drops, but with its line breaks and spaces.
func lines(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
		case unicode.IsControl(r):
			return ' '
		case invisible(r):
			return -1
		}
		return r
	}, strings.TrimSpace(text))
}

// invisible reports whether a character is invisible and can carry text or reorder other text: format
// characters except the joiners, blank ones, and the variation selectors after the first 16.
func invisible(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	if r < 0xad || r == nonJoiner || r == joiner {
		return false
	}
	return unicode.Is(unicode.Cf, r) || blank(r) || 0xe0100 <= r && r <= 0xe01ef
}

// width returns the length of s in UTF-16 code units, as clients count characters.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += units(r)
	}
	return n
}

func units(r rune) int {
	if r > 0xffff {
		return 2
	}
	return 1
}
