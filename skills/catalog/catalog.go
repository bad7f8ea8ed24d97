// Package catalog renders a list of skills as text that fits a budget: what a model reads to choose
// a skill.
//
// The text depends only on the skills and the options, not on their order or on the time, so that
// prompt caches stay valid. Names are always whole. If the descriptions do not fit, all are shortened
// alike, then left out; only then the names that do not fit are counted. A name or a description never
// passes for more than it is, whatever characters it has, and invisible text is not repeated.
//
// It does not judge what a description says: the text of the skill's author reaches the model. [Render]
// and [Line] leave skills out only if they do not fit: the caller chooses which skills may be
// seen, usually with [Offered].
//
//	text, err := catalog.LoadAndRender(ctx, roots, nil, catalog.Options{Format: catalog.FormatXML})
package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

const (
	// minDescription is the shortest cut of a description, in characters, that still means something.
	minDescription = 16
	// maxName is the longest name that is shown where not all fit, in characters, so that a
	// directory name cannot crowd out the others.
	maxName = 128
	// maxBudget is a budget that nothing exceeds and that can be added to.
	maxBudget = 1 << 40

	separator = ", "
)

// Options are the options of rendering. The zero value renders nothing.
type Options struct {
	// Budget is the most characters (not bytes) of the text. Characters outside of the Basic
	// Multilingual Plane, like emoji, count as two, because clients written in JavaScript count them
	// so. Zero and less leave room for nothing.
	Budget int
	Format Format
	// Pinned are paths of skills that come before others if not all fit: they are named first and may
	// keep their descriptions in up to half of the budget.
	Pinned []string
	// NameOnly are paths of skills whose descriptions are never shown.
	NameOnly []string
	// Tail returns the last line if n names are left out, n > 0. It must be one line, not longer for a
	// smaller n, and true of the server; nil: a text that does not mention a search. See SearchTail.
	Tail func(n int) string
	// Location returns where a skill's SKILL.md is. A skill:// URI replaces a location with characters that
	// do not show. nil: [Location] in FormatXML, and none in FormatText.
	Location func(sk *skills.Skill) string
	// Lead is written before the list, unless there is none; see [DefaultLead].
	Lead string
}

// SearchTail is the Options.Tail of a server with the tool search_skills.
func SearchTail(n int) string { return fmt.Sprintf("%d more: use search_skills", n) }

func (o *Options) tail(n int) string {
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("and %d more; call load_skill with the exact name", n)
	if o.Tail != nil {
		text = o.Tail(n)
	}
	if o.Format == FormatXML {
		return "<more>" + escape(text) + "</more>\n"
	}
	return text + "\n"
}

// Render returns the skills in the format asked for, pinned ones first, else in byte order of the
// paths, without a final newline. It is empty without skills, and if not even the frame and the tail fit.
//
// FormatText is one line `path: description` for each skill, with its location in parentheses if asked for. A
// path with characters that could be taken for something else is in quotes. In [FormatXML] an element <more>
// has the number of skills left out, and a skill whose description does not fit has no element for it.
func Render(all []*skills.Skill, opts Options) string {
	if len(all) == 0 {
		return ""
	}
	c := newCatalog(all, &opts)
	if !c.fits(0, c.room(0)) {
		kept := slices.DeleteFunc(c.others, func(e entry) bool { return e.isLong() })
		c.left, c.others = len(c.others)-len(kept), kept
	}
	tail := opts.tail(c.left)
	room := c.room(width(tail))
	switch {
	case room < 0:
		return ""
	case !c.fits(0, room):
		// Not all names fit: pinned skills first, then as many names as fit, then how many are missing.
		total := c.left + len(c.pinned) + len(c.others)
		if room = c.room(width(opts.tail(total))); room < 0 {
			return ""
		}
		at := largestCut(c.pinned, room/2)
		c.pinned = fitting(c.pinned, at, room)
		c.others = fitting(c.others, 0, room-cost(c.pinned, at, room))
		return c.join(at, 0, opts.tail(total-len(c.pinned)-len(c.others)))
	}
	// Pinned skills take what they need of half of the room, and whatever the other names leave.
	atPinned, atOthers := full, full
	if !c.fits(full, room) {
		atPinned = largestCut(c.pinned, min(room/2, room-cost(c.others, 0, room)))
		atOthers = largestCut(c.others, room-cost(c.pinned, atPinned, room))
	}
	return c.join(atPinned, atOthers, tail)
}

// Fits reports whether Render shows all names and descriptions whole.
func Fits(all []*skills.Skill, opts Options) bool {
	c := newCatalog(all, &opts)
	return len(all) == 0 || c.fits(full, c.room(0))
}

// catalog is what one call renders.
type catalog struct {
	opts           *Options
	pinned, others []entry
	left           int // how many are not shown
}

func newCatalog(all []*skills.Skill, opts *Options) *catalog {
	c := &catalog{opts: opts, others: make([]entry, 0, len(all))}
	pinned, nameOnly := set(opts.Pinned), set(opts.NameOnly)
	for _, sk := range byPath(all) {
		e := entry{sk: sk, opts: opts, raw: sk.Description()}
		if nameOnly[sk.Path] {
			e.raw = ""
		}
		if pinned[sk.Path] {
			c.pinned = append(c.pinned, e)
		} else {
			c.others = append(c.others, e)
		}
	}
	return c
}

func set(paths []string) map[string]bool {
	in := make(map[string]bool, len(paths))
	for _, path := range paths {
		in[path] = true
	}
	return in
}

// room returns the characters that are left for the skills next to a tail.
func (c *catalog) room(tail int) int {
	room := min(c.opts.Budget, maxBudget) - tail + 1 // the last newline is not written
	if c.opts.Lead != "" {
		room -= width(c.opts.Lead) + 1
	}
	if c.opts.Format == FormatXML {
		room -= width(xmlOpen) + width(xmlClose)
	}
	return room
}

// fits reports whether all skills fit room with descriptions of up to at characters.
func (c *catalog) fits(at, room int) bool {
	return cost(c.pinned, at, room)+cost(c.others, at, room) <= room
}

// join returns the skills with descriptions of up to some characters, and the tail.
func (c *catalog) join(atPinned, atOthers int, tail string) string {
	var b strings.Builder
	if c.opts.Lead != "" {
		b.WriteString(c.opts.Lead + "\n")
	}
	if c.opts.Format == FormatXML {
		b.WriteString(xmlOpen)
	}
	for i := range c.pinned {
		c.pinned[i].write(&b, atPinned)
	}
	for i := range c.others {
		c.others[i].write(&b, atOthers)
	}
	b.WriteString(tail)
	if c.opts.Format == FormatXML {
		b.WriteString(xmlClose)
	}
	return strings.TrimSuffix(b.String(), "\n")
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

// largestCut returns how many characters every description may keep so that entries cost no more than
// room; 0 if these are too few to mean something.
func largestCut(entries []entry, room int) int {
	if cost(entries, full, room) <= room {
		return full
	}
	low, high := 0, min(max(room, minDescription), maxDescription)
	for low < high {
		middle := (low + high + 1) / 2
		if cost(entries, middle, room) <= room {
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

// Line returns the paths of skills on one line, separated by ", ", pinned ones first, else in byte
// order. Names that do not fit are counted at the end; the result is empty if not even the count fits.
// Only the options Budget and Pinned are used.
func Line(all []*skills.Skill, opts Options) string {
	budget := min(opts.Budget, maxBudget)
	var names []string
	used := -len(separator)
	pinned := set(opts.Pinned)
	sorted := byPath(all)
	for _, first := range []bool{true, false} {
		for _, sk := range sorted {
			if pinned[sk.Path] == first {
				name := quoteName(sk.Path)
				names = append(names, name)
				used += width(name) + len(separator)
			}
		}
	}
	if used <= budget {
		return strings.Join(names, separator)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return width(name) > maxName })
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

// byPath returns skills sorted by path, then by their other texts.
func byPath(all []*skills.Skill) []*skills.Skill {
	compare := func(a, b *skills.Skill) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Description(), b.Description()),
			strings.Compare(a.Name(), b.Name()))
	}
	if slices.IsSortedFunc(all, compare) {
		return all
	}
	return slices.SortedStableFunc(slices.Values(all), compare)
}
