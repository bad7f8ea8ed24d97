// Package catalog renders a list of skills as text within a budget, from which a model chooses a skill.
//
// The text depends only on the skills and the options, not on their order or on the time, so that prompt
// caches stay valid. Names are never truncated. If the descriptions do not fit, each keeps its beginning, if
// there is room for all of these, and then as many as fit are complete: first of pinned skills, then of the
// skills used most, then in the order of names. If not even the names fit, the rest is given as a number. No
// name or description can be mistaken for several entries, whatever characters it has, and invisible text is
// dropped.
//
// It does not judge descriptions: the text of the skill's author reaches the model. [Render] and [Line] omit
// skills only for lack of room: the caller chooses which skills may be seen, usually with [Offered].
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
	// minDescription is the minimum length of a truncated description, in characters.
	minDescription = 16
	// gist is the length that every description keeps before any is complete: about a sentence, enough to
	// recognize the tasks of a skill.
	gist = 100
	// longest is the maximum length of a description if not all fit, as in the specification, so that a
	// description of many pages cannot displace the others.
	longest = 1_024
	// maxName is the maximum length of a name if not all fit, in characters, so that a directory name cannot
	// displace the others.
	maxName = 128
	// maxBudget is a budget that nothing exceeds, with room for additions.
	maxBudget = 1 << 40

	separator = ", "
)

// DefaultBudget is the default budget, in characters: 100 skills with descriptions of 220 characters, some
// 6,000 tokens. Clients that load skills themselves spend 20 to 24 KB on their lists.
const DefaultBudget = 24 << 10

// Options are the options of rendering. The zero value renders nothing.
type Options struct {
	// Budget is the maximum length of the text in characters (not bytes). Characters outside of the Basic
	// Multilingual Plane, like emoji, have length two, as in JavaScript clients. Zero or less leaves no room.
	Budget int
	Format Format
	// Pinned lists paths of skills to list first. If not all fit, they keep their descriptions before others
	// do, in up to half of the budget even at the cost of other names.
	Pinned []string
	// Uses holds the number of uses of skills, by path. If not all fit, skills that are used more come first.
	Uses map[string]int
	// NameOnly lists paths of skills whose descriptions are omitted.
	NameOnly []string
	// Tail returns the last line if n names are omitted, n > 0. It must be one line, not longer for a smaller
	// n. nil: a text that does not mention a search. See SearchTail.
	Tail func(n int) string
	// Location returns the location of a skill's SKILL.md. A skill:// URI replaces a location with invisible
	// characters. nil: [Location] in FormatXML, and none in FormatText.
	Location func(sk *skills.Skill) string
	// Lead is written before a non-empty list; see [DefaultLead].
	Lead string
}

// SearchTail is the Options.Tail for a server with the tool search_skills.
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

// Render returns the skills in the given format, without a final newline: pinned ones first, then sorted by
// path; if not all fit, skills that are used more come first. The result is empty without skills, and if not
// even the frame and the tail fit.
//
// FormatText is one line `path: description` per skill, followed by ` - ` and its when_to_use if these fit as
// well, and its location in parentheses if requested. An ambiguous path is in quotes. In [FormatXML] an
// element <more> has the number of omitted skills, and a skill whose description does not fit has no element
// for it.
func Render(all []*skills.Skill, opts Options) string {
	if len(all) == 0 {
		return ""
	}
	c := newCatalog(all, &opts)
	for i := range c.entries {
		c.entries[i].addWhen()
	}
	if c.fits(full, c.room(0)) {
		return c.join("")
	}
	c = newCatalog(all, &opts)
	if c.fits(full, c.room(0)) {
		return c.join("")
	}
	c.rank()
	if !c.fits(0, c.room(0)) {
		// Pinned skills were chosen by the operator, so even a long name of theirs is kept.
		others := slices.DeleteFunc(c.entries[c.pinned:], func(e entry) bool { return e.isLong() })
		c.left = len(c.entries) - c.pinned - len(others)
		c.entries = c.entries[:c.pinned+len(others)]
	}
	tail := opts.tail(c.left)
	room := c.room(width(tail))
	switch {
	case room < 0:
		return ""
	case c.fits(0, room):
		share(c.entries, room)
		return c.join(tail)
	}
	// Not all names fit: pinned skills first, then as many names as fit, then the number of the rest.
	total := c.left + len(c.entries)
	// The tail with the largest number is the longest, so the one that is written fits.
	room = c.room(width(opts.tail(total)))
	if room < 0 {
		return ""
	}
	at := largestCut(c.entries[:c.pinned], room/2)
	kept := 0
	for ; kept < len(c.entries); kept++ {
		e := &c.entries[kept]
		e.at = 0
		if kept < c.pinned {
			e.at = at
		}
		room -= e.cost(e.at)
		if room < 0 {
			break
		}
	}
	c.entries = c.entries[:kept]
	return c.join(opts.tail(total - kept))
}

// share divides room among entries whose names fit in it. In order, each keeps its complete description as
// long as the others can keep their beginnings, if there is room for these at all. The rest is divided
// equally among the truncated descriptions.
func share(entries []entry, room int) {
	least := gist
	if cost(entries, least, room) > room {
		least = 0
	}
	room -= cost(entries, least, room)
	var cut []*entry
	for i := range entries {
		e := &entries[i]
		more := e.cost(longest) - e.cost(least)
		e.at = longest
		if more > room {
			e.at = least
			cut = append(cut, e)
			continue
		}
		room -= more
	}
	of := make([]entry, len(cut))
	for i, e := range cut {
		of[i] = *e
	}
	at := largestCut(of, room+cost(of, least, full))
	for _, e := range cut {
		e.at = max(at, least)
	}
}

// Fits reports whether Render shows all names and descriptions completely.
func Fits(all []*skills.Skill, opts Options) bool {
	c := newCatalog(all, &opts)
	return len(all) == 0 || c.fits(full, c.room(0))
}

// catalog is the state of one rendering.
type catalog struct {
	opts    *Options
	entries []entry
	pinned  int // number of pinned entries, which come first
	left    int // number of omitted skills
}

func newCatalog(all []*skills.Skill, opts *Options) *catalog {
	c := &catalog{opts: opts, entries: make([]entry, 0, len(all))}
	nameOnly := set(opts.NameOnly)
	var sorted []*skills.Skill
	sorted, c.pinned = pinnedFirst(byPath(all), opts)
	for _, sk := range sorted {
		e := entry{sk: sk, opts: opts, raw: sk.Description(), at: full}
		if nameOnly[sk.Path] {
			e.raw = ""
		}
		c.entries = append(c.entries, e)
	}
	return c
}

// pinnedFirst returns the skills with the pinned ones first, and their number.
func pinnedFirst(sorted []*skills.Skill, opts *Options) (all []*skills.Skill, n int) {
	if len(opts.Pinned) == 0 {
		return sorted, 0
	}
	pinned := set(opts.Pinned)
	all = make([]*skills.Skill, 0, len(sorted))
	for _, sk := range sorted {
		if pinned[sk.Path] {
			all = append(all, sk)
		}
	}
	n = len(all)
	for _, sk := range sorted {
		if !pinned[sk.Path] {
			all = append(all, sk)
		}
	}
	return all, n
}

// rank sorts the entries by uses, pinned ones and others separately.
func (c *catalog) rank() {
	if len(c.opts.Uses) == 0 {
		return
	}
	more := func(a, b entry) int {
		return cmp.Compare(c.opts.Uses[b.sk.Path], c.opts.Uses[a.sk.Path])
	}
	slices.SortStableFunc(c.entries[:c.pinned], more)
	slices.SortStableFunc(c.entries[c.pinned:], more)
}

func set(paths []string) map[string]bool {
	in := make(map[string]bool, len(paths))
	for _, path := range paths {
		in[path] = true
	}
	return in
}

// room returns the characters that remain for the skills besides a tail.
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
func (c *catalog) fits(at, room int) bool { return cost(c.entries, at, room) <= room }

// join returns the skills with their descriptions as truncated, and the tail.
func (c *catalog) join(tail string) string {
	var b strings.Builder
	if c.opts.Lead != "" {
		b.WriteString(c.opts.Lead + "\n")
	}
	if c.opts.Format == FormatXML {
		b.WriteString(xmlOpen)
	}
	for i := range c.entries {
		c.entries[i].write(&b)
	}
	b.WriteString(tail)
	if c.opts.Format == FormatXML {
		b.WriteString(xmlClose)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// largestCut returns the maximum length of every description such that entries cost at most room, or 0 if it
// would be too short to be useful.
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

// Line returns the paths of skills on one line, separated by ", ", pinned ones first, then sorted; if not all
// fit, skills that are used more come first. Names that do not fit are counted at the end; the result is
// empty if not even the count fits. Only the options Budget, Pinned and Uses are used.
func Line(all []*skills.Skill, opts Options) string {
	budget := min(opts.Budget, maxBudget)
	c := newCatalog(all, &opts)
	quoted := func() (names []string) {
		for i := range c.entries {
			names = append(names, quoteName(c.entries[i].sk.Path))
		}
		return names
	}
	names := quoted()
	if text := strings.Join(names, separator); width(text) <= budget {
		return text
	}
	c.rank()
	names = quoted()
	names = slices.DeleteFunc(names, func(name string) bool { return width(name) > maxName })
	room := budget - len(fmt.Sprintf("and %d more", len(all)))
	kept := 0
	for ; kept < len(names); kept++ {
		room -= width(names[kept]) + len(separator)
		if room < 0 {
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
