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
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// recordKind is the kind of a record in the cache.
type recordKind byte

const (
	ofIndex   recordKind = 'i' // the index of a skill, keyed by its directory
	ofSkill   recordKind = 's' // the facts that a scan reads from a SKILL.md
	ofListing recordKind = 'd' // the entries of a directory that matter to a scan
)

// listing is the content of a directory as a scan saw it, with a mark made before the directory was read.
type listing struct {
	mark    mark
	entries []entry
	barren  bool // no directories and no skill file; links were not checked
}

// childless reports whether no skill can be nested in the directory.
func (l *listing) childless() bool {
	for _, e := range l.entries {
		if e.mode.IsDir() || slices.Contains(nestedFiles, e.name) {
			return false
		}
	}
	return true
}

// pack encodes the listing as the value of a record.
func (l *listing) pack() []byte {
	var p packedWriter
	p.Flags(l.barren)
	for _, e := range l.entries {
		p.Number(int(e.mode >> 16)) // all type bits are above bit 16
		p.Text(e.name)
	}
	return p
}

// unpackListing reverses pack.
func unpackListing(text string) (l listing, ok bool) {
	u := packedReader{Rest: text}
	u.Flags(&l.barren)
	// Without a copy the names would keep the memory of the whole cache file as long as a listing lives.
	// The results alias Rest. Fields that the skill keeps are copied first, so that it does not keep the file
	// of the cache.
	for u.Rest = strings.Clone(u.Rest); u.Rest != ""; {
		mode := fs.FileMode(u.Number()) << 16
		l.entries = append(l.entries, entry{u.Text(), mode & fs.ModeType})
	}
	for _, e := range l.entries {
		// A name with a separator from a forged record would be opened outside of the directory.
		u.Bad = u.Bad || component(e.name) != nil
	}
	return l, !u.Bad && len(l.entries) <= maxList
}

// subject begins the record of a skill: its form depends on these names, and a file may have several names.
func (s *Skill) subject() string {
	var p packedWriter
	p.Text(s.dirName(), s.File)
	return string(p)
}

// packNotes encodes diagnostics, as "" without any.
func packNotes(list []Diagnostic) string {
	if len(list) == 0 {
		return ""
	}
	data, _ := json.Marshal(list) // strings and numbers cannot fail
	return string(data)
}

// pack encodes all results of parse as the value of a record. Strings that alias the record come last.
func (s *Skill) pack() []byte {
	f, p := &s.Frontmatter, make(packedWriter, 0, 2*len(s.Frontmatter.JSON)+len(s.Lead)+256)
	p = append(p, s.subject()...)
	p.Text(packNotes(s.Diagnostics), string(f.JSON), string(s.Digest), string(s.Lead), f.Name, f.Description,
		f.License, f.Compatibility, f.WhenToUse, f.Author, f.Version)
	for _, list := range append(f.Requires.Lists(), &f.AllowedTools, &f.Tags) {
		p.List(*list)
	}
	p.Flags(s.Form.Strict, s.Form.Publishable, s.Form.Repaired, f.AllowedToolsDeclared,
		f.DisableModelInvocation, f.UserInvocable)
	return p
}

// unpack fills a skill with known path and file from a record with its subject, like parse. It reports false
// if the record is damaged.
func (s *Skill) unpack(text string, now mark) bool {
	u := packedReader{Rest: text[len(s.subject()):]}
	var sum, notes, block, lead string
	f := frontmatter.Fields{}
	u.Texts(&notes, &block)
	u.Rest = strings.Clone(u.Rest)
	u.Texts(&sum, &lead, &f.Name, &f.Description, &f.License, &f.Compatibility, &f.WhenToUse, &f.Author,
		&f.Version)
	for _, list := range append(f.Requires.Lists(), &f.AllowedTools, &f.Tags) {
		*list = u.List()
	}
	u.Flags(&s.Form.Strict, &s.Form.Publishable, &s.Form.Repaired, &f.AllowedToolsDeclared,
		&f.DisableModelInvocation, &f.UserInvocable)
	if !u.End() || notes != "" && json.Unmarshal([]byte(notes), &s.Diagnostics) != nil {
		return false
	}
	f.JSON = []byte(block)
	now.settled = true // only settled marks are stored
	s.Frontmatter, s.Digest, s.Lead = f, digest.Digest(sum), Lead(lead)
	s.readAs(now)
	return true
}

// unpackMark decodes a mark as encoded by [mark.key]. The mark is known and settled.
func unpackMark(u *packedReader) mark {
	text := u.Fixed(keySize - 1)
	if text == "" {
		return mark{}
	}
	number := func(i int) uint64 { return binary.BigEndian.Uint64([]byte(text[8*i:])) }
	return mark{dev: number(0), inode: number(1), size: int64(number(2)), mtime: int64(number(3)),
		ctime: int64(number(4)), known: true, settled: true}
}

// packIndex encodes an index as the value of a record, with the marks that show whether it is still valid. It
// returns nil if these are missing, or if a limit left files out. Strings that alias the record come last.
func (s *Skill) packIndex(x *Index) []byte {
	listed := s.state.listed.Load()
	if listed == nil || listed.index != x || !x.whole || len(x.ignored) > 0 {
		return nil
	}
	notes := packNotes(x.Diagnostics)
	p := append(make(packedWriter, 0, 128+len(notes)+200*(len(listed.dirs)+len(x.Files))), s.subject()...)
	p.Text(string(s.Digest), notes)
	p.Number(x.signals)
	p.Flags(x.Publishable)
	p.Number(len(listed.dirs))
	p.Number(len(x.Files))
	marks := slices.Clone(x.marks)
	for _, d := range listed.dirs {
		marks = append(marks, d.mark)
	}
	for _, m := range marks {
		if !m.known || !m.settled {
			return nil
		}
		p = append(p, m.key(ofIndex)[1:]...)
	}
	p.Text(string(x.TreeDigest))
	for _, d := range listed.dirs {
		p.Text(d.path)
	}
	for i := range x.Files {
		f, r := &x.Files[i], x.Resource(x.Files[i].Path)
		// The size is stored only in the mark.
		if x.marks[i].size != f.Size {
			return nil
		}
		p.Text(f.Path)
		p.Flags(f.Executable, r != nil, r != nil && r.Text, r != nil && r.Program() != nil)
		if r == nil {
			continue
		}
		p.Text(string(f.Digest), r.MIMEType)
		if info := r.Program(); info != nil {
			p.Text(info.Shebang, string(info.Runtime), info.Problem)
			p.List(info.Flags)
		}
	}
	return p
}

// unpackIndex decodes the index and its directories from a record with the skill's subject. It returns nil if
// the record exceeds the limits of this scan, and false if the record is about another SKILL.md.
func (s *Skill) unpackIndex(text string) (*listedDirs, bool) {
	u := packedReader{Rest: text[len(s.subject()):]}
	var sum, notes string
	x := &Index{whole: true}
	u.Texts(&sum, &notes)
	x.signals = u.Number()
	u.Flags(&x.Publishable)
	// Each item has at least a mark, which bounds the allocation.
	count := func() int { return min(u.Number(), len(u.Rest)/(keySize-1)) }
	l := &listedDirs{index: x, dirs: make([]dirMark, count())}
	files := count()
	x.expect(files)
	for range files {
		x.marks = append(x.marks, unpackMark(&u))
	}
	for i := range l.dirs {
		l.dirs[i].mark = unpackMark(&u)
	}
	u.Rest = strings.Clone(u.Rest)
	x.TreeDigest = digest.Digest(u.Text())
	for i := range l.dirs {
		l.dirs[i].path = u.Text()
	}
	budget, self := s.opts.MaxTree, false
	for _, m := range x.marks {
		var resource, isText, isScript bool
		f := store.File{Path: u.Text(), Size: m.size}
		u.Flags(&f.Executable, &resource, &isText, &isScript)
		// Searches in an index need sorted paths, and a path that leads out of the skill would be opened.
		if len(x.Files) > 0 && x.Files[len(x.Files)-1].Path >= f.Path || !fs.ValidPath(f.Path) ||
			resource == (f.Path == s.File) {
			return nil, false
		}
		if resource {
			f.Digest = digest.Digest(u.Text())
		} else if sum == string(s.Digest) {
			f.Digest, self = s.Digest, m == s.mark
		}
		x.Files = append(x.Files, f)
		if !resource {
			continue
		}
		// The limits may be lower than when the record was made.
		budget -= f.Size
		r := Resource{Path: f.Path, Kind: kindOf(f.Path), Size: f.Size, Digest: f.Digest, Text: isText,
			MIMEType: u.Text()}
		if isScript {
			var runtime string
			info := &script.Info{Executable: f.Executable}
			u.Texts(&info.Shebang, &runtime, &info.Problem)
			info.Runtime, info.Flags = script.Runtime(runtime), u.List()
			if r.Kind == KindScript {
				r.Script = info
			} else {
				r.Outside = info
			}
		}
		x.Resources = append(x.Resources, r)
	}
	if !u.End() || notes != "" && json.Unmarshal([]byte(notes), &x.Diagnostics) != nil ||
		x.signals > len(x.Diagnostics) || len(l.dirs) == 0 || budget < 0 ||
		max(len(l.dirs), len(x.Files)) > s.opts.MaxFiles {
		return nil, false
	}
	return l, self
}

// sampleOne is the sampling rate of the cache: one in so many cached facts is read anyway.
const sampleOne = 64

// sampled reports whether a cached fact must be read, to detect a wrong cache.
func (c *Cache) sampled() bool {
	if c.sample != nil {
		return c.sample()
	}
	// The choice is random, so that a wrong record is found sooner or later by any program that uses it.
	return rand.IntN(sampleOne) == 0
}

// lazyFolder is a directory that is opened at the first read. With a parent it is opened in the parent, else
// by its path below the top of the area.
type lazyFolder struct {
	visitor *visitor
	parent  *lazyFolder
	rel     string // relative to the area
	folder  folder // nil until opened
}

func (l *lazyFolder) close() {
	if l.folder != nil {
		l.folder.close()
	}
}

func (l *lazyFolder) open() (err error) {
	if l.folder != nil {
		return nil
	}
	if l.parent == nil {
		l.folder, err = descend(l.visitor.top, l.rel)
		return err
	}
	if err := l.parent.open(); err != nil {
		return err
	}
	l.folder, err = l.parent.folder.sub(path.Base(l.rel))
	return err
}

// known returns the cached listing if the directory has not changed.
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

// keep keeps a listing for Cache.Save.
func (l *lazyFolder) keep(found listing) {
	l.visitor.out.listings = append(l.visitor.out.listings, found)
}

// list returns the relevant entries, sorted; more is true if there are more than maxList.
func (l *lazyFolder) list() (entries []entry, more bool, err error) {
	v := l.visitor
	found, ok := l.known()
	// A barren listing lacks the links of the directory.
	if ok && !found.barren {
		l.keep(found)
		return found.entries, false, nil
	}
	if err := l.open(); err != nil {
		return nil, false, err
	}
	now := mark{}
	if v.opts.Cache != nil {
		// The mark is from before the listing, so that a change during the listing changes it.
		now = l.folder.look(".").readAt(v.opts.Now())
	}
	entries, more, err = l.folder.list(maxList)
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	// A record cannot represent that the listing was cut, and would suppress the diagnostic.
	if v.opts.Cache != nil && err == nil && !more {
		v.opts.Cache.readAnew()
		l.keep(listing{mark: now, entries: entries})
	}
	return entries, more, err
}

// barren reports whether the directory is known to contain no nested skill.
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

// mark returns the current mark of a file in the directory.
func (l *lazyFolder) mark(name string) (mark, error) {
	if l.folder == nil {
		// The directory is not opened for one stat; most are unchanged and never opened.
		if now := l.visitor.top.look(path.Join(l.rel, name)); now.known {
			return now, nil
		}
	}
	if err := l.open(); err != nil {
		return mark{}, err
	}
	return l.folder.mark(name)
}

// read returns the content of a skill file that list reported as regular.
func (l *lazyFolder) read(name string) ([]byte, mark, error) {
	if err := l.open(); err != nil {
		return nil, mark{}, cause(err)
	}
	return l.folder.read(name, MaxSkillFile, l.visitor.buf)
}
