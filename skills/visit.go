package skills

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// area is a directory tree to walk: a root, or the target of a link.
type area struct {
	root     *Root
	path     string // of the area in the catalogue
	dir      string // of the area below Root.Dir
	label    string // name of a root that is itself a skill; empty behind a link
	location location
	depth    int
	linked   bool // the target of a link
}

// visit is the result for one directory. Only the skills may change, when a [Registry] replaces them.
type visit struct {
	skills      []*Skill
	diagnostics []Diagnostic
	dirs        []string // directories to visit, relative to the area
	links       []link
	listings    []listing // for the cache
	err         error     // ErrExhausted: the result is incomplete
}

// outdated reports whether changed paths of the area may affect the result for the directory at rel.
func (v *visit) outdated(rel string, changed []string) bool {
	return slices.ContainsFunc(changed, func(path string) bool {
		if contains(path, rel) {
			return true
		}
		if !contains(rel, path) {
			return false
		}
		from := 0
		if rel != "." {
			from = len(rel) + 1
		}
		// A listed subdirectory has its own visit, unless it is part of a skill.
		child, _, deeper := strings.Cut(path[from:], "/")
		_, listed := slices.BinarySearch(v.dirs, path[:from+len(child)])
		return len(v.skills) > 0 || !deeper || !listed
	})
}

// contains reports whether a slash-separated path is dir or below it.
func contains(dir, path string) bool {
	return dir == "." || strings.HasPrefix(path, dir) && (len(path) == len(dir) || path[len(dir)] == '/')
}

// visitor visits directories, one at a time.
type visitor struct {
	area   *area
	top    folder // of the area
	opts   *ScanOptions
	buf    []byte   // of the last SKILL.md
	was    []*Skill // skills of an earlier visit
	out    *visit
	outer  string        // the path of the skill being visited
	budget int           // directories that may still be searched in the skill being visited
	opened *atomic.Int64 // directories opened inside of skills of this level
	kept   *atomic.Int64 // bytes of frontmatter kept of the root
}

func (v *visitor) note(severity Severity, code Code, path, format string, args ...any) {
	v.out.diagnostics = append(v.out.diagnostics, diagnose(severity, code, path, format, args...))
}

// exhausted records an ErrExhausted, since the result is then incomplete.
func (v *visitor) exhausted(err error) {
	if err := cause(err); errors.Is(err, ErrExhausted) {
		v.out.err = err
	}
}

// visit reads one directory of an area and, if it is a skill, the skills nested in it. was is the result of
// an earlier visit, or nil.
func (v *visitor) visit(rel string, depth int, was *visit) *visit {
	v.out, v.was, v.budget = &visit{}, nil, v.opts.MaxFiles
	if was != nil {
		v.was = was.skills
	}
	f := &lazyFolder{visitor: v, rel: rel}
	defer f.close()
	entries, more, err := f.list()
	switch {
	// Not even open, so there are no entries.
	case err != nil && f.folder == nil:
		v.exhausted(err)
		v.note(Warning, CodeUnreadableDir, v.path(rel), "the directory cannot be opened: %v", cause(err))
		return v.out
	case err != nil:
		v.exhausted(err)
		v.note(Warning, CodeUnreadableDir, v.path(rel), "the directory cannot be listed: %v", cause(err))
	case more:
		v.note(Error, CodeScanLimit, v.path(rel),
			"the directory has more than %d entries; the others are not scanned", maxList)
	}
	parent := ""
	if rel != "." {
		parent = path.Base(rel)
	}
	file := v.skillFile(entries, rel)
	if file == nil {
		file = otherCase(entries)
	}
	// The directory .github itself is never a skill: only hostedDirs of it are searched.
	if file != nil && parent != HostingDir {
		v.skill(f, entries, file, rel, depth)
		return v.out
	}
	for _, e := range entries {
		below := join(rel, e.name)
		_, err := CleanPath(v.path(below))
		switch {
		// Not a file here: skillFile has reported it.
		case e.name == upperFile || e.name == lowerFile, e.mode == 0, Skips(parent, e.name):
		case err != nil:
			v.note(Warning, CodeInvalidPath, v.path(rel),
				"a directory has a name that no path can hold: %s", quoted(e.name))
		case e.mode&fs.ModeSymlink != 0:
			v.out.links = append(v.out.links,
				link{v.area, below, v.path(below), join(v.area.dir, below), depth + 1})
		default:
			v.out.dirs = append(v.out.dirs, below)
		}
	}
	return v.out
}

// path returns the catalogue path of a directory of the area.
func (v *visitor) path(rel string) string { return join(v.area.path, rel) }

// skillFile returns the entry that makes the directory a skill, or nil.
func (v *visitor) skillFile(entries []entry, rel string) *entry {
	for _, name := range []string{upperFile, lowerFile} {
		for i := range entries {
			if entries[i].name != name {
				continue
			}
			if entries[i].mode == 0 || entries[i].mode&fs.ModeSymlink != 0 {
				return &entries[i]
			}
			v.note(Error, CodeUnreadableSkill, join(v.path(rel), name), "not a regular file")
		}
	}
	return nil
}

// otherCase returns a file with the name of a skill file in another case, or nil. On some systems it is the
// same file as SKILL.md, so clients there load it.
func otherCase(entries []entry) *entry {
	// list returns no other regular files.
	at := slices.IndexFunc(entries, func(e entry) bool { return e.mode == 0 })
	if at < 0 {
		return nil
	}
	return &entries[at]
}

// skill loads a skill and searches it for nested skills. Links inside a skill are left to its index, since
// they never lead to a skill.
func (v *visitor) skill(f *lazyFolder, entries []entry, file *entry, rel string, depth int) {
	path := v.path(rel)
	if rel == "." && v.area.label != "" {
		label := v.area.label
		// The directory of a root may have a name that no path can hold, such as one with a line break.
		if clean, err := CleanPath(label); err != nil || clean != label {
			label = "skill"
		}
		path = join(v.area.root.Prefix, label)
	}
	v.outer = path
	// The skill file is loaded before nested directories use up the limit on opened directories.
	v.load(f, file, rel, path)
	v.nested(f, entries, rel, path, depth)
}

// maxInner is the maximum number of directories inside of skills, per allowed directory outside of them.
const maxInner = 10

func (v *visitor) nested(f *lazyFolder, entries []entry, rel, path string, depth int) {
	if depth >= v.opts.MaxDepth {
		return
	}
	for _, e := range entries {
		if !e.mode.IsDir() || e.name == upperFile || e.name == lowerFile ||
			Ignored(e.name) || IsMaterial(e.name) {
			continue
		}
		v.budget--
		if v.budget < 0 {
			if v.budget == -1 {
				v.note(Warning, CodeScanLimit, v.outer,
					"the skill has more than %d directories; the others are not searched for nested skills",
					v.opts.MaxFiles)
			}
			return
		}
		// Most directories of a skill have no subdirectories; not opening them saves most of the time.
		below := &lazyFolder{visitor: v, parent: f, rel: join(rel, e.name)}
		if below.barren() {
			continue
		}
		if n, most := v.opened.Add(1), maxInner*int64(v.opts.MaxDirs); n > most {
			if n == most+1 {
				v.note(Warning, CodeScanLimit, v.area.path,
					"there are more than %d directories in skills; "+
						"the others are not searched for nested skills",
					most)
			}
			// The loops in the directories above end too, without a second diagnostic.
			v.budget = -1
			return
		}
		v.inner(below, join(path, e.name), depth+1)
	}
}

// inner searches a directory of a skill for nested skills, whose files are nestedFiles.
func (v *visitor) inner(f *lazyFolder, path string, depth int) {
	defer f.close()
	entries, _, err := f.list()
	if err != nil {
		v.exhausted(err)
		return
	}
	if _, err := CleanPath(path); err == nil {
		file := v.skillFile(entries, f.rel)
		if file == nil {
			file = otherCase(slices.DeleteFunc(slices.Clone(entries), func(e entry) bool {
				return !slices.Contains(nestedFiles, e.name)
			}))
		}
		if file != nil {
			v.load(f, file, f.rel, path)
		}
	}
	v.nested(f, entries, f.rel, path, depth)
}

// maxKept limits the bytes of frontmatter that a scan keeps of a root, and thereby the time and memory for a
// tree of skills that are all frontmatter. A hundred thousand real skills have half of it. Each root has its
// own limit, so that no root can use up the memory for another. Which skills exceed the limit depends on the
// order of visits.
const maxKept = 64 << 20

// load loads the skill file of a directory, or reuses earlier facts if its mark is unchanged.
func (v *visitor) load(f *lazyFolder, file *entry, rel, path string) {
	var now mark
	// The times of a link do not show changes of its target, so links are always read.
	if file.mode == 0 && (len(v.was) > 0 || !v.opts.Cache.empty()) {
		// Without a mark the file is read, and the read reports the error.
		now, _ = f.mark(file.name)
	}
	same, last := v.earlier(path, file.name, now)
	if same != nil {
		v.add(same)
		return
	}
	at := v.area.location
	at.rel = cmp.Or(join(at.rel, rel), ".")
	sk := &Skill{Path: path, Root: v.area.root, Dir: cmp.Or(join(v.area.dir, rel), "."), File: file.name,
		location: at, opts: v.opts, state: newIndexState(last)}
	value, known := v.opts.Cache.value(ofSkill, now)
	// A file with two names has one mark, but its name and directory decide about the form.
	known = known && strings.HasPrefix(value, sk.subject())
	if known && v.kept.Load() <= maxKept && !v.opts.Cache.sampled() && sk.unpack(value, now) {
		v.add(sk)
		return
	}
	data, m, err := v.read(f, file, sk)
	if err == nil {
		err = sk.parse(data, m)
		// The look at the name does not settle a mark; only the other fields must be equal.
		now.settled = m.settled
		if !known {
			v.opts.Cache.readAnew()
		} else if now == m && (err != nil || string(sk.pack()) != value) {
			// The file has the mark of the record, so the record must have been wrong.
			v.opts.Cache.distrust()
		}
	}
	if err != nil {
		// A broken skill is still listed, since it reserves its path.
		v.exhausted(err)
		d := unloadable(err)
		d.Path = join(path, file.name)
		v.out.diagnostics = append(v.out.diagnostics, d)
		sk.broken = true
	}
	v.add(sk)
}

// earlier returns the skill of the last scan at a path if its file has the same mark, else its last index, if
// there was such a skill.
func (v *visitor) earlier(path, file string, now mark) (same *Skill, last *Index) {
	for _, old := range v.was {
		if old.Path != path || old.File != file || old.broken {
			continue
		}
		last = old.lastIndex()
		if !old.mark.vouches(now) {
			continue
		}
		skill := *old
		// The name is decided anew, since another skill may have taken it. The index is only a hint: other
		// files of the skill may have changed while SKILL.md did not.
		skill.name, skill.state = "", newIndexState(last)
		return &skill, last
	}
	return nil, last
}

// add adds a skill to the result, and its frontmatter to what the scan keeps.
func (v *visitor) add(sk *Skill) {
	v.kept.Add(int64(len(sk.Frontmatter.JSON)))
	v.out.skills = append(v.out.skills, sk)
}

// read reads the skill file of a directory, unless the root has too much frontmatter already.
func (v *visitor) read(f *lazyFolder, file *entry, sk *Skill) (data []byte, m mark, err error) {
	// The check before the read bounds the time as well as the memory: skills beyond the limit cost no read.
	if v.kept.Load() > maxKept {
		return nil, mark{}, errKept
	}
	if file.mode == 0 {
		data, m, err = f.read(file.name)
	} else {
		data, m, err = sk.readLinked(v.buf)
	}
	if err == nil {
		v.buf = data
	}
	return data, m, err
}

// readLinked reads a skill file that may be a link to a file of the skill, or to the skill file of another
// directory of the root.
func (s *Skill) readLinked(buf []byte) (data []byte, m mark, err error) {
	// The link is resolved anew at each reading, since it may lead elsewhere now. The second round reads the
	// target, and its errors are final.
	for s.location.skillFile = ""; ; {
		t, err := s.location.open()
		if err != nil {
			return nil, mark{}, err
		}
		data, m, err = readTree(t, s.File, MaxSkillFile, buf)
		t.close()
		if s.location.skillFile != "" || !errors.Is(err, ErrOutsideRoot) {
			return data, m, err
		}
		s.location, err = s.location.follow(s.File)
		if err != nil {
			return nil, mark{}, err
		}
	}
}

// readAs sets the fields of the skill that derive from the mark of its file.
func (s *Skill) readAs(m mark) {
	s.mark, s.Size = m, m.size
	// An fs.FS may have no times.
	if m.mtime > 0 {
		s.LastModified = time.Unix(0, m.mtime)
	}
}

// parse fills the skill from the content of its file.
func (s *Skill) parse(data []byte, m mark) error {
	doc, err := frontmatter.Parse(data)
	if err != nil {
		return err
	}
	s.Frontmatter, s.Digest = doc.Fields, digest.FromBytes(data)
	s.Lead = NewLead(doc.Body)
	s.readAs(m.readAt(s.opts.Now()))
	// The file may have grown between the stat of the mark and the end of the read; the size must be of the
	// hashed bytes.
	s.Size = int64(len(data))
	for _, r := range doc.Repairs {
		s.Diagnostics = append(s.Diagnostics, Diagnostic{Severity: Warning, Code: CodeFrontmatterRepaired,
			Path: s.File, Detail: r.Reason, Line: r.Line})
	}
	s.setForm(doc)
	return nil
}
