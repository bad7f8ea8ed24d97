package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// Limits of a likeness, so that a hostile source costs seconds: of the parts of all its skills, and of the
// skills that the parts of all vanished ones lead to.
const (
	maxParts = 4_000_000
	maxSteps = 4_000_000_000
)

// errTooMuch reports that a likeness is at its limits.
var errTooMuch = errors.New("too much to compare")

// Files that are compared by lines, next to SKILL.md: texts of up to maxLined bytes, if the source has at
// most maxLinedAll bytes of these. Other files are equal, or have nothing in common.
const (
	maxLined    = 64 << 10
	maxLinedAll = 64 << 20
)

// likeness finds the skill that has most bytes in common with another one: in equal files, whatever their
// names are, and in equal lines of small texts, in any order. The share of two skills is what they have in
// common of the larger one, from 0 to 1.
//
// A skill is a set of parts: its lines, where the second of two equal lines is another part, and its other
// files by their digests. The parts that the same skills have are one class. So skills that are made from one
// template cost one step for each pair of them, however long the template is.
type likeness struct {
	seed  maphash.Seed // nothing in a source can be made to have the hash of another part
	wide  bool         // small texts are compared by lines too
	sizes []int64
	parts [][]uint64 // of each skill
	total int
	steps int

	class   map[uint64]int32 // of a part; nil until the first search
	holders [][]int32        // the skills with the parts of a class

	// Reused by each search.
	weights map[int32]int64
	common  []int64
}

func newLikeness(all []surveyed) *likeness {
	size := int64(0)
	for _, c := range all {
		for _, f := range c.files.files() {
			if f.Size <= maxLined {
				size += f.Size
			}
		}
	}
	return &likeness{seed: maphash.MakeSeed(), wide: size <= maxLinedAll}
}

// lined reports whether a file may be compared by lines. Files from elsewhere in the source are not: a skill
// takes them as they are.
func (l *likeness) lined(f store.File, isTaken bool) bool {
	return isTop(f.Path) || l.wide && !isTaken && f.Size <= maxLined
}

// isTop reports whether a file is the SKILL.md of the skill itself.
func isTop(at string) bool { return !strings.Contains(at, "/") && isSkillFile(at) }

// isText reports whether a file that may be compared by lines has lines.
func isText(at string, data []byte) bool {
	return isTop(at) || utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
}

// repeats counts equal lines of a skill.
type repeats map[uint64]int

// lines calls yield with each line of a text as a part.
func (l *likeness) lines(text []byte, seen repeats, yield func(part uint64, size int64)) {
	type line struct {
		hash  uint64
		count int
	}
	for text := range bytes.Lines(text) {
		hash := maphash.Bytes(l.seed, text)
		seen[hash]++
		yield(maphash.Comparable(l.seed, line{hash, seen[hash]}), int64(len(text)))
	}
}

// file returns a file as a part.
func (l *likeness) file(sum digest.Digest) uint64 { return maphash.String(l.seed, sum.String()) }

// addSkill adds a skill of a source, by number.
func (l *likeness) addSkill(ctx context.Context, c *contents) error {
	return l.add(c.files(), l.reader(ctx, c))
}

// reader returns the function that reads the files of a skill of a source, see walk.
func (l *likeness) reader(ctx context.Context, c *contents) func(f store.File) ([]byte, error) {
	return func(f store.File) ([]byte, error) {
		_, isTaken := c.from[f.Path]
		if !l.lined(f, isTaken) {
			return nil, errWhole
		}
		text, err := c.skill.Read(ctx, f.Path, max(skills.MaxSkillFile, maxLined))
		if err != nil {
			return nil, err
		}
		return text.Data, nil
	}
}

// errWhole reports that a file is not compared by lines.
var errWhole = errors.New("is compared as a whole")

// walk passes some files of a skill to text if they are compared by lines, to whole otherwise. read returns
// errWhole for a file that is not compared by lines. It returns the size of all files.
//
// Errors: other errors of read.
func walk(
	files []store.File, read func(f store.File) ([]byte, error), text func([]byte), whole func(store.File),
) (size int64, err error) {
	seen := map[digest.Digest]bool{}
	for _, f := range files {
		size += f.Size
		data, err := read(f)
		switch {
		case err != nil && err != errWhole:
			return 0, err
		case err == nil && isText(f.Path, data):
			text(data)
		// A second copy of a file is not common to both.
		case !seen[f.Digest]:
			seen[f.Digest] = true
			whole(f)
		}
	}
	return size, nil
}

// add adds a skill with some files; read is as in walk.
func (l *likeness) add(files []store.File, read func(f store.File) ([]byte, error)) error {
	var parts []uint64
	lines := repeats{}
	size, err := walk(files, read, func(text []byte) {
		l.total += bytes.Count(text, []byte("\n")) + 1
		if l.total <= maxParts {
			l.lines(text, lines, func(part uint64, _ int64) { parts = append(parts, part) })
		}
	}, func(f store.File) {
		l.total++
		parts = append(parts, l.file(f.Digest))
	})
	if err != nil {
		return err
	}
	l.sizes, l.parts = append(l.sizes, size), append(l.parts, parts)
	return nil
}

// classify makes the classes. The skills with a part are hashed in their order, so two parts have one hash if
// the same skills have them.
func (l *likeness) classify() {
	type step struct {
		before uint64
		skill  int
	}
	hashes := map[uint64]uint64{}
	for n, parts := range l.parts {
		for _, part := range parts {
			hashes[part] = maphash.Comparable(l.seed, step{hashes[part], n})
		}
	}
	l.class, l.weights = make(map[uint64]int32, len(hashes)), map[int32]int64{}
	l.common = make([]int64, len(l.parts))
	classes := map[uint64]int32{}
	for n, parts := range l.parts {
		for _, part := range parts {
			class, ok := classes[hashes[part]]
			if !ok {
				class = int32(len(classes))
				classes[hashes[part]] = class
				l.holders = append(l.holders, nil)
			}
			l.class[part] = class
			holders := l.holders[class]
			if len(holders) == 0 || holders[len(holders)-1] != int32(n) {
				l.holders[class] = append(holders, int32(n))
			}
		}
	}
	l.parts = nil
}

// near is the skill that is most like another one.
type near struct {
	at         int     // its number
	best, next float64 // its share, and that of the next one
	size       int64   // of the other one
}

// nearest returns the skill that is most like a stored one, whose files from elsewhere are taken.
//
// Errors: errTooMuch; the errors of [store.Tree.ReadFile].
func (l *likeness) nearest(was *store.Tree, taken TakenFiles) (near, error) {
	return l.search(was.Files, func(f store.File) ([]byte, error) {
		_, isTaken := slices.BinarySearchFunc(taken, f.Path,
			func(t TakenFile, at string) int { return strings.Compare(t.Path, at) })
		if !l.lined(f, isTaken) {
			return nil, errWhole
		}
		return was.ReadFile(f.Path)
	})
}

// search returns the skill that is most like one with some files; read is as in walk.
func (l *likeness) search(files []store.File, read func(f store.File) ([]byte, error)) (near, error) {
	if l.total > maxParts {
		return near{}, errTooMuch
	}
	if l.class == nil {
		l.classify()
	}
	clear(l.weights)
	weigh := func(part uint64, size int64) {
		if class, ok := l.class[part]; ok {
			l.weights[class] += size
		}
	}
	lines := repeats{}
	size, err := walk(files, read, func(text []byte) { l.lines(text, lines, weigh) },
		func(f store.File) { weigh(l.file(f.Digest), f.Size) })
	if err != nil {
		return near{}, err
	}
	clear(l.common)
	for class, weight := range l.weights {
		l.steps += len(l.holders[class])
		if l.steps > maxSteps {
			return near{}, errTooMuch
		}
		for _, n := range l.holders[class] {
			l.common[n] += weight
		}
	}
	found := near{size: size}
	for n, common := range l.common {
		share := float64(common) / float64(max(found.size, l.sizes[n], 1))
		if share <= found.best {
			found.next = max(found.next, share)
			continue
		}
		found.at, found.best, found.next = n, share, found.best
	}
	return found, nil
}

// A skill that is not clearly the nearest may still be what another one has become: if the two have at least
// leastEither in common of the larger one, or of the smaller one, as parts of a skill that was split have, or
// those that were merged, and then leastPart of the larger one.
const (
	leastEither = 0.8
	leastPart   = 0.25
)

// candidates returns the numbers of the skills that the last search may mean, the nearest first.
func (l *likeness) candidates(found near) (some []int) {
	larger := func(n int) float64 {
		return float64(l.common[n]) / float64(max(found.size, l.sizes[n], 1))
	}
	for n := range l.common {
		if larger(n) >= leastEither || larger(n) >= leastPart && l.ofSmaller(found, n) >= leastEither {
			some = append(some, n)
		}
	}
	slices.SortStableFunc(some, func(a, b int) int { return cmp.Compare(larger(b), larger(a)) })
	return some
}

// ofSmaller returns what the skill of the last search and another one have in common of the smaller one.
func (l *likeness) ofSmaller(found near, n int) float64 {
	return float64(l.common[n]) / float64(max(min(found.size, l.sizes[n]), 1))
}
