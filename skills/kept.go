package skills

import (
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// kind says what a record of a cache is about.
type recordKind byte

const (
	ofFile    recordKind = 'f' // digest and signals, as JSON
	ofSkill   recordKind = 's' // what a scan reads from a SKILL.md
	ofListing recordKind = 'd' // what a directory has that matters to a scan
)

// listing is what a scan saw in a directory. It belongs to a mark that was made before the directory was
// read.
type listing struct {
	mark    mark
	entries []entry
	barren  bool // it has no directories and no skill file; whether there are links is not known
}

// childless reports whether a search for nested skills finds nothing in the directory.
func (l *listing) childless() bool {
	for _, e := range l.entries {
		if e.mode.IsDir() || e.name == upperFile || e.name == lowerFile {
			return false
		}
	}
	return true
}

// packer writes the fields of a record one after another, each text behind its length.
type packer []byte

func (p *packer) number(n int) { *p = binary.AppendUvarint(*p, uint64(n)) }

func (p *packer) text(texts ...string) {
	for _, s := range texts {
		p.number(len(s))
		*p = append(*p, s...)
	}
}

// list writes a list, in which none differs from an empty one.
func (p *packer) list(list []string) {
	if list == nil {
		p.number(0)
		return
	}
	p.number(len(list) + 1)
	p.text(list...)
}

func (p *packer) flags(flags ...bool) {
	set := 0
	for i, flag := range flags {
		if flag {
			set |= 1 << i
		}
	}
	p.number(set)
}

// unpacker reads what a packer wrote. Its results are parts of the text; bad is set, and stays, if the text
// is another one.
type unpacker struct {
	rest string
	bad  bool
}

func (u *unpacker) number() int {
	n, shift := uint64(0), 0
	for i := range len(u.rest) {
		c := u.rest[i]
		n |= uint64(c&0x7f) << shift
		if shift += 7; shift > 28 {
			break
		}
		if c < 0x80 {
			u.rest = u.rest[i+1:]
			return int(n)
		}
	}
	u.bad, u.rest = true, ""
	return 0
}

func (u *unpacker) text() string {
	n := u.number()
	if n > len(u.rest) {
		u.bad, u.rest = true, ""
		return ""
	}
	s := u.rest[:n]
	u.rest = u.rest[n:]
	return s
}

func (u *unpacker) texts(to ...*string) {
	for _, s := range to {
		*s = u.text()
	}
}

func (u *unpacker) list() []string {
	n := u.number()
	if n == 0 || n > len(u.rest)+1 { // each has its length at least
		u.bad = u.bad || n > 0
		return nil
	}
	list := make([]string, n-1)
	for i := range list {
		list[i] = u.text()
	}
	return list
}

func (u *unpacker) flags(to ...*bool) {
	set := u.number()
	for i, flag := range to {
		*flag = set>>i&1 == 1
	}
}

// end reports whether all was read, and nothing else was there.
func (u *unpacker) end() bool { return !u.bad && u.rest == "" }

// pack returns the listing as a record's value.
func (l *listing) pack() []byte {
	var p packer
	p.flags(l.barren)
	for _, e := range l.entries {
		p.number(int(e.mode >> 16)) // only type bits, which are above
		p.text(e.name)
	}
	return p
}

// unpackListing reverses pack.
func unpackListing(text string) (l listing, ok bool) {
	u := unpacker{rest: text}
	for u.flags(&l.barren); u.rest != ""; {
		mode := fs.FileMode(u.number()) << 16
		l.entries = append(l.entries, entry{u.text(), mode & fs.ModeType})
	}
	for _, e := range l.entries {
		u.bad = u.bad || component(e.name) != nil
	}
	return l, !u.bad && len(l.entries) <= maxList
}

// subject is what the record of a skill begins with: its verdict depends on these names, and a file may have
// several.
func (s *Skill) subject() string {
	var p packer
	p.text(s.dirName(), s.File)
	return string(p)
}

// pack returns as a record's value all that parse found.
func (s *Skill) pack() []byte {
	f, p := &s.Frontmatter, make(packer, 0, 2*len(s.Frontmatter.JSON)+len(s.Lead)+256)
	var notes string
	if len(s.Diagnostics) > 0 {
		data, err := json.Marshal(s.Diagnostics)
		if err != nil {
			return nil
		}
		notes = string(data)
	}
	p = append(p, s.subject()...)
	p.text(string(s.Digest), s.Lead, notes, f.Name, f.Description, f.License,
		f.Compatibility, f.WhenToUse, f.Author, f.Version, string(f.JSON))
	for _, list := range [][]string{f.AllowedTools, f.Tags, f.Requires.Commands, f.Requires.Env} {
		p.list(list)
	}
	p.flags(s.Verdict.Strict, s.Verdict.Publishable, s.Verdict.Repaired, f.AllowedToolsDeclared,
		f.DisableModelInvocation, f.UserInvocable)
	return p
}

// unpack fills a skill, whose path and file are known, as parse would, from a record that begins with its
// subject.
func (s *Skill) unpack(text string, now mark) bool {
	u := unpacker{rest: text[len(s.subject()):]}
	var sum, notes, block string
	f := frontmatter.Fields{}
	u.texts(&sum, &s.Lead, &notes, &f.Name, &f.Description, &f.License, &f.Compatibility, &f.WhenToUse,
		&f.Author, &f.Version, &block)
	for _, list := range []*[]string{&f.AllowedTools, &f.Tags, &f.Requires.Commands, &f.Requires.Env} {
		*list = u.list()
	}
	u.flags(&s.Verdict.Strict, &s.Verdict.Publishable, &s.Verdict.Repaired, &f.AllowedToolsDeclared,
		&f.DisableModelInvocation, &f.UserInvocable)
	if !u.end() || notes != "" && json.Unmarshal([]byte(notes), &s.Diagnostics) != nil {
		return false
	}
	f.JSON = []byte(block)
	now.settled = true // only such marks are stored
	s.Frontmatter, s.Digest = f, digest.Digest(sum)
	s.readAs(now)
	return true
}

// sampleOne is the share of what a cache knows that is read all the same: one in so many.
const sampleOne = 64

// sampled reports whether something that is known must be read, to find a cache that is wrong.
func (c *Cache) sampled() bool {
	if c.sample != nil {
		return c.sample()
	}
	return rand.IntN(sampleOne) == 0
}

// lazyFolder is a directory that is opened when something of it must be read. Without a parent its path is
// below the area's top, else its name is in the parent.
type lazyFolder struct {
	visitor *visitor
	parent  *lazyFolder
	rel     string // to the area
	folder  folder // nil: not opened
}

func (l *lazyFolder) close() {
	if l.folder != nil {
		l.folder.close()
	}
}

func (l *lazyFolder) open() (err error) {
	switch {
	case l.folder != nil:
	case l.parent == nil:
		l.folder, err = descend(l.visitor.top, l.rel)
	default:
		if err = l.parent.open(); err == nil {
			l.folder, err = l.parent.folder.sub(path.Base(l.rel))
		}
	}
	return err
}

// known returns what a cache knows of the directory as it is now.
func (l *lazyFolder) known() (found listing, ok bool) {
	v := l.visitor
	if v.opts.Cache.empty() {
		return listing{}, false
	}
	now := v.top.look(l.rel)
	value, ok := v.opts.Cache.value(ofListing, now)
	if ok {
		found, ok = unpackListing(value)
	}
	found.mark, found.mark.settled = now, true
	return found, ok
}

// keep keeps a listing for the cache.
func (l *lazyFolder) keep(found listing) {
	l.visitor.out.listings = append(l.visitor.out.listings, found)
}

// list returns the entries that matter, sorted; more is true if there are more than maxList.
func (l *lazyFolder) list() (entries []entry, more bool, err error) {
	v := l.visitor
	found, ok := l.known()
	if ok && !found.barren {
		l.keep(found)
		return found.entries, false, nil
	}
	if err := l.open(); err != nil {
		return nil, false, err
	}
	now := mark{}
	if v.opts.Cache != nil {
		now = l.folder.look(".").readAt(v.opts.Now())
	}
	entries, more, err = l.folder.list(maxList)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	if v.opts.Cache != nil && err == nil && !more {
		v.opts.Cache.readAnew()
		l.keep(listing{mark: now, entries: entries})
	}
	return entries, more, err
}

// barren reports whether the directory is known to have nothing in which skills are nested.
func (l *lazyFolder) barren() bool {
	found, ok := l.known()
	if !ok {
		if l.parent.open() != nil {
			return false
		}
		now, barren := l.parent.folder.barren(path.Base(l.rel))
		if !barren {
			return false
		}
		l.visitor.opts.Cache.readAnew()
		found = listing{mark: now.readAt(l.visitor.opts.Now()), barren: true}
	}
	if !found.barren && !found.childless() {
		return false
	}
	if l.visitor.opts.Cache != nil {
		l.keep(found)
	}
	return true
}

// mark returns the mark of a file in it, as it is now.
func (l *lazyFolder) mark(name string) (mark, error) {
	if l.folder == nil {
		if now := l.visitor.top.look(path.Join(l.rel, name)); now.known {
			return now, nil
		}
	}
	if err := l.open(); err != nil {
		return mark{}, err
	}
	return l.folder.mark(name)
}

// read returns the bytes of a skill file that list called regular.
func (l *lazyFolder) read(name string) ([]byte, mark, error) {
	if err := l.open(); err != nil {
		return nil, mark{}, cause(err)
	}
	return l.folder.read(name, MaxSkillFile, l.visitor.buf)
}
