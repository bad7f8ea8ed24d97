package page

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/pattern"
)

// The maximum lengths of foreign texts on a page, in bytes.
const (
	maxArg   = 80
	maxLine  = 2 << 10
	maxBlock = 64 << 10
)

// part is a part of a foreign text: unchanged text, or the name of an invisible character.
type part struct {
	Text string
	Mark string
}

// parts returns foreign text for a place within a line.
func parts(text any) []part { return split(fmt.Sprint(text), maxLine, "") }

// blockParts returns foreign text for a block of its own, with lines and tabs kept.
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
		if strings.Contains(keep, one) || report.Visible(one) == one {
			continue
		}
		flush(at)
		mark := fmt.Sprintf("U+%04X", r)
		// A valid U+FFFD has three bytes.
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

// piece is a part of a text of skillsd: text, or a command to copy.
type piece struct {
	Text, Command string
}

// lead is a text of skillsd before a command in backquotes, ending one with a command at its end. A name that
// a skill's author chose comes after it, or is quoted in a command as one shell word.
var (
	lead   = pattern.New(`^(?:[a-z ,;]*|(?:[a-z ,;]*; )?(?:and )?to [a-z ,;]*: )$`)
	ending = pattern.New("^([a-z ,;]*: )(skillsd [^`,;]+)$")
)

// advice returns a text of skillsd in pieces. A command with an invisible character, or one that a name could
// have brought along, is not offered for copying.
//
// More than one part means an invisible character or a cut, and the pasted command would not be what is
// shown.
func advice(text string) []piece {
	if at := ending().FindStringSubmatch(text); at != nil && len(parts(at[2])) == 1 {
		return []piece{{Text: at[1]}, {Command: at[2]}}
	}
	split := strings.Split(text, "`")
	last := len(split) - 1
	list := []piece{}
	for i, t := range split {
		command := i%2 == 1
		switch {
		case command && (!strings.HasPrefix(t, "skillsd ") || !quotesClosed(t) || len(parts(t)) != 1),
			i == last && command, i < last && !command && !lead().MatchString(t):
			return []piece{{Text: text}}
		case command:
			list = append(list, piece{Command: t})
		case t != "":
			list = append(list, piece{Text: t})
		}
	}
	return list
}

// quotesClosed reports whether a command ends outside of its single quotes, as a shell reads them.
func quotesClosed(command string) bool {
	quoted := false
	for i := 0; i < len(command); i++ {
		switch {
		case command[i] == '\'':
			quoted = !quoted
		case command[i] == '\\' && !quoted:
			i++
		}
	}
	return !quoted
}

// stamp returns an exact time, for the attribute from which a browser shows it in its own zone.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// clock returns a time for a reader without scripts.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// plural returns a number with its noun.
func plural(n any, noun string) string {
	count, _ := strconv.Atoi(fmt.Sprint(n)) // an int or a uint64
	return report.Plural(count, noun)
}

// took formats a duration in milliseconds.
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

// size formats a number of bytes.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// short returns the distinctive part of an id or a digest.
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
