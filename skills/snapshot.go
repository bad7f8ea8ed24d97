package skills

import (
	"cmp"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Snapshot is the immutable result of a scan. Its methods are safe for concurrent use.
type Snapshot struct {
	Skills []*Skill // sorted by Path; paths are unique
	// Diagnostics are about roots, directories and skills that were skipped or share a name.
	Diagnostics []Diagnostic
	Roots       []Root
	GeneratedAt time.Time
	// Shadowed are the skills that lost to a skill with an equal path, or with a path above or below, sorted
	// by Path.
	Shadowed []*Skill
	// Withheld are the disabled and unavailable skills, sorted by Path. They are for operators: lookups do
	// not find them, and no other skill gets their paths.
	Withheld []*Skill

	scanned  []*Skill     // all found skills, in the order of roots; nil before the first scan
	scan     []Diagnostic // diagnostics of the scan
	unread   []string     // directories of unreadable roots
	dirs     []string     // walked directories
	began    time.Time    // when the scan began
	listings [][]listing  // listings of directories, for the cache
	opts     *ScanOptions // with defaults
	byPath   map[string]*Skill
	byName   map[string][]*Skill // sorted by Path
	statuses map[*Skill]Status   // only those that differ from the default
}

func (s *Snapshot) note(severity Severity, code Code, path, format string, args ...any) {
	s.Diagnostics = append(s.Diagnostics, diagnose(severity, code, path, format, args...))
}

// Has reports whether a root is active: an awaited root is active once it has skills.
func (s *Snapshot) Has(root *Root) bool {
	return !root.Awaited || slices.ContainsFunc(s.scanned, func(sk *Skill) bool { return sk.Root == root })
}

// Broken returns the skills whose file could not be loaded, in the order of roots. The diagnostics of the
// snapshot have the reasons.
func (s *Snapshot) Broken() []*Skill {
	var broken []*Skill
	for _, sk := range s.scanned {
		if sk.broken {
			broken = append(broken, sk)
		}
	}
	return broken
}

// Cut returns the diagnostics for directories that were not scanned because of a limit. They may contain
// further skills.
func (s *Snapshot) Cut() []Diagnostic {
	var cut []Diagnostic
	for _, d := range s.Diagnostics {
		// The same code and severity report a SKILL.md that is too large, which hides no other skill.
		last := d.Path[strings.LastIndexByte(d.Path, '/')+1:]
		if d.Code == CodeScanLimit && d.Severity == Error && !strings.EqualFold(last, upperFile) {
			cut = append(cut, d)
		}
	}
	return cut
}

// Began returns the time at which the scan of the snapshot began, which [Snapshot.GeneratedAt] ended: it may
// lack changes since then. It is zero before the first scan.
func (s *Snapshot) Began() time.Time { return s.began }

// assemble makes a snapshot of the found skills by the rules of precedence.
func assemble(roots []Root, found []*Skill, scan []Diagnostic, opts *ScanOptions) *Snapshot {
	s := &Snapshot{
		Roots:       roots,
		GeneratedAt: opts.Now(),
		Diagnostics: slices.Clone(scan),
		scanned:     found,
		scan:        scan,
		opts:        opts,
		byPath:      make(map[string]*Skill, len(found)),
		byName:      make(map[string][]*Skill, len(found)),
		statuses:    map[*Skill]Status{},
	}
	for _, d := range scan {
		if d.Code == CodeUnreadableRoot {
			s.unread = append(s.unread, d.Path)
		}
	}
	for _, sk := range s.distinct(found) {
		if opts.unusable(sk) {
			continue
		}
		other, taken := s.byPath[sk.Path]
		switch {
		case !taken:
			s.byPath[sk.Path] = sk
		case s.beats(sk, other):
			s.byPath[sk.Path] = sk
			s.shadow(other, sk)
		default:
			s.shadow(sk, other)
		}
	}
	// It comes after the choice among usable skills, because it takes the chosen one away.
	s.reservePaths(found)
	s.Skills = make([]*Skill, 0, len(s.byPath))
	for _, sk := range s.byPath {
		s.Skills = append(s.Skills, sk)
	}
	byPath := func(a, b *Skill) int { return strings.Compare(a.Path, b.Path) }
	slices.SortFunc(s.Skills, byPath)
	// Precedence is decided before skills are withheld: a disabled skill still hides a less trusted one.
	s.separate()
	s.refuse(found)
	s.withhold()
	slices.SortStableFunc(s.Shadowed, byPath)
	s.label()
	paths := make([]string, len(s.Skills))
	for i, sk := range s.Skills {
		paths[i] = sk.Path
	}
	collisions(paths, func(path, first string) {
		s.note(Warning, CodeNameCollision, path,
			"%q differs only by case or by the form of a letter; both are served", first)
	})
	return s
}

// after returns the snapshot of a later scan of the same roots. If only readings of served skills differ, and
// no other skill is affected, the rules of precedence are not applied again. So a change of one skill among
// thousands is cheap.
func (s *Snapshot) after(found []*Skill, scan []Diagnostic) *Snapshot {
	if len(found) != len(s.scanned) || !slices.Equal(scan, s.scan) {
		return assemble(s.Roots, found, scan, s.opts)
	}
	// The maps are copied below, because sessions still read the old snapshot.
	next := *s
	next.GeneratedAt, next.scanned, next.Skills = s.opts.Now(), found, slices.Clone(s.Skills)
	next.byPath, next.byName, next.statuses = maps.Clone(s.byPath), maps.Clone(s.byName),
		maps.Clone(s.statuses)
	for i, old := range s.scanned {
		sk := found[i]
		if sk == old {
			continue
		}
		// A changed name may collide with the name of another skill, or end a collision.
		if s.byPath[old.Path] != old || !sk.isAt(old) || sk.Frontmatter.Name != old.Frontmatter.Name ||
			s.opts.unusable(sk) || !reflect.DeepEqual(s.Status(old), s.statusOf(sk, map[string]bool{})) {
			return assemble(s.Roots, found, scan, s.opts)
		}
		sk.name = old.name
		at, _ := slices.BinarySearchFunc(s.Skills, sk.Path,
			func(sk *Skill, path string) int { return strings.Compare(sk.Path, path) })
		next.Skills[at], next.byPath[sk.Path] = sk, sk
		named := slices.Clone(next.byName[sk.name])
		named[slices.Index(named, old)] = sk
		next.byName[sk.name] = named
		if status, ok := next.statuses[old]; ok {
			delete(next.statuses, old)
			next.statuses[sk] = status
		}
	}
	return &next
}

// isAt reports whether two skills are readings of the same file, at the same path of the catalogue.
func (s *Skill) isAt(other *Skill) bool {
	return s.Path == other.Path && s.Root == other.Root && s.File == other.File &&
		s.location.rel == other.location.rel && s.location.base == other.location.base
}

// reservePaths denies the path of a broken skill to less trusted skills: if a skill of the operator is
// broken, an untrusted skill must not replace it.
func (s *Snapshot) reservePaths(found []*Skill) {
	for _, sk := range found {
		if other := s.byPath[sk.Path]; s.opts.unusable(sk) && other != nil && s.beats(sk, other) {
			delete(s.byPath, sk.Path)
			s.shadow(other, sk)
		}
	}
}

// separate shadows one of two skills of different roots if the path of one is below the other. Their files
// would have the same URIs, so a less trusted skill could provide the references of another.
func (s *Snapshot) separate() {
	for _, sk := range s.Skills {
		for at := strings.LastIndexByte(sk.Path, '/'); at > 0; at = strings.LastIndexByte(sk.Path[:at], '/') {
			outer := s.byPath[sk.Path[:at]]
			if outer == nil || outer.Root == sk.Root {
				continue
			}
			if s.wins(outer, sk) {
				delete(s.byPath, sk.Path)
				s.shadow(sk, outer)
				break
			}
			delete(s.byPath, outer.Path)
			s.shadow(outer, sk)
		}
	}
	s.Skills = slices.DeleteFunc(s.Skills, func(sk *Skill) bool { return s.byPath[sk.Path] != sk })
}

// wins reports whether skill a takes precedence over b. They must have different roots.
func (s *Snapshot) wins(a, b *Skill) bool {
	for i := range s.Roots {
		switch &s.Roots[i] {
		case a.Root:
			return !s.beats(b, a)
		case b.Root:
			return s.beats(a, b)
		}
	}
	panic("skills: a skill of no root")
}

// distinct keeps the preferred skill for each directory, in the same order.
func (s *Snapshot) distinct(found []*Skill) []*Skill {
	best := make(map[string]*Skill, len(found))
	for _, sk := range found {
		key := sk.location.key(sk.Root)
		if other := best[key]; other == nil || s.beats(sk, other) {
			best[key] = sk
		}
	}
	other := func(sk *Skill) bool { return best[sk.location.key(sk.Root)] != sk }
	return slices.DeleteFunc(slices.Clone(found), other)
}

// beats reports whether the later of two skills wins: only by a more trusted tier, or if the root of the
// earlier one cannot be read, for example because its skills moved to the other root.
func (s *Snapshot) beats(later, earlier *Skill) bool {
	unread := func(sk *Skill) bool { return slices.Contains(s.unread, sk.Root.Dir) }
	// A skill that was moved to a root of the same trust is served from there, but a less trusted root cannot
	// take the path while the other is away.
	if unread(earlier) && !unread(later) {
		return later.Root.Tier <= earlier.Root.Tier
	}
	return !s.opts.AllowShadow && later.Root.Tier < earlier.Root.Tier
}

func (s *Snapshot) shadow(loser, winner *Skill) {
	s.Shadowed = append(s.Shadowed, loser)
	s.note(Warning, CodeShadowed, loser.Path,
		"the skill in %s (%s) is shadowed by the one in %s (%s)",
		loser.Root.Dir, loser.Root.Tier, winner.Root.Dir, winner.Root.Tier)
}

// renamed returns a skill under another name. A skill that an earlier snapshot shares is copied, for this
// snapshot only.
func (s *Snapshot) renamed(old *Skill, name string) *Skill {
	if old.name == "" {
		old.name = name
	}
	if old.name == name {
		return old
	}
	sk := *old
	sk.name = name
	s.scanned = slices.Clone(s.scanned)
	s.scanned[slices.Index(s.scanned, old)] = &sk
	if status, ok := s.statuses[old]; ok {
		delete(s.statuses, old)
		s.statuses[&sk] = status
	}
	return &sk
}

// label sets the names of the skills: if a name is not unique, the name of the directory is used.
func (s *Snapshot) label() {
	count := make(map[string]int, len(s.Skills))
	for _, sk := range s.Skills {
		count[cmp.Or(sk.Frontmatter.Name, sk.dirName())]++
	}
	for i, sk := range s.Skills {
		name := cmp.Or(sk.Frontmatter.Name, sk.dirName())
		if count[name] > 1 {
			name = sk.dirName()
		}
		sk = s.renamed(sk, name)
		s.Skills[i], s.byPath[sk.Path] = sk, sk
		s.byName[sk.name] = append(s.byName[sk.name], sk)
	}
	// These are not looked up, so their names may be ambiguous.
	for _, list := range [][]*Skill{s.Shadowed, s.Withheld} {
		for i, sk := range list {
			list[i] = s.renamed(sk, sk.dirName())
		}
	}
	for _, sk := range s.Skills {
		if named := s.byName[sk.Path]; len(named) > 0 && leastTier(named) < sk.Root.Tier {
			s.note(Warning, CodeDuplicateName, sk.Path,
				"the path is the name of a more trusted skill, and means that one; skill://%s means this one",
				sk.Path)
		}
		if same := s.byName[sk.name]; len(same) > 1 && same[0] == sk {
			s.note(Info, CodeDuplicateName, sk.Path,
				"%d skills have this name; use their paths, such as %s and %s", len(same), same[0].Path,
				same[1].Path)
		}
	}
}

// Dirs returns the scanned directories, absolute and with links resolved: the directories of the roots, and
// directories outside of them behind links. Roots with FS have none, nor has a snapshot that is not the
// result of a scan.
func (s *Snapshot) Dirs() []string { return slices.Clone(s.dirs) }

// SkillFiles returns the paths of the scanned skill files, including those that could not be loaded. They are
// absolute, and links in their directories are resolved. Roots with FS have none.
func (s *Snapshot) SkillFiles() []string {
	files := make([]string, 0, len(s.scanned))
	for _, sk := range s.scanned {
		if sk.location.fsys == nil {
			files = append(files, filepath.Join(sk.location.onDisk(), sk.File))
		}
	}
	return files
}

// Only returns a snapshot with just the skills at some paths. It has no diagnostics and no shadowed or
// withheld skills. Paths without a skill are ignored.
func (s *Snapshot) Only(paths []string) *Snapshot {
	part := &Snapshot{
		Roots:       s.Roots,
		GeneratedAt: s.GeneratedAt,
		opts:        s.opts,
		statuses:    s.statuses,
		byPath:      make(map[string]*Skill, len(paths)),
		byName:      make(map[string][]*Skill, len(paths)),
	}
	sorted := slices.Sorted(slices.Values(paths))
	for _, path := range slices.Compact(sorted) {
		sk := s.Skill(path)
		if sk == nil {
			continue
		}
		part.Skills = append(part.Skills, sk)
		part.byPath[path] = sk
		part.byName[sk.name] = append(part.byName[sk.name], sk)
	}
	return part
}
