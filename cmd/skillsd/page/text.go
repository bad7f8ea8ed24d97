package page

import (
	"encoding/hex"
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

// segment is a part of a text of ours: a command of skillsd, ready for copying, or what is between commands.
type segment struct {
	Command string
	Parts   []part
}

// advice returns a text of ours that may have commands between backquotes. One with a character that does
// not show is not offered for copying.
func advice(text string) (list []segment) {
	for text != "" {
		at := command().FindStringSubmatchIndex(text)
		if at == nil || len(list) > 8 {
			return append(list, segment{Parts: parts(text)})
		}
		name := text[at[2]:at[3]]
		if p := parts(name); len(p) != 1 || p[0].Mark != "" {
			return append(list, segment{Parts: parts(text)})
		}
		if at[0] > 0 {
			list = append(list, segment{Parts: parts(text[:at[0]])})
		}
		list, text = append(list, segment{Command: name}), text[at[1]:]
	}
	return list
}

// stamp returns a time exactly, for the attribute from which a browser shows it in its own zone.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// clock returns a time for a reader without scripts.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// plural returns a number with its noun.
func plural(n any, noun string) string {
	count, _ := strconv.Atoi(fmt.Sprint(n)) // of an int or a uint64
	return report.Plural(count, noun)
}

// took returns a duration in milliseconds for a reader.
func took(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return strconv.FormatInt(ms, 10) + " ms"
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

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
	if sum, ok := strings.CutPrefix(text, "sha256:"); ok {
		return sum[:min(len(sum), 12)]
	}
	if strings.HasPrefix(text, "ses_") && len(text) > 16 {
		return "…" + text[len(text)-12:]
	}
	if _, err := hex.DecodeString(text); err == nil && len(text) == 64 {
		return text[:12]
	}
	if r := []rune(text); len(r) > 24 {
		return string(r[:24]) + "…"
	}
	return text
}
