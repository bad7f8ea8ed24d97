// Package catalog renders a list of skills as text that fits a budget: what a model reads to choose
// a skill.
//
// The text depends only on the skills and the options, not on their order or on the time, so that
// prompt caches stay valid. It holds whole names only; where descriptions do not fit they are
// shortened alike, then left out, and then the names that do not fit are counted. A name or a
// description never takes more than its own line, whatever characters it holds, and text that is
// invisible is not repeated.
//
// It does not judge what a description says: that is the skill author's text and reaches the model.
package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

const (
	// minDescription is the shortest cut of a description, in characters, that still says something.
	minDescription = 16
	// maxName is the longest name that is shown, in characters, so that a directory name cannot
	// crowd out the others. Longer ones are counted and can still be loaded.
	maxName = 128

	separator = ", "
)

// Options say how to render. The zero value renders nothing.
type Options struct {
	// Budget is the most characters (not bytes) of the text. Zero and less leave room for nothing.
	Budget int
	// Pinned are paths of skills that come before others where room is short: they are named first
	// and may keep their descriptions in up to half of the budget.
	Pinned []string
	// Tail is the last line when n names are left out, n > 0. It must be one line, not longer for a
	// smaller n, and true of the server: by default it promises no search.
	Tail func(n int) string
}

func (o *Options) tail(n int) string {
	if n == 0 {
		return ""
	}
	if o.Tail != nil {
		return o.Tail(n)
	}
	return fmt.Sprintf("and %d more; call load_skill with the exact name", n)
}

// Render returns one line `path: description` for each skill, pinned ones first, else in byte order
// of the paths, without a final newline. A path with characters that could be taken for something
// else stands in quotes. The result is empty when not even the tail fits.
func Render(all []*skills.Skill, opts Options) string {
	var pinned, others []entry
	left := 0
	for _, sk := range byPath(all) {
		switch e := newEntry(sk); {
		case slices.Contains(opts.Pinned, sk.Path):
			pinned = append(pinned, e)
		case e.width > maxName:
			left++
		default:
			others = append(others, e)
		}
	}
	tail := opts.tail(left)
	room := opts.Budget - width(tail)
	if tail == "" {
		room++ // the newline of the last line is not written
	}
	if cost(pinned, 0)+cost(others, 0) > room {
		return renderNames(pinned, others, left, &opts)
	}
	atPinned, atOthers := full, full
	if cost(pinned, full)+cost(others, full) > room {
		if atPinned = largestCut(pinned, room/2); cost(pinned, atPinned)+cost(others, 0) > room {
			atPinned = 0
		}
		atOthers = largestCut(others, room-cost(pinned, atPinned))
	}
	return join(lines(pinned, atPinned), lines(others, atOthers), tail)
}

// renderNames is the text when the names do not all fit: pinned skills first, then names in order
// as far as they go, then how many are missing.
func renderNames(pinned, others []entry, left int, opts *Options) string {
	total := left + len(pinned) + len(others)
	room := opts.Budget - width(opts.tail(total))
	if room < 0 {
		return ""
	}
	at := largestCut(pinned, opts.Budget/2)
	pinned = fitting(pinned, at, room)
	others = fitting(others, 0, room-cost(pinned, at))
	return join(lines(pinned, at), lines(others, 0), opts.tail(total-len(pinned)-len(others)))
}

// fitting returns the entries at the front that fit room.
func fitting(entries []entry, at, room int) []entry {
	for i := range entries {
		if room -= entries[i].cost(at); room < 0 {
			return entries[:i]
		}
	}
	return entries
}

// largestCut is the most characters that every description may keep so that entries cost no more
// than room; 0 when that is too few to say something.
func largestCut(entries []entry, room int) int {
	if cost(entries, full) <= room {
		return full
	}
	low, high := 0, max(room, minDescription)
	for low < high {
		middle := (low + high + 1) / 2
		if cost(entries, middle) <= room {
			low = middle
		} else {
			high = middle - 1
		}
	}
	if low < minDescription {
		return 0
	}
	return low
}

// Names returns the paths of skills in byte order, separated by ", ", at most budget characters.
// What does not fit is counted at the end; the result is empty when not even the count fits.
func Names(all []*skills.Skill, budget int) string {
	var names []string
	used := -len(separator)
	for _, sk := range byPath(all) {
		name := quoteName(sk.Path)
		if wide := width(name); wide <= maxName {
			names = append(names, name)
			used += wide + len(separator)
		}
	}
	if len(names) == len(all) && used <= budget {
		return strings.Join(names, separator)
	}
	room := budget - len(fmt.Sprintf("and %d more", len(all)))
	kept := 0
	for ; kept < len(names); kept++ {
		if room -= width(names[kept]) + len(separator); room < 0 {
			break
		}
	}
	text := fmt.Sprintf("%d skills", len(all))
	if kept > 0 {
		text = strings.Join(names[:kept], separator) + separator + fmt.Sprintf("and %d more", len(all)-kept)
	}
	if width(text) > budget {
		return ""
	}
	return text
}

func byPath(all []*skills.Skill) []*skills.Skill {
	compare := func(a, b *skills.Skill) int { return strings.Compare(a.Path, b.Path) }
	if slices.IsSortedFunc(all, compare) {
		return all
	}
	return slices.SortedStableFunc(slices.Values(all), compare)
}
