package page

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// The longest foreign texts that a page shows, in bytes.
const (
	maxLine  = 2 << 10
	maxBlock = 64 << 10
)

// part is a part of a foreign text: one that is shown as it is, or the name of a character that would not
// show.
type part struct {
	Text string
	Mark string
}

// parts returns a foreign text for a place in a line.
func parts(text any) []part { return split(fmt.Sprint(text), maxLine, "") }

// blockParts returns a foreign text for a block of its own, in which lines and tabs stay.
func blockParts(text any) []part { return split(fmt.Sprint(text), maxBlock, "\n\t") }

func split(text string, most int, keep string) []part {
	rest := 0
	if len(text) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text, rest = text[:cut], len(text)-cut
	}
	var list []part
	begin := 0
	flush := func(at int) {
		if begin < at {
			list = append(list, part{Text: text[begin:at]})
		}
	}
	for at, r := range text {
		_, size := utf8.DecodeRuneInString(text[at:])
		one := text[at : at+size]
		if strings.Contains(keep, one) || r != '\t' && report.Visible(one) == one {
			continue
		}
		flush(at)
		mark := fmt.Sprintf("U+%04X", r)
		if r == utf8.RuneError && size == 1 {
			mark = fmt.Sprintf("byte %02X", text[at])
		}
		list = append(list, part{Mark: mark})
		begin = at + size
	}
	flush(len(text))
	if rest > 0 {
		list = append(list, part{Mark: "… " + report.Plural(rest, "more byte")})
	}
	return list
}

var command = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("`(skillsd [^`]+)`") })

// commands returns the commands in a text of ours, for copying. One with a character that does not show is
// not among them.
func commands(text string) (list []string) {
	for _, found := range command().FindAllStringSubmatch(text, 3) {
		if p := parts(found[1]); len(p) == 1 && p[0].Mark == "" {
			list = append(list, found[1])
		}
	}
	return list
}

// stamp returns a time exactly, for the attribute from which a browser shows it in its own zone.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// clock returns a time for a reader without scripts.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// size returns a number of bytes for a reader.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// short returns what distinguishes an id or a digest for a reader.
func short(id any) string {
	text := fmt.Sprint(id)
	if hex, ok := strings.CutPrefix(text, "sha256:"); ok {
		return hex[:min(len(hex), 12)]
	}
	if strings.HasPrefix(text, "ses_") && len(text) > 16 {
		return "…" + text[len(text)-12:]
	}
	if r := []rune(text); len(r) > 24 {
		return string(r[:24]) + "…"
	}
	return text
}
